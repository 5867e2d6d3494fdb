// Numbers in 16 bits for products with q8_0 rows: queries and weights are rounded, products of
// pairs are added up exactly, and a block's scale is applied to sums. Bytes become floats at three
// times the cost of short integers. Included by files that foreach_target.h compiles once for each.
#if defined(KVBOUND_KERNELS_SHORT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KVBOUND_KERNELS_SHORT_INL_H_
#undef KVBOUND_KERNELS_SHORT_INL_H_
#else
#define KVBOUND_KERNELS_SHORT_INL_H_
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/attention_few-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kvbound {
namespace HWY_NAMESPACE {

// Where adding up products of neighbours is one instruction, or two.
#undef KVBOUND_Q8_IN_INTEGERS
#define KVBOUND_Q8_IN_INTEGERS (HWY_ARCH_X86 && HWY_TARGET != HWY_SCALAR)
constexpr bool kQ8InIntegers = KVBOUND_Q8_IN_INTEGERS;
#if KVBOUND_Q8_IN_INTEGERS

using Shorts = hn::Repartition<int16_t, Floats>;
using VI = hn::Vec<Ints>;
using VS = hn::Vec<Shorts>;

constexpr float kGreatestShort = 32767.0f;
constexpr size_t kMaxBlocks = FewQueries::kMaxBlocks;

// Of all work, see Ahead.
constexpr size_t kQ8LogitsShare = 16, kQ8ScalesShare = 2, kQ8WeightsShare = 3, kQ8SumsShare = 9;

// sum[i] + a[2 i] b[2 i] + a[2 i + 1] b[2 i + 1]. kVnni: in one instruction.
template <bool kVnni>
HWY_INLINE VI AddPairs(VS a, VS b, VI sum) {
#if HWY_TARGET == HWY_AVX3
  // Highway has no target with this extension that all CPUs with it could run.
  if constexpr (kVnni) {
    asm("vpdpwssd %2, %1, %0" : "+v"(sum.raw) : "v"(a.raw), "v"(b.raw));
    return sum;
  }
#endif
  auto unused = hn::Zero(Ints());
  return hn::ReorderWidenMulAccumulate(Ints(), a, b, sum, unused);
}

HWY_INLINE bool HasVnni() {
#if HWY_TARGET == HWY_AVX3
  static const bool has = __builtin_cpu_supports("avx512vnni");
  return has;
#else
  return false;
#endif
}

// Two neighbours, the same in all pairs of lanes.
HWY_INLINE VS PairAt(const int16_t* at) {
  int32_t pair;
  std::memcpy(&pair, at, sizeof(pair));
  return hn::BitCast(Shorts(), hn::Set(Ints(), pair));
}

// x * factor, rounded. Beyond 16 bits it saturates.
HWY_INLINE void StoreShorts(V x, V factor, int16_t* to) {
  const hn::Rebind<int16_t, Floats> d;
  hn::StoreU(hn::DemoteTo(d, hn::NearestInt(hn::Mul(x, factor))), d, to);
}

// Factors from floats to 16 bits, by the greatest magnitude of them, and back. A NaN among them
// makes the second one NaN.
class ShortFactors {
 public:
  HWY_INLINE ShortFactors() : max_(hn::Zero(Floats())), nan_(hn::Zero(Floats())) {}
  HWY_INLINE void Add(V x) {
    max_ = hn::Max(max_, hn::Abs(x));
    nan_ = hn::MulAdd(x, hn::Zero(Floats()), nan_);  // Max may lose one
  }
  float To() const { return Max() > 0 ? kGreatestShort / Max() : 0.0f; }
  float Back() const {
    return Max() / kGreatestShort + hn::GetLane(hn::SumOfLanes(Floats(), nan_));
  }

 private:
  float Max() const { return hn::GetLane(hn::MaxOfLanes(Floats(), max_)); }

  V max_, nan_;
};

#endif

}  // namespace HWY_NAMESPACE
}  // namespace kvbound
HWY_AFTER_NAMESPACE();

#endif  // KVBOUND_KERNELS_SHORT_INL_H_
