// Rows of K and V as vectors of floats, and which keys a query sees: what the kernels for few and
// for many queries share. Included by files that foreach_target.h compiles once for each.
#if defined(KVBOUND_KERNELS_ATTENTION_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KVBOUND_KERNELS_ATTENTION_ROWS_INL_H_
#undef KVBOUND_KERNELS_ATTENTION_ROWS_INL_H_
#else
#define KVBOUND_KERNELS_ATTENTION_ROWS_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/attention_task.h"
#include "kernels/half-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kvbound {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Floats = hn::ScalableTag<float>;
using Ints = hn::Rebind<int32_t, Floats>;
using V = hn::Vec<Floats>;

// Vectors of a row that is stored in one of these types, from element i on.
struct F32Row {
  static HWY_INLINE V At(const std::byte* row, size_t i) {
    return hn::LoadU(Floats(), reinterpret_cast<const float*>(row) + i);
  }
};
struct F16Row {
  static HWY_INLINE V At(const std::byte* row, size_t i) {
    const hn::Rebind<hwy::float16_t, Floats> d;
    return hn::PromoteTo(Floats(), hn::LoadU(d, reinterpret_cast<const hwy::float16_t*>(row) + i));
  }
};
struct Bf16Row {
  static HWY_INLINE V At(const std::byte* row, size_t i) {
    const hn::Rebind<hwy::bfloat16_t, Floats> d;
    return hn::PromoteTo(Floats(), hn::LoadU(d, reinterpret_cast<const hwy::bfloat16_t*>(row) + i));
  }
};

constexpr size_t kQ4Bytes = 2 + kBlockElements / 2;

HWY_INLINE V FromInts(hn::Vec<Ints> x, V scale) {
  return hn::Mul(hn::ConvertTo(Floats(), x), scale);
}

HWY_INLINE void Q8BlockToFloats(const std::byte* block, float* out) {
  const Floats d;
  const hn::Rebind<int8_t, Floats> d8;
  const V scale = hn::Set(d, HalfAt(block));
  const auto* q = reinterpret_cast<const int8_t*>(block + 2);
  for (size_t i = 0; i < kBlockElements; i += hn::Lanes(d)) {
    hn::StoreU(FromInts(hn::PromoteTo(Ints(), hn::LoadU(d8, q + i)), scale), d, out + i);
  }
}

HWY_INLINE void Q4BlockToFloats(const std::byte* block, float* out) {
  const Floats d;
  const hn::Rebind<uint8_t, Floats> d8;
  const V scale = hn::Set(d, HalfAt(block));
  const auto eight = hn::Set(Ints(), 8);
  const auto* q = reinterpret_cast<const uint8_t*>(block + 2);
  for (size_t i = 0; i < kBlockElements / 2; i += hn::Lanes(d)) {
    const auto both = hn::PromoteTo(Ints(), hn::LoadU(d8, q + i));
    const auto low = hn::And(both, hn::Set(Ints(), 15));
    hn::StoreU(FromInts(hn::Sub(low, eight), scale), d, out + i);
    hn::StoreU(FromInts(hn::Sub(hn::ShiftRight<4>(both), eight), scale), d,
               out + kBlockElements / 2 + i);
  }
}

// A row of n elements whose last vector may be partial.
template <class Row, size_t kElementBytes>
HWY_INLINE void RowToFloats(const std::byte* row, size_t n, float* out) {
  const size_t lanes = hn::Lanes(Floats());
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::StoreU(Row::At(row, i), Floats(), out + i);
  if (i == n) return;
  HWY_ALIGN std::byte rest[hn::MaxLanes(Floats()) * sizeof(float)] = {};
  std::memcpy(rest, row + i * kElementBytes, (n - i) * kElementBytes);
  hn::StoreU(Row::At(rest, 0), Floats(), out + i);
}

// n_row rows of n elements as floats, in rows of `stride`, n rounded up to whole vectors; what is
// past n is zero.
inline void RowsToFloats(const SlotRows& rows, const std::byte* first, size_t n_row, size_t n,
                         size_t stride, float* out) {
  for (size_t r = 0; r < n_row; ++r, first += rows.slot_bytes, out += stride) {
    switch (rows.type) {
      case KvType::kF32:
        RowToFloats<F32Row, 4>(first, n, out);
        break;
      case KvType::kF16:
        RowToFloats<F16Row, 2>(first, n, out);
        break;
      case KvType::kBF16:
        RowToFloats<Bf16Row, 2>(first, n, out);
        break;
      case KvType::kQ8_0:
        for (size_t b = 0; b < n / kBlockElements; ++b) {
          Q8BlockToFloats(first + b * kQ8Bytes, out + b * kBlockElements);
        }
        break;
      case KvType::kQ4_0:
        for (size_t b = 0; b < n / kBlockElements; ++b) {
          Q4BlockToFloats(first + b * kQ4Bytes, out + b * kBlockElements);
        }
        break;
    }
  }
}

// The lengths of n rows.
inline void RowLengths(const SlotRows& rows, const std::byte* first, int32_t n, size_t dim,
                       float* out) {
  const Floats d;
  HWY_ALIGN float row[kMaxHeadDim];
  for (int32_t slot = 0; slot < n; ++slot) {
    RowsToFloats(rows, first + slot * rows.slot_bytes, 1, dim, 0, row);
    V sum = hn::Zero(d);
    for (size_t i = 0; i < dim; i += hn::Lanes(d)) {
      const V x = hn::Load(d, row + i);
      sum = hn::MulAdd(x, x, sum);
    }
    out[slot] = std::sqrt(hn::GetLane(hn::SumOfLanes(d, sum)));
  }
}

// n floats up to whole vectors, as rows of buffers have them.
HWY_INLINE size_t WholeVectors(size_t n) { return hwy::RoundUpTo(n, hn::Lanes(Floats())); }

struct RankRange {
  int32_t least, greatest;
};

HWY_INLINE RankRange RanksOf(const AttentionTask& task, int32_t first, int32_t n) {
  if (task.ranks == nullptr) return {task.first + first, task.first + first + n - 1};
  const auto [least, greatest] = std::minmax_element(task.ranks + first, task.ranks + first + n);
  return {*least, *greatest};
}

HWY_INLINE int32_t RankOf(const AttentionTask& task, int32_t slot) {
  return task.ranks == nullptr ? task.first + slot : task.ranks[slot];
}

}  // namespace HWY_NAMESPACE
}  // namespace kvbound
HWY_AFTER_NAMESPACE();

#endif  // KVBOUND_KERNELS_ATTENTION_ROWS_INL_H_
