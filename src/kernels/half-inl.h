// Blocks of ggml's q8_0 and q4_0, and their scale as a float, with the instructions of the target
// that is being compiled. Included by files that foreach_target.h compiles once for each.
#if defined(KVBOUND_KERNELS_HALF_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KVBOUND_KERNELS_HALF_INL_H_
#undef KVBOUND_KERNELS_HALF_INL_H_
#else
#define KVBOUND_KERNELS_HALF_INL_H_
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

HWY_BEFORE_NAMESPACE();
namespace kvbound {
namespace HWY_NAMESPACE {

constexpr size_t kBlockElements = 32;  // a block begins with its scale, a half precision number
constexpr size_t kQ8Bytes = 2 + kBlockElements;

HWY_INLINE float HalfAt(const std::byte* at) {
  namespace hn = hwy::HWY_NAMESPACE;
  uint16_t bits;
  std::memcpy(&bits, at, sizeof(bits));
  const hn::CappedTag<float, 4> d;
  const hn::Rebind<hwy::float16_t, decltype(d)> d16;
  const hn::Rebind<uint16_t, decltype(d)> bits_tag;
  return hn::GetLane(hn::PromoteTo(d, hn::BitCast(d16, hn::Set(bits_tag, bits))));
}

}  // namespace HWY_NAMESPACE
}  // namespace kvbound
HWY_AFTER_NAMESPACE();

#endif  // KVBOUND_KERNELS_HALF_INL_H_
