// What the kernels for few queries share: sums over lanes, fetching ahead, rows in groups. Included
// by files that foreach_target.h compiles once for each.
#if defined(KVBOUND_KERNELS_ATTENTION_FEW_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KVBOUND_KERNELS_ATTENTION_FEW_INL_H_
#undef KVBOUND_KERNELS_ATTENTION_FEW_INL_H_
#else
#define KVBOUND_KERNELS_ATTENTION_FEW_INL_H_
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>

#include "kernels/attention_rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kvbound {
namespace HWY_NAMESPACE {

// In each 128 bits of the result, added up over all of them, are the sums of the lanes of x[0..3].
#if HWY_TARGET != HWY_SCALAR
template <class D, class Vec = hn::Vec<D>>
HWY_INLINE Vec SumsOfFour(D d, const Vec (&x)[4]) {
  const hn::RepartitionToWide<D> pairs;
  const Vec a = hn::Add(hn::InterleaveLower(d, x[0], x[1]), hn::InterleaveUpper(d, x[0], x[1]));
  const Vec b = hn::Add(hn::InterleaveLower(d, x[2], x[3]), hn::InterleaveUpper(d, x[2], x[3]));
  const auto a2 = hn::BitCast(pairs, a), b2 = hn::BitCast(pairs, b);
  return hn::Add(hn::BitCast(d, hn::InterleaveLower(pairs, a2, b2)),
                 hn::BitCast(d, hn::InterleaveUpper(pairs, a2, b2)));
}

template <class D, class Vec>
HWY_INLINE auto SumOf128BitBlocks(D d, Vec x) {
  if constexpr (hn::MaxLanes(D()) <= 4) {
    return x;
  } else {
    const hn::Half<D> half;
    return SumOf128BitBlocks(half, hn::Add(hn::LowerHalf(half, x), hn::UpperHalf(half, x)));
  }
}
#endif

// Asks for what is read next, V of this range and then K of the next one: short ranges of K and V
// in turn leave hardware prefetchers behind. Each step of the work takes its share, by the time
// that it needs, so that memory is never idle, and a few cache lines at a time: more than a core
// can wait for hold up all that it reads. Past the end of memory it does no harm.
class Ahead {
 public:
  // v, next_k: their bytes at a task of n_slot slots. Without a next K it asks for V again.
  Ahead(const std::byte* v, size_t v_bytes, const std::byte* next_k, size_t k_bytes, size_t n_slot)
      : at_(v),
        end_(v + v_bytes),
        next_(next_k == nullptr ? v : next_k),
        next_end_(next_ + (next_k == nullptr ? v_bytes : k_bytes)),
        slot_bytes_((v_bytes + k_bytes) / n_slot) {}

  // What a step on n slots asks for if this kind of step takes share / kShares of all time; of
  // `parts` passes over the same slots each asks for its part.
  HWY_INLINE size_t Due(size_t n, size_t share, size_t parts = 1) const {
    return n * share * slot_bytes_ / parts;
  }
  HWY_INLINE void Fetch(size_t due) {
    for (due_ += due; due_ >= kCacheLine * kShares; due_ -= kCacheLine * kShares) {
      __builtin_prefetch(at_, 0, 2);
      at_ += kCacheLine;
      if (at_ >= end_) {
        at_ = next_;
        end_ = next_end_;
        next_ = next_end_;
      }
    }
  }
  static constexpr size_t kShares = 32;

 private:
  static constexpr size_t kCacheLine = 64;

  const std::byte* at_;
  const std::byte* end_;
  const std::byte* next_;
  const std::byte* next_end_;
  size_t slot_bytes_;
  size_t due_ = 0;  // bytes times kShares
};

// Calls body.operator()<kRows>(first_row) for all rows in groups of at most four.
template <class Body>
HWY_INLINE void ForGroups(int32_t n_row, const Body& body) {
  int32_t r = 0;
  for (; r + 4 <= n_row; r += 4) body.template operator()<4>(r);
  switch (n_row - r) {
    case 3:
      return body.template operator()<3>(r);
    case 2:
      return body.template operator()<2>(r);
    case 1:
      return body.template operator()<1>(r);
    default:
      return;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace kvbound
HWY_AFTER_NAMESPACE();

#endif  // KVBOUND_KERNELS_ATTENTION_FEW_INL_H_
