// Included by files that foreach_target.h compiles once for each.
#if defined(KVBOUND_KERNELS_EXP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KVBOUND_KERNELS_EXP_INL_H_
#undef KVBOUND_KERNELS_EXP_INL_H_
#else
#define KVBOUND_KERNELS_EXP_INL_H_
#endif

#include <hwy/highway.h>

#include "kernels/attention_rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kvbound {
namespace HWY_NAMESPACE {

// e^x for x <= 0, off by 1e-7 of it at most; exactly 1 for 0, and 0 below -87 and for NaN. In half
// the instructions of Highway's Exp, which takes any x.
HWY_INLINE V ExpUpToZero(V x) {
  const Floats d;
  // x = n log 2 + r. To this sum its last bits are n and the bias of exponents.
  const V magic = hn::Set(d, 0x1.8p23f + 127.0f);
  const V biased = hn::MulAdd(x, hn::Set(d, 1.44269504f), magic);
  const V n = hn::Sub(biased, magic);
  V r = hn::NegMulAdd(n, hn::Set(d, 0.693359375f), x);  // log 2 in two parts
  r = hn::MulAdd(n, hn::Set(d, 2.12194440e-4f), r);
  // The polynomial with the least relative error (2e-9) for |r| <= log(2) / 2 that is 1 at 0.
  V y = hn::Set(d, 1.384364441e-3f);
  y = hn::MulAdd(y, r, hn::Set(d, 8.374163881e-3f));
  y = hn::MulAdd(y, r, hn::Set(d, 4.166800156e-2f));
  y = hn::MulAdd(y, r, hn::Set(d, 0.1666643173f));
  y = hn::MulAdd(y, r, hn::Set(d, 0.4999999404f));
  y = hn::MulAdd(y, r, hn::Set(d, 1.0f));
  y = hn::MulAdd(y, r, hn::Set(d, 1.0f));
  const V power = hn::BitCast(d, hn::ShiftLeft<23>(hn::BitCast(Ints(), biased)));
  return hn::IfThenElseZero(hn::Gt(x, hn::Set(d, -87.0f)), hn::Mul(y, power));
}

}  // namespace HWY_NAMESPACE
}  // namespace kvbound
HWY_AFTER_NAMESPACE();

#endif  // KVBOUND_KERNELS_EXP_INL_H_
