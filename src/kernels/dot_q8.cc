#include "kernels/dot_q8.h"

#include <cstring>

// Compiled once for each instruction set; the best one that the CPU has is taken at run time.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/dot_q8.cc"
#include <hwy/foreach_target.h>
// After it:
#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include "kernels/half-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kvbound {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Rows are short and four are read at once, which hides the order from hardware prefetchers: from
// memory, asking for what comes this many rows later is 1.7 times as fast.
constexpr size_t kPrefetchRows = 8;

using Floats = hn::ScalableTag<float>;

#if HWY_TARGET == HWY_SCALAR
HWY_INLINE hn::Vec<Floats> BlockProduct(const int8_t* a, const int8_t* b) {
  int32_t sum = 0;
  for (size_t i = 0; i < kBlockElements; ++i) sum += int32_t{a[i]} * b[i];
  return hn::Set(Floats(), static_cast<float>(sum));
}
#else
// Lanes that add up to the product of two blocks.
HWY_INLINE hn::Vec<Floats> BlockProduct(const int8_t* a, const int8_t* b) {
  const hn::Rebind<int32_t, Floats> d32;
  const hn::Repartition<int16_t, Floats> d16;
  const hn::Rebind<int8_t, decltype(d16)> d8;
  auto low = hn::Zero(d32), high = hn::Zero(d32);
  for (size_t i = 0; i < kBlockElements; i += hn::Lanes(d16)) {
    const auto a16 = hn::PromoteTo(d16, hn::LoadU(d8, a + i));
    const auto b16 = hn::PromoteTo(d16, hn::LoadU(d8, b + i));
    low = hn::ReorderWidenMulAccumulate(d32, a16, b16, low, high);
  }
  return hn::ConvertTo(Floats(), hn::Add(low, high));
}
#endif

HWY_INLINE const int8_t* Elements(const std::byte* block) {
  return reinterpret_cast<const int8_t*>(block + 2);
}

template <int kRows>
HWY_INLINE void Dot(const std::byte* rows, size_t row_bytes, const std::byte* x, int32_t n_block,
                    float* out) {
  const Floats d;
  hn::Vec<Floats> sum[kRows];
  for (int r = 0; r < kRows; ++r) sum[r] = hn::Zero(d);
  for (int32_t b = 0; b < n_block; ++b, rows += kQ8Bytes, x += kQ8Bytes) {
    const float scale = HalfAt(x);
    for (int r = 0; r < kRows; ++r) {
      const std::byte* block = rows + r * row_bytes;
      hwy::Prefetch(block + kPrefetchRows * row_bytes);
      const auto product = BlockProduct(Elements(block), Elements(x));
      sum[r] = hn::MulAdd(product, hn::Set(d, scale * HalfAt(block)), sum[r]);
    }
  }
  for (int r = 0; r < kRows; ++r) out[r] = hn::GetLane(hn::SumOfLanes(d, sum[r]));
}

void Compute(const std::byte* rows, size_t row_bytes, int32_t n_row, const std::byte* x,
             int32_t n_block, float* out) {
  int32_t r = 0;
  for (; r + 4 <= n_row; r += 4) Dot<4>(rows + r * row_bytes, row_bytes, x, n_block, out + r);
  for (; r < n_row; ++r) Dot<1>(rows + r * row_bytes, row_bytes, x, n_block, out + r);
}

}  // namespace HWY_NAMESPACE
}  // namespace kvbound
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvbound {

HWY_EXPORT(Compute);

void DotQ8(const std::byte* rows, size_t row_bytes, int32_t n_row, const std::byte* x,
           int32_t n_block, float* out) {
  HWY_DYNAMIC_DISPATCH(Compute)(rows, row_bytes, n_row, x, n_block, out);
}

}  // namespace kvbound
#endif  // HWY_ONCE
