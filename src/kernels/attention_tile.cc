#include <algorithm>

#include "kernels/attention_task.h"

// Compiled once for each instruction set; the best one that the CPU has is taken at run time.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/attention_tile.cc"
#include <hwy/foreach_target.h>
// After it:
#include <hwy/highway.h>

#include "kernels/attention_rows-inl.h"
#include "kernels/exp-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kvbound {
namespace HWY_NAMESPACE {

// Vectors of a row of accumulators: 6 rows of them, one row of operands and a broadcast fit the
// registers.
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_SSE4 || HWY_TARGET == HWY_SSSE3
constexpr int kPanel = 2;
#else
constexpr int kPanel = 4;
#endif
constexpr int kMicroRows = 6;

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
      const V weight = ExpUpToZero(hn::Sub(x, max));
      nan = hn::MulAdd(x, hn::Zero(d), nan);
      sum = hn::Add(sum, weight);
      hn::Store(weight, d, column + i * kTileRows);
    }
    const V scale = ExpUpToZero(hn::Sub(old_max, max));
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
  const size_t stride = WholeVectors(dim);
  RowsToFloats(rows, first, n, dim, stride, buffer);
  return {buffer, stride};
}

// Leaves a block's weights for the mass.
void KeepWeights(const Tile& tile, int32_t block, int32_t n, const AttentionPart& part) {
  std::copy_n(tile.weights, n * kTileRows, part.weights + block * kBlock * kTileRows);
  std::copy_n(tile.max, kTileRows, part.block_max + block * kTileRows);
}

void WholeTile(const AttentionCall& call, const AttentionTask& task) {
  if (task.value_length != nullptr) {
    RowLengths(call.v, task.v, task.n_slot, call.shape.head_dim, task.value_length);
  }
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

}  // namespace HWY_NAMESPACE
}  // namespace kvbound
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvbound {

HWY_EXPORT(WholeTile);

void AttendTile(const AttentionCall& call, const AttentionTask& task) {
  HWY_DYNAMIC_DISPATCH(WholeTile)(call, task);
}

}  // namespace kvbound
#endif  // HWY_ONCE
