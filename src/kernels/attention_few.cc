#include <algorithm>
#include <array>
#include <cstring>

#include "kernels/attention_task.h"

// Compiled once for each instruction set; the best one that the CPU has is taken at run time.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/attention_few.cc"
#include <hwy/foreach_target.h>
// After it:
#include <hwy/cache_control.h>
#include <hwy/contrib/math/math-inl.h>
#include <hwy/highway.h>

#include "kernels/attention_rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kvbound {
namespace HWY_NAMESPACE {

// Rows that the kernels for few queries can read: as they are, or turned into floats.
struct ReadableRows {
  KvType type;
  const std::byte* data;
  size_t stride;        // bytes
  const float* scales;  // q8_0: of the blocks of every row
  size_t n_block;       // of a row
};

// The scales of all blocks of q8_0 rows, converted many at a time.
void ReadScales(const SlotRows& rows, const std::byte* first, size_t n_row, size_t n_block,
                float* scales) {
  HWY_ALIGN std::array<uint16_t, kFewRowsRange * kMaxHeadDim / kBlockElements> halves;
  uint16_t* to = halves.data();
  for (size_t r = 0; r < n_row; ++r, first += rows.slot_bytes) {
    for (size_t b = 0; b < n_block; ++b) std::memcpy(to++, first + b * kQ8Bytes, sizeof(*to));
  }
  const size_t n = n_row * n_block;
  const auto* bytes = reinterpret_cast<const std::byte*>(halves.data());
  for (size_t i = 0; i < n; i += hn::Lanes(Floats())) {
    hn::StoreU(F16Row::At(bytes, i), Floats(), scales + i);
  }
}

HWY_INLINE ReadableRows Readable(const SlotRows& rows, const std::byte* first, size_t n_row,
                                 size_t n, size_t stride, float* buffer) {
  const bool whole = n % hn::Lanes(Floats()) == 0;
  if (rows.type == KvType::kQ8_0 && whole) {
    ReadScales(rows, first, n_row, n / kBlockElements, buffer);
    return {rows.type, first, rows.slot_bytes, buffer, n / kBlockElements};
  }
  if (whole && rows.type != KvType::kQ4_0) return {rows.type, first, rows.slot_bytes, nullptr, 0};
  RowsToFloats(rows, first, n_row, n, stride, buffer);
  return {KvType::kF32, reinterpret_cast<const std::byte*>(buffer), stride * sizeof(float), nullptr,
          0};
}

// Vectors of a row, from the element whose place `offset` is; `scale` is the number of its block's
// scale. Places are worked out once for many rows.
template <class Row, size_t kElementBytes>
struct FloatRows {
  static HWY_INLINE size_t Offset(size_t i) { return i * kElementBytes; }
  static HWY_INLINE V At(const ReadableRows&, const std::byte* row, size_t offset, size_t) {
    return Row::At(row + offset, 0);
  }
};
struct Q8Rows {
  static HWY_INLINE size_t Offset(size_t i) {
    return i / kBlockElements * kQ8Bytes + 2 + i % kBlockElements;
  }
  static HWY_INLINE V At(const ReadableRows& rows, const std::byte* row, size_t offset,
                         size_t scale) {
    const hn::Rebind<int8_t, Floats> d8;
    const auto q = hn::LoadU(d8, reinterpret_cast<const int8_t*>(row + offset));
    return FromInts(hn::PromoteTo(Ints(), q), hn::Set(Floats(), rows.scales[scale]));
  }
};

// out[i] = the sum of the lanes of x[i].
#if HWY_TARGET == HWY_SCALAR
HWY_INLINE void SumsOfFour(const V (&x)[4], float* out) {
  for (int i = 0; i < 4; ++i) out[i] = hn::GetLane(x[i]);
}
#else
template <class D, class Vec>
HWY_INLINE auto SumOf128BitBlocks(D d, Vec x) {
  if constexpr (hn::MaxLanes(D()) <= 4) {
    return x;
  } else {
    const hn::Half<D> half;
    return SumOf128BitBlocks(half, hn::Add(hn::LowerHalf(half, x), hn::UpperHalf(half, x)));
  }
}

HWY_INLINE void SumsOfFour(const V (&x)[4], float* out) {
  const Floats d;
  const hn::RepartitionToWide<Floats> pairs;
  const V a = hn::Add(hn::InterleaveLower(d, x[0], x[1]), hn::InterleaveUpper(d, x[0], x[1]));
  const V b = hn::Add(hn::InterleaveLower(d, x[2], x[3]), hn::InterleaveUpper(d, x[2], x[3]));
  const auto a2 = hn::BitCast(pairs, a), b2 = hn::BitCast(pairs, b);
  const V sums = hn::Add(hn::BitCast(d, hn::InterleaveLower(pairs, a2, b2)),
                         hn::BitCast(d, hn::InterleaveUpper(pairs, a2, b2)));
  hn::StoreU(SumOf128BitBlocks(d, sums), hn::CappedTag<float, 4>(), out);
}
#endif

// Rows that are read after those being worked on. Short ranges of K and V in turn leave hardware
// prefetchers behind, so each range asks for the next. Past the end of memory it does no harm.
struct Ahead {
  const std::byte* row;
  size_t bytes;

  HWY_INLINE void Prefetch(int32_t slot) const {
    for (size_t i = 0; i < bytes; i += kCacheLine) hwy::Prefetch(row + slot * bytes + i);
  }
  static constexpr size_t kCacheLine = 64;
};

// logits[r, slot] of kRows queries q [kRows, dim] with n keys; rows of kFewRowsRange.
template <class Rows, int kRows>
void Logits(const float* q, size_t dim, const ReadableRows& keys, int32_t n, const Ahead& ahead,
            float* logits) {
  const Floats d;
  for (int32_t slot = 0; slot < n; slot += 4) {
    const std::byte* row[4];
    size_t scale[4];
    for (int32_t s = 0; s < 4; ++s) {
      const size_t at = std::min(slot + s, n - 1);
      row[s] = keys.data + at * keys.stride;
      scale[s] = at * keys.n_block;
      ahead.Prefetch(slot + s);
    }
    V sum[kRows][4];
    for (int r = 0; r < kRows; ++r) {
      for (int s = 0; s < 4; ++s) sum[r][s] = hn::Zero(d);
    }
    for (size_t i = 0; i < dim; i += hn::Lanes(d)) {
      const size_t offset = Rows::Offset(i), block = i / kBlockElements;
      const V k0 = Rows::At(keys, row[0], offset, scale[0] + block);
      const V k1 = Rows::At(keys, row[1], offset, scale[1] + block);
      const V k2 = Rows::At(keys, row[2], offset, scale[2] + block);
      const V k3 = Rows::At(keys, row[3], offset, scale[3] + block);
      for (int r = 0; r < kRows; ++r) {
        const V x = hn::LoadU(d, q + r * dim + i);
        sum[r][0] = hn::MulAdd(x, k0, sum[r][0]);
        sum[r][1] = hn::MulAdd(x, k1, sum[r][1]);
        sum[r][2] = hn::MulAdd(x, k2, sum[r][2]);
        sum[r][3] = hn::MulAdd(x, k3, sum[r][3]);
      }
    }
    for (int r = 0; r < kRows; ++r) SumsOfFour(sum[r], logits + r * kFewRowsRange + slot);
  }
}

// values[r, i] = sum of weights[r, slot] v[slot, i], i in [first, first + kVecs vectors).
template <class Rows, int kRows, int kVecs>
HWY_INLINE void SumColumns(const float* weights, const ReadableRows& rows, int32_t n, size_t first,
                           size_t dim, const Ahead& ahead, float* values) {
  const Floats d;
  const size_t lanes = hn::Lanes(d);
  V sum[kRows][kVecs];
  for (int r = 0; r < kRows; ++r) {
    for (int c = 0; c < kVecs; ++c) sum[r][c] = hn::Zero(d);
  }
  size_t offset[kVecs], scale[kVecs];
  for (int c = 0; c < kVecs; ++c) {
    offset[c] = Rows::Offset(first + c * lanes);
    scale[c] = (first + c * lanes) / kBlockElements;
  }
  const std::byte* row = rows.data;
  for (int32_t slot = 0; slot < n; ++slot, row += rows.stride) {
    if (first == 0) ahead.Prefetch(slot);
    V x[kVecs];
    for (int c = 0; c < kVecs; ++c) {
      x[c] = Rows::At(rows, row, offset[c], scale[c]);
      scale[c] += rows.n_block;
    }
    for (int r = 0; r < kRows; ++r) {
      const V w = hn::Set(d, weights[r * kFewRowsRange + slot]);
      for (int c = 0; c < kVecs; ++c) sum[r][c] = hn::MulAdd(w, x[c], sum[r][c]);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int c = 0; c < kVecs; ++c) hn::StoreU(sum[r][c], d, values + r * dim + first + c * lanes);
  }
}

template <class Rows, int kRows>
void WeightedSums(const float* weights, const ReadableRows& rows, int32_t n, size_t dim,
                  const Ahead& ahead, float* values) {
  const size_t lanes = hn::Lanes(Floats());
  size_t i = 0;
  for (; i + 4 * lanes <= dim; i += 4 * lanes) {
    SumColumns<Rows, kRows, 4>(weights, rows, n, i, dim, ahead, values);
  }
  for (; i + 2 * lanes <= dim; i += 2 * lanes) {
    SumColumns<Rows, kRows, 2>(weights, rows, n, i, dim, ahead, values);
  }
  for (; i < dim; i += lanes) SumColumns<Rows, kRows, 1>(weights, rows, n, i, dim, ahead, values);
}

// Calls body.operator()<Rows, kRows>(first_row) for all rows in groups of at most four.
template <class Rows, class Body>
HWY_INLINE void ForGroups(int32_t n_row, const Body& body) {
  int32_t r = 0;
  for (; r + 4 <= n_row; r += 4) body.template operator()<Rows, 4>(r);
  switch (n_row - r) {
    case 3:
      return body.template operator()<Rows, 3>(r);
    case 2:
      return body.template operator()<Rows, 2>(r);
    case 1:
      return body.template operator()<Rows, 1>(r);
    default:
      return;
  }
}

template <class Body>
HWY_INLINE void ForRows(KvType type, int32_t n_row, const Body& body) {
  switch (type) {
    case KvType::kF16:
      return ForGroups<FloatRows<F16Row, 2>>(n_row, body);
    case KvType::kBF16:
      return ForGroups<FloatRows<Bf16Row, 2>>(n_row, body);
    case KvType::kQ8_0:
      return ForGroups<Q8Rows>(n_row, body);
    default:
      return ForGroups<FloatRows<F32Row, 4>>(n_row, body);
  }
}

// Replaces logits by exp(logit - max), up to whole vectors; max and sum of the row.
void Softmax(float* logits, int32_t n, float* max_out, float* sum_out) {
  const Floats d;
  const int32_t lanes = static_cast<int32_t>(hn::Lanes(d));
  const int32_t padded = (n + lanes - 1) / lanes * lanes;
  std::fill(logits + n, logits + padded, kHidden);
  V max = hn::Set(d, kNoLogit);
  for (int32_t i = 0; i < padded; i += lanes) max = hn::Max(max, hn::LoadU(d, logits + i));
  max = hn::MaxOfLanes(d, max);
  V sum = hn::Zero(d), nan = hn::Zero(d);
  for (int32_t i = 0; i < padded; i += lanes) {
    const V x = hn::LoadU(d, logits + i);
    const V weight = hn::Exp(d, hn::Sub(x, max));
    nan = hn::MulAdd(x, hn::Zero(d), nan);  // Max and Exp may lose one
    sum = hn::Add(sum, weight);
    hn::StoreU(weight, d, logits + i);
  }
  *max_out = hn::GetLane(max);
  *sum_out = hn::GetLane(hn::SumOfLanes(d, hn::Add(sum, nan)));
}

// Hides what row r does not see.
HWY_INLINE void HideFromRow(const AttentionTask& task, int32_t r, float* logits) {
  for (int32_t slot = 0; slot < task.n_slot; ++slot) {
    const int32_t rank = RankOf(task, slot);
    if (rank < task.begin[r] || rank >= task.end[r]) logits[slot] = kHidden;
  }
}

void FewRows(const AttentionCall& call, const AttentionTask& task) {
  if (task.n_slot == 0) {
    std::fill_n(task.part.max, task.n_row, kNoLogit);
    std::fill_n(task.part.sum, task.n_row, 0.0f);
    return;
  }
  if (task.value_length != nullptr) {
    RowLengths(call.v, task.v, task.n_slot, call.shape.head_dim, task.value_length);
  }
  const size_t head_dim = call.shape.head_dim, dim = PaddedDim(head_dim);
  const int32_t n = task.n_slot;
  HWY_ALIGN float q[kFewRows * kMaxHeadDim];
  for (int32_t r = 0; r < task.n_row; ++r) {
    const float* from = task.q + task.rows[r];
    for (size_t i = 0; i < head_dim; ++i) q[r * dim + i] = from[i] * call.scale;
    std::fill(q + r * dim + head_dim, q + (r + 1) * dim, 0.0f);
  }
  HWY_ALIGN float own_weights[kFewRows * kFewRowsRange];
  float* weights = task.part.weights == nullptr ? own_weights : task.part.weights;
  HWY_ALIGN float values[kFewRows * kMaxHeadDim];
  HWY_ALIGN float buffer[kFewRowsRange * kMaxHeadDim];

  const Ahead values_ahead{task.v, call.v.slot_bytes};
  const Ahead keys_ahead{task.k + kFewRowsRange * call.k.slot_bytes, call.k.slot_bytes};
  const ReadableRows keys = Readable(call.k, task.k, n, head_dim, dim, buffer);
  ForRows(keys.type, task.n_row, [&]<class Rows, int kRows>(int32_t r) {
    Logits<Rows, kRows>(q + r * dim, dim, keys, n, values_ahead, weights + r * kFewRowsRange);
  });
  const RankRange ranks = RanksOf(task, 0, n);
  for (int32_t r = 0; r < task.n_row; ++r) {
    float* logits = weights + r * kFewRowsRange;
    if (ranks.least < task.begin[r] || ranks.greatest >= task.end[r]) HideFromRow(task, r, logits);
    Softmax(logits, n, &task.part.max[r], &task.part.sum[r]);
  }
  const ReadableRows rows = Readable(call.v, task.v, n, head_dim, dim, buffer);
  ForRows(rows.type, task.n_row, [&]<class Rows, int kRows>(int32_t r) {
    WeightedSums<Rows, kRows>(weights + r * kFewRowsRange, rows, n, dim, keys_ahead,
                              values + r * dim);
  });
  for (int32_t r = 0; r < task.n_row; ++r) {
    std::copy_n(values + r * dim, head_dim, task.part.values + r * head_dim);
  }
}

const char* Target() { return hwy::TargetName(HWY_TARGET); }

}  // namespace HWY_NAMESPACE
}  // namespace kvbound
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvbound {

HWY_EXPORT(FewRows);
HWY_EXPORT(Target);

void AttendFewRows(const AttentionCall& call, const AttentionTask& task) {
  HWY_DYNAMIC_DISPATCH(FewRows)(call, task);
}

const char* AttentionTarget() { return HWY_DYNAMIC_DISPATCH(Target)(); }

}  // namespace kvbound
#endif  // HWY_ONCE
