#include "kernels/attention_task.h"

#include <algorithm>
#include <cmath>
#include <cstring>

// Compiled once for each instruction set; the best one that the CPU has is taken at run time.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/attention_task.cc"
#include <hwy/foreach_target.h>
// After it:
#include <hwy/cache_control.h>
#include <hwy/contrib/math/math-inl.h>
#include <hwy/highway.h>

#include "kernels/half-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kvbound {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Floats = hn::ScalableTag<float>;
using Ints = hn::Rebind<int32_t, Floats>;
using V = hn::Vec<Floats>;

// Vectors of a row of accumulators: 6 rows of them, one row of operands and a broadcast fit the
// registers.
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_SSE4 || HWY_TARGET == HWY_SSSE3
constexpr int kPanel = 2;
#else
constexpr int kPanel = 4;
#endif
constexpr int kMicroRows = 6;

// --- rows as floats --------------------------------------------------------------------------

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

constexpr size_t kBlockElements = 32;  // of ggml's q8_0 and q4_0; a block begins with its scale
constexpr size_t kQ8Bytes = 2 + 32, kQ4Bytes = 2 + 16;

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
void RowsToFloats(const SlotRows& rows, const std::byte* first, size_t n_row, size_t n,
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

// Rows that the kernels for few queries can read: as they are, or turned into floats.
struct ReadableRows {
  KvType type;
  const std::byte* data;
  size_t stride;        // bytes
  const float* scales;  // q8_0: of the blocks of every row
  size_t n_block;       // of a row
};

HWY_INLINE ReadableRows Readable(const SlotRows& rows, const std::byte* first, size_t n_row,
                                 size_t n, size_t stride, float* buffer) {
  const bool whole = n % hn::Lanes(Floats()) == 0;
  if (rows.type == KvType::kQ8_0 && whole) {
    const size_t n_block = n / kBlockElements;
    for (size_t r = 0; r < n_row; ++r) {
      for (size_t b = 0; b < n_block; ++b) {
        buffer[r * n_block + b] = HalfAt(first + r * rows.slot_bytes + b * kQ8Bytes);
      }
    }
    return {rows.type, first, rows.slot_bytes, buffer, n_block};
  }
  if (whole && rows.type != KvType::kQ4_0) return {rows.type, first, rows.slot_bytes, nullptr, 0};
  RowsToFloats(rows, first, n_row, n, stride, buffer);
  return {KvType::kF32, reinterpret_cast<const std::byte*>(buffer), stride * sizeof(float), nullptr,
          0};
}

// Vectors of those rows, from element i of a slot on.
template <class Row>
struct FloatRows {
  static HWY_INLINE V At(const ReadableRows& rows, int32_t slot, size_t i) {
    return Row::At(rows.data + slot * rows.stride, i);
  }
};
struct Q8Rows {
  static HWY_INLINE V At(const ReadableRows& rows, int32_t slot, size_t i) {
    const size_t block = i / kBlockElements;
    const hn::Rebind<int8_t, Floats> d8;
    const auto* q = reinterpret_cast<const int8_t*>(rows.data + slot * rows.stride +
                                                    block * kQ8Bytes + 2 + i % kBlockElements);
    return FromInts(hn::PromoteTo(Ints(), hn::LoadU(d8, q)),
                    hn::Set(Floats(), rows.scales[slot * rows.n_block + block]));
  }
};

// Floats from a row to the next in buffers: whole vectors.
HWY_INLINE size_t PaddedDim(size_t n) { return hwy::RoundUpTo(n, hn::Lanes(Floats())); }

// --- which keys are seen ---------------------------------------------------------------------

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

// --- few rows --------------------------------------------------------------------------------

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
    int32_t at[4];
    for (int32_t s = 0; s < 4; ++s) at[s] = std::min(slot + s, n - 1);
    for (int s = 0; s < 4; ++s) ahead.Prefetch(slot + s);
    V sum[kRows][4];
    for (int r = 0; r < kRows; ++r) {
      for (int s = 0; s < 4; ++s) sum[r][s] = hn::Zero(d);
    }
    for (size_t i = 0; i < dim; i += hn::Lanes(d)) {
      const V k0 = Rows::At(keys, at[0], i), k1 = Rows::At(keys, at[1], i);
      const V k2 = Rows::At(keys, at[2], i), k3 = Rows::At(keys, at[3], i);
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
  for (int32_t slot = 0; slot < n; ++slot) {
    if (first == 0) ahead.Prefetch(slot);
    V x[kVecs];
    for (int c = 0; c < kVecs; ++c) x[c] = Rows::At(rows, slot, first + c * lanes);
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
      return ForGroups<FloatRows<F16Row>>(n_row, body);
    case KvType::kBF16:
      return ForGroups<FloatRows<Bf16Row>>(n_row, body);
    case KvType::kQ8_0:
      return ForGroups<Q8Rows>(n_row, body);
    default:
      return ForGroups<FloatRows<F32Row>>(n_row, body);
  }
}

// Replaces logits by exp(logit - max), up to whole vectors; max and sum of the row.
HWY_INLINE void Softmax(float* logits, int32_t n, float* max_out, float* sum_out) {
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

// Squared and summed from the f32 values.
HWY_INLINE void Lengths(const SlotRows& rows, const std::byte* first, int32_t n, size_t dim,
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

void FewRows(const AttentionCall& call, const AttentionTask& task) {
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

// --- tiles -----------------------------------------------------------------------------------
// Queries lie in lanes, so that maxima and sums over keys are plain vector operations.

// c[m, lanes] (+)= sum over k of a[m * a_row + k * a_k] * b[k, lanes], for kRow rows m and kVec
// vectors; rows of b and c are kTileRows long.
template <int kRow, int kVec, bool kAdd>
HWY_INLINE void MicroProduct(const float* a, size_t a_row, size_t a_k, int32_t n_k, const float* b,
                             float* c) {
  const Floats d;
  const size_t lanes = hn::Lanes(d);
  V sum[kRow][kVec];
  for (int r = 0; r < kRow; ++r) {
    for (int v = 0; v < kVec; ++v) {
      sum[r][v] = kAdd ? hn::Load(d, c + r * kTileRows + v * lanes) : hn::Zero(d);
    }
  }
  for (int32_t k = 0; k < n_k; ++k, a += a_k, b += kTileRows) {
    V x[kVec];
    for (int v = 0; v < kVec; ++v) x[v] = hn::Load(d, b + v * lanes);
    for (int r = 0; r < kRow; ++r) {
      const V w = hn::Set(d, a[r * a_row]);
      for (int v = 0; v < kVec; ++v) sum[r][v] = hn::MulAdd(w, x[v], sum[r][v]);
    }
  }
  for (int r = 0; r < kRow; ++r) {
    for (int v = 0; v < kVec; ++v) hn::Store(sum[r][v], d, c + r * kTileRows + v * lanes);
  }
}

template <int kVec, bool kAdd>
void PanelProduct(const float* a, size_t a_row, size_t a_k, int32_t n_row, int32_t n_k,
                  const float* b, float* c) {
  int32_t m = 0;
  for (; m + kMicroRows <= n_row; m += kMicroRows) {
    MicroProduct<kMicroRows, kVec, kAdd>(a + m * a_row, a_row, a_k, n_k, b, c + m * kTileRows);
  }
  for (; m + 2 <= n_row; m += 2) {
    MicroProduct<2, kVec, kAdd>(a + m * a_row, a_row, a_k, n_k, b, c + m * kTileRows);
  }
  if (m < n_row) {
    MicroProduct<1, kVec, kAdd>(a + m * a_row, a_row, a_k, n_k, b, c + m * kTileRows);
  }
}

// c[n_row, n_vec vectors] (+)= a b, as above.
template <bool kAdd>
void Product(const float* a, size_t a_row, size_t a_k, int32_t n_row, int32_t n_k, const float* b,
             int32_t n_vec, float* c) {
  const size_t lanes = hn::Lanes(Floats());
  int32_t v = 0;
  for (; v + kPanel <= n_vec; v += kPanel) {
    PanelProduct<kPanel, kAdd>(a, a_row, a_k, n_row, n_k, b + v * lanes, c + v * lanes);
  }
  switch (n_vec - v) {
    case 3:
      return PanelProduct<3, kAdd>(a, a_row, a_k, n_row, n_k, b + v * lanes, c + v * lanes);
    case 2:
      return PanelProduct<2, kAdd>(a, a_row, a_k, n_row, n_k, b + v * lanes, c + v * lanes);
    case 1:
      return PanelProduct<1, kAdd>(a, a_row, a_k, n_row, n_k, b + v * lanes, c + v * lanes);
    default:
      return;
  }
}

struct Tile {
  HWY_ALIGN float q[kMaxHeadDim * kTileRows];       // [head_dim, rows], scaled
  HWY_ALIGN float values[kMaxHeadDim * kTileRows];  // [head_dim, rows]
  HWY_ALIGN float weights[kBlock * kTileRows];      // [slots, rows]
  HWY_ALIGN float max[kTileRows];
  HWY_ALIGN float sum[kTileRows];
  HWY_ALIGN int32_t begin[kTileRows];
  HWY_ALIGN int32_t end[kTileRows];
  HWY_ALIGN float buffer[kBlock * kMaxHeadDim];  // keys, then values of a block
};

// Hides the keys of a block from the rows that do not see them.
void HideFromTile(const AttentionTask& task, int32_t first, int32_t n, int32_t n_vec,
                  const Tile& tile, float* logits) {
  const Floats d;
  const Ints di;
  const size_t lanes = hn::Lanes(d);
  for (int32_t v = 0; v < n_vec; ++v) {
    const auto begin = hn::Load(di, tile.begin + v * lanes);
    const auto end = hn::Load(di, tile.end + v * lanes);
    for (int32_t i = 0; i < n; ++i) {
      float* at = logits + i * kTileRows + v * lanes;
      const auto rank = hn::Set(di, RankOf(task, first + i));
      const auto hidden = hn::Or(hn::Lt(rank, begin), hn::Not(hn::Lt(rank, end)));
      const V x = hn::Load(d, at);
      hn::Store(hn::IfThenElse(hn::RebindMask(d, hidden), hn::Set(d, kHidden), x), d, at);
    }
  }
}

// Takes a block of logits into the running maxima and sums, replaces them by weights, and scales
// what has been summed up so far.
void SoftmaxOfTile(int32_t n, int32_t n_vec, int32_t head_dim, Tile* tile) {
  const Floats d;
  const size_t lanes = hn::Lanes(d);
  for (int32_t v = 0; v < n_vec; ++v) {
    float* column = tile->weights + v * lanes;
    const V old_max = hn::Load(d, tile->max + v * lanes);
    V max = old_max;
    for (int32_t i = 0; i < n; ++i) max = hn::Max(max, hn::Load(d, column + i * kTileRows));
    V sum = hn::Zero(d), nan = hn::Zero(d);
    for (int32_t i = 0; i < n; ++i) {
      const V x = hn::Load(d, column + i * kTileRows);
      const V weight = hn::Exp(d, hn::Sub(x, max));
      nan = hn::MulAdd(x, hn::Zero(d), nan);
      sum = hn::Add(sum, weight);
      hn::Store(weight, d, column + i * kTileRows);
    }
    const V scale = hn::Exp(d, hn::Sub(old_max, max));
    const V old_sum = hn::Load(d, tile->sum + v * lanes);
    hn::Store(hn::MulAdd(old_sum, scale, hn::Add(sum, nan)), d, tile->sum + v * lanes);
    hn::Store(max, d, tile->max + v * lanes);
    if (hn::AllTrue(d, hn::Eq(old_max, max))) continue;
    for (int32_t i = 0; i < head_dim; ++i) {
      float* at = tile->values + i * kTileRows + v * lanes;
      hn::Store(hn::Mul(hn::Load(d, at), scale), d, at);
    }
  }
}

void EnterTile(const AttentionCall& call, const AttentionTask& task, Tile* tile) {
  const int32_t head_dim = call.shape.head_dim;
  for (int32_t r = 0; r < task.n_row; ++r) {
    const float* from = task.q + task.rows[r];
    for (int32_t i = 0; i < head_dim; ++i) tile->q[i * kTileRows + r] = from[i] * call.scale;
  }
  for (int32_t i = 0; i < head_dim; ++i) {
    std::fill(tile->q + i * kTileRows + task.n_row, tile->q + (i + 1) * kTileRows, 0.0f);
  }
  std::fill_n(tile->values, head_dim * kTileRows, 0.0f);
  std::fill_n(tile->max, kTileRows, kNoLogit);
  std::fill_n(tile->sum, kTileRows, 0.0f);
  std::fill_n(tile->begin, kTileRows, 0);
  std::fill_n(tile->end, kTileRows, 0);
  std::copy_n(task.begin, task.n_row, tile->begin);
  std::copy_n(task.end, task.n_row, tile->end);
}

// Rows of floats, and the elements from one to the next.
struct BlockRows {
  const float* data;
  size_t stride;
};
BlockRows ReadBlock(const SlotRows& rows, const std::byte* first, int32_t n, size_t dim,
                    float* buffer) {
  if (rows.type == KvType::kF32) {
    return {reinterpret_cast<const float*>(first), rows.slot_bytes / sizeof(float)};
  }
  const size_t stride = PaddedDim(dim);
  RowsToFloats(rows, first, n, dim, stride, buffer);
  return {buffer, stride};
}

// Leaves a block's weights for the mass.
void KeepWeights(const Tile& tile, int32_t block, int32_t n, const AttentionPart& part) {
  std::copy_n(tile.weights, n * kTileRows, part.weights + block * kBlock * kTileRows);
  std::copy_n(tile.max, kTileRows, part.block_max + block * kTileRows);
}

void WholeTile(const AttentionCall& call, const AttentionTask& task) {
  const int32_t head_dim = call.shape.head_dim;
  const int32_t n_vec = static_cast<int32_t>(hwy::DivCeil<size_t>(task.n_row, hn::Lanes(Floats())));
  Tile tile;
  EnterTile(call, task, &tile);
  const auto [min_begin, max_begin] = std::minmax_element(task.begin, task.begin + task.n_row);
  const auto [min_end, max_end] = std::minmax_element(task.end, task.end + task.n_row);
  for (int32_t first = 0; first < task.n_slot; first += kBlock) {
    const int32_t n = std::min(kBlock, task.n_slot - first);
    const RankRange ranks = RanksOf(task, first, n);
    if (ranks.greatest < *min_begin || ranks.least >= *max_end) {  // nobody sees any of it
      if (task.part.weights == nullptr) continue;
      std::fill_n(tile.weights, n * kTileRows, 0.0f);
      KeepWeights(tile, first / kBlock, n, task.part);
      continue;
    }
    const BlockRows keys =
        ReadBlock(call.k, task.k + first * call.k.slot_bytes, n, head_dim, tile.buffer);
    Product<false>(keys.data, keys.stride, 1, n, head_dim, tile.q, n_vec, tile.weights);
    if (ranks.least < *max_begin || ranks.greatest >= *min_end) {
      HideFromTile(task, first, n, n_vec, tile, tile.weights);
    }
    SoftmaxOfTile(n, n_vec, head_dim, &tile);
    if (task.part.weights != nullptr) KeepWeights(tile, first / kBlock, n, task.part);
    const BlockRows rows =
        ReadBlock(call.v, task.v + first * call.v.slot_bytes, n, head_dim, tile.buffer);
    Product<true>(rows.data, 1, rows.stride, head_dim, n, tile.weights, n_vec, tile.values);
  }
  std::copy_n(tile.max, task.n_row, task.part.max);
  std::copy_n(tile.sum, task.n_row, task.part.sum);
  for (int32_t r = 0; r < task.n_row; ++r) {
    float* to = task.part.values + int64_t{r} * head_dim;
    for (int32_t i = 0; i < head_dim; ++i) to[i] = tile.values[i * kTileRows + r];
  }
}

// --- entry -----------------------------------------------------------------------------------

void Compute(const AttentionCall& call, const AttentionTask& task, bool tile) {
  if (task.value_length != nullptr) {
    Lengths(call.v, task.v, task.n_slot, call.shape.head_dim, task.value_length);
  }
  if (tile) return WholeTile(call, task);
  if (task.n_slot > 0) return FewRows(call, task);
  std::fill_n(task.part.max, task.n_row, kNoLogit);
  std::fill_n(task.part.sum, task.n_row, 0.0f);
}

const char* Target() { return hwy::TargetName(HWY_TARGET); }

}  // namespace HWY_NAMESPACE
}  // namespace kvbound
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvbound {

HWY_EXPORT(Compute);
HWY_EXPORT(Target);

void AttendFewRows(const AttentionCall& call, const AttentionTask& task) {
  HWY_DYNAMIC_DISPATCH(Compute)(call, task, false);
}

void AttendTile(const AttentionCall& call, const AttentionTask& task) {
  HWY_DYNAMIC_DISPATCH(Compute)(call, task, true);
}

const char* AttentionTarget() { return HWY_DYNAMIC_DISPATCH(Target)(); }

}  // namespace kvbound
#endif  // HWY_ONCE
