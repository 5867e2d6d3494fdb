#include <algorithm>

#include "kernels/attention_task.h"

// Compiled once for each instruction set; the best one that the CPU has is taken at run time.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/attention_few.cc"
#include <hwy/foreach_target.h>
// After it:
#include <hwy/highway.h>

#include "kernels/attention_few-inl.h"
#include "kernels/attention_q8_keys-inl.h"
#include "kernels/attention_q8_values-inl.h"
#include "kernels/attention_rows-inl.h"
#include "kernels/exp-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kvbound {
namespace HWY_NAMESPACE {

// Of all work, see Ahead.
constexpr size_t kLogitsShare = 18, kSoftmaxShare = 2, kSumsShare = 12;

// n_row rows of n elements that the kernels for few queries can read: as they are, or turned into
// floats.
struct ReadableRows {
  ReadableRows(const SlotRows& rows, const std::byte* first, size_t n_row, size_t n)
      : type(rows.type), data(first), stride(rows.slot_bytes) {
    const bool blocks = rows.type == KvType::kQ8_0 || rows.type == KvType::kQ4_0;
    if (n % hn::Lanes(Floats()) == 0 && !blocks) return;
    RowsToFloats(rows, first, n_row, n, WholeVectors(n), floats);
    type = KvType::kF32;
    data = reinterpret_cast<const std::byte*>(floats);
    stride = WholeVectors(n) * sizeof(float);
  }

  KvType type;
  const std::byte* data;
  size_t stride;  // bytes
  HWY_ALIGN float floats[kFewRowsRange * kMaxHeadDim];
};

// logits[r, slot] of kRows queries q [kRows, dim] with n keys; rows of kFewRowsRange.
template <class Row, int kRows>
void Logits(const float* q, size_t dim, const ReadableRows& keys, int32_t n, Ahead& ahead,
            float* logits) {
  const Floats d;
  const size_t due = ahead.Due(4, kLogitsShare, dim / hn::Lanes(d));
  for (int32_t slot = 0; slot < n; slot += 4) {
    const std::byte* row[4];
    for (int32_t s = 0; s < 4; ++s) {
      const size_t at = std::min(slot + s, n - 1);
      row[s] = keys.data + at * keys.stride;
    }
    V sum[kRows][4];
    for (int r = 0; r < kRows; ++r) {
      for (int s = 0; s < 4; ++s) sum[r][s] = hn::Zero(d);
    }
    for (size_t i = 0; i < dim; i += hn::Lanes(d)) {
      ahead.Fetch(due);
      const V k0 = Row::At(row[0], i);
      const V k1 = Row::At(row[1], i);
      const V k2 = Row::At(row[2], i);
      const V k3 = Row::At(row[3], i);
      for (int r = 0; r < kRows; ++r) {
        const V x = hn::LoadU(d, q + r * dim + i);
        sum[r][0] = hn::MulAdd(x, k0, sum[r][0]);
        sum[r][1] = hn::MulAdd(x, k1, sum[r][1]);
        sum[r][2] = hn::MulAdd(x, k2, sum[r][2]);
        sum[r][3] = hn::MulAdd(x, k3, sum[r][3]);
      }
    }
    for (int r = 0; r < kRows; ++r) {
      float* to = logits + r * kFewRowsRange + slot;
#if HWY_TARGET == HWY_SCALAR
      for (int s = 0; s < 4; ++s) to[s] = hn::GetLane(sum[r][s]);
#else
      hn::StoreU(SumOf128BitBlocks(d, SumsOfFour(d, sum[r])), hn::CappedTag<float, 4>(), to);
#endif
    }
  }
}

// values[r, i] = sum of weights[r, slot] v[slot, i], i in [first, first + kVecs vectors).
template <class Row, int kRows, int kVecs>
HWY_INLINE void SumColumns(const float* weights, const ReadableRows& rows, int32_t n, size_t first,
                           size_t dim, Ahead& ahead, float* values) {
  const Floats d;
  const size_t lanes = hn::Lanes(d);
  V sum[kRows][kVecs];
  for (int r = 0; r < kRows; ++r) {
    for (int c = 0; c < kVecs; ++c) sum[r][c] = hn::Zero(d);
  }
  const std::byte* row = rows.data;
  constexpr int32_t kStep = 4;  // slots between requests
  const size_t due = ahead.Due(kStep, kSumsShare, hwy::DivCeil(dim, kVecs * lanes));
  for (int32_t slot = 0; slot < n; ++slot, row += rows.stride) {
    if (slot % kStep == 0) ahead.Fetch(due);
    V x[kVecs];
    for (int c = 0; c < kVecs; ++c) x[c] = Row::At(row, first + c * lanes);
    for (int r = 0; r < kRows; ++r) {
      const V w = hn::Set(d, weights[r * kFewRowsRange + slot]);
      for (int c = 0; c < kVecs; ++c) sum[r][c] = hn::MulAdd(w, x[c], sum[r][c]);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int c = 0; c < kVecs; ++c) hn::StoreU(sum[r][c], d, values + r * dim + first + c * lanes);
  }
}

template <class Row, int kRows>
void WeightedSums(const float* weights, const ReadableRows& rows, int32_t n, size_t dim,
                  Ahead& ahead, float* values) {
  const size_t lanes = hn::Lanes(Floats());
  size_t i = 0;
  for (; i + 4 * lanes <= dim; i += 4 * lanes) {
    SumColumns<Row, kRows, 4>(weights, rows, n, i, dim, ahead, values);
  }
  for (; i + 2 * lanes <= dim; i += 2 * lanes) {
    SumColumns<Row, kRows, 2>(weights, rows, n, i, dim, ahead, values);
  }
  for (; i < dim; i += lanes) SumColumns<Row, kRows, 1>(weights, rows, n, i, dim, ahead, values);
}

template <class Body>
HWY_INLINE void ForRows(KvType type, int32_t n_row, const Body& body) {
  ForGroups(n_row, [&]<int kRows>(int32_t r) {
    switch (type) {
      case KvType::kF16:
        return body.template operator()<F16Row, kRows>(r);
      case KvType::kBF16:
        return body.template operator()<Bf16Row, kRows>(r);
      default:
        return body.template operator()<F32Row, kRows>(r);
    }
  });
}

// Logits of all rows of a task.
void AllLogits(const AttentionTask& task, const SlotRows& k, size_t head_dim, Ahead& ahead,
               float* logits) {
  const size_t dim = WholeVectors(head_dim);
  const float* q = task.queries->floats;
  const ReadableRows keys(k, task.k, task.n_slot, head_dim);
  ForRows(keys.type, task.n_row, [&]<class Row, int kRows>(int32_t r) {
    Logits<Row, kRows>(q + r * dim, dim, keys, task.n_slot, ahead, logits + r * kFewRowsRange);
  });
}

// Sums of V of all rows of a task, [n_row, padded dim].
void AllSums(const float* weights, const AttentionTask& task, const SlotRows& v, size_t head_dim,
             Ahead& ahead, float* values) {
  const size_t dim = WholeVectors(head_dim);
  const ReadableRows rows(v, task.v, task.n_slot, head_dim);
  ForRows(rows.type, task.n_row, [&]<class Row, int kRows>(int32_t r) {
    WeightedSums<Row, kRows>(weights + r * kFewRowsRange, rows, task.n_slot, dim, ahead,
                             values + r * dim);
  });
}

// Replaces logits by exp(logit - max), up to whole vectors; max and sum of the row.
void Softmax(float* logits, int32_t n, int32_t n_row, Ahead& ahead, float* max_out,
             float* sum_out) {
  const Floats d;
  const int32_t lanes = static_cast<int32_t>(hn::Lanes(d));
  const int32_t padded = static_cast<int32_t>(WholeVectors(n));
  std::fill(logits + n, logits + padded, kHidden);
  V max = hn::Set(d, kNoLogit);
  for (int32_t i = 0; i < padded; i += lanes) max = hn::Max(max, hn::LoadU(d, logits + i));
  max = hn::MaxOfLanes(d, max);
  V sum = hn::Zero(d), nan = hn::Zero(d);
  const size_t due = ahead.Due(lanes, kSoftmaxShare, n_row);
  for (int32_t i = 0; i < padded; i += lanes) {
    ahead.Fetch(due);
    const V x = hn::LoadU(d, logits + i);
    const V weight = ExpUpToZero(hn::Sub(x, max));
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

void Prepare(const AttentionCall& call, const int64_t* rows, int32_t n_row, FewQueries* queries) {
  const size_t head_dim = call.shape.head_dim, dim = WholeVectors(head_dim);
  float* q = queries->floats;
  for (int32_t r = 0; r < n_row; ++r, q += dim) {
    const float* from = call.q + rows[r];
    for (size_t i = 0; i < head_dim; ++i) q[i] = from[i] * call.scale;
    std::fill(q + head_dim, q + dim, 0.0f);
  }
  if (kQ8InIntegers && call.k.type == KvType::kQ8_0) RoundQueries(n_row, head_dim, queries);
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
  const size_t head_dim = call.shape.head_dim, dim = WholeVectors(head_dim);
  const int32_t n = task.n_slot;
  HWY_ALIGN float own_weights[kFewRows * kFewRowsRange];
  float* weights = task.part.weights == nullptr ? own_weights : task.part.weights;
  HWY_ALIGN float values[kFewRows * kMaxHeadDim];

  Ahead ahead(task.v, n * call.v.slot_bytes, task.next_k, n * call.k.slot_bytes, n);
  if (kQ8InIntegers && call.k.type == KvType::kQ8_0) {
    AllQ8Logits(task, call.k, head_dim, ahead, weights);
  } else {
    AllLogits(task, call.k, head_dim, ahead, weights);
  }
  const RankRange ranks = RanksOf(task, 0, n);
  for (int32_t r = 0; r < task.n_row; ++r) {
    float* logits = weights + r * kFewRowsRange;
    if (ranks.least < task.begin[r] || ranks.greatest >= task.end[r]) HideFromRow(task, r, logits);
    Softmax(logits, n, task.n_row, ahead, &task.part.max[r], &task.part.sum[r]);
  }
  if (kQ8InIntegers && call.v.type == KvType::kQ8_0) {
    AllQ8Sums(weights, task, call.v, head_dim, ahead, values);
  } else {
    AllSums(weights, task, call.v, head_dim, ahead, values);
  }
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

HWY_EXPORT(Prepare);
HWY_EXPORT(FewRows);
HWY_EXPORT(Target);

void PrepareFewRows(const AttentionCall& call, const int64_t* rows, int32_t n_row,
                    FewQueries* queries) {
  HWY_DYNAMIC_DISPATCH(Prepare)(call, rows, n_row, queries);
}

void AttendFewRows(const AttentionCall& call, const AttentionTask& task) {
  HWY_DYNAMIC_DISPATCH(FewRows)(call, task);
}

const char* AttentionTarget() { return HWY_DYNAMIC_DISPATCH(Target)(); }

}  // namespace kvbound
#endif  // HWY_ONCE
