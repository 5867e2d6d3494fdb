// Few queries over q8_0 rows, in integers (see short-inl.h). Included by a file that
// foreach_target.h compiles once for each.
#if defined(KVBOUND_KERNELS_ATTENTION_Q8_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KVBOUND_KERNELS_ATTENTION_Q8_INL_H_
#undef KVBOUND_KERNELS_ATTENTION_Q8_INL_H_
#else
#define KVBOUND_KERNELS_ATTENTION_Q8_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/short-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kvbound {
namespace HWY_NAMESPACE {

#if KVBOUND_Q8_IN_INTEGERS

constexpr bool kQ8InIntegers = true;

// Queries [n_row, dim] in 16 bits.
struct ShortQueries {
  void Round(const float* q, int32_t n_row, size_t dim) {
    const Floats d;
    for (int32_t r = 0; r < n_row; ++r, q += dim) {
      ShortFactors factors;
      for (size_t i = 0; i < dim; i += hn::Lanes(d)) factors.Add(hn::LoadU(d, q + i));
      back[r] = factors.Back();
      const V to = hn::Set(d, factors.To());
      for (size_t i = 0; i < dim; i += hn::Lanes(d)) {
        StoreShorts(hn::LoadU(d, q + i), to, of_row[r] + i);
      }
    }
  }
  HWY_ALIGN int16_t of_row[kFewRows][kMaxHeadDim];
  float back[kFewRows];
};

// Four logits of each of kRows rows from their products with integers.
template <int kRows>
HWY_INLINE void StoreFour(const V (&sum)[kRows], const ShortQueries& q, int32_t first_row,
                          float* logits) {
  const hn::CappedTag<float, 4> four;
  for (int r = 0; r < kRows; ++r) {
    hn::StoreU(hn::Mul(SumOf128BitBlocks(Floats(), sum[r]), hn::Set(four, q.back[first_row + r])),
               four, logits + r * kFewRowsRange);
  }
}

// logits[r, slot] of kRows queries from row `first_row` on with n keys; rows of kFewRowsRange.
template <int kRows>
void Q8Logits(const ShortQueries& q, int32_t first_row, size_t n_block, const SlotRows& keys,
              const std::byte* first, const BlockScales& scales, int32_t n, Ahead& ahead,
              float* logits) {
  const Floats d;
  const size_t due = ahead.Due(4, kQ8LogitsShare);
  for (int32_t slot = 0; slot < n; slot += 4) {
    const std::byte* row[4];
    for (int32_t s = 0; s < 4; ++s) {
      row[s] = first + std::min(slot + s, n - 1) * keys.slot_bytes + 2;
    }
    ahead.Fetch(due);
    V sum[kRows];
    for (int r = 0; r < kRows; ++r) sum[r] = hn::Zero(d);
    for (size_t b = 0; b < n_block; ++b) {
      VI products[kRows][4];
      for (int r = 0; r < kRows; ++r) {
        for (int s = 0; s < 4; ++s) products[r][s] = hn::Zero(Ints());
      }
      for (size_t i = 0; i < kBlockElements; i += hn::Lanes(Shorts())) {
        const size_t at = b * kQ8Bytes + i;
        const VS k0 = Bytes(row[0] + at), k1 = Bytes(row[1] + at);
        const VS k2 = Bytes(row[2] + at), k3 = Bytes(row[3] + at);
        for (int r = 0; r < kRows; ++r) {
          const VS x = hn::LoadU(Shorts(), q.of_row[first_row + r] + b * kBlockElements + i);
          products[r][0] = AddPairs<false>(x, k0, products[r][0]);
          products[r][1] = AddPairs<false>(x, k1, products[r][1]);
          products[r][2] = AddPairs<false>(x, k2, products[r][2]);
          products[r][3] = AddPairs<false>(x, k3, products[r][3]);
        }
      }
      const V scale = hn::LoadDup128(d, scales.of_block[b] + slot);
      for (int r = 0; r < kRows; ++r) {
        const V product = hn::ConvertTo(d, SumsOfFour(Ints(), products[r]));
        sum[r] = hn::MulAdd(product, scale, sum[r]);
      }
    }
    StoreFour<kRows>(sum, q, first_row, logits + slot);
  }
}

// values[r, i] = sum of weights v[slot, i] for kRows rows from first_row on and kBlocks blocks from
// `block` on.
template <bool kVnni, int kRows, int kBlocks>
void Q8Sums(const ShortWeights& weights, int32_t first_row, size_t block, const SlotRows& rows,
            const std::byte* first, int32_t n, size_t dim, Ahead& ahead, float* values) {
  constexpr size_t kLanes = hn::MaxLanes(Shorts());
  constexpr int kVecs = kBlocks * kBlockElements / kLanes;
  VI low[kRows][kVecs], high[kRows][kVecs];
  for (int r = 0; r < kRows; ++r) {
    for (int c = 0; c < kVecs; ++c) low[r][c] = high[r][c] = hn::Zero(Ints());
  }
  const std::byte* row = first + block * kQ8Bytes + 2;
  const size_t due = ahead.Due(2, kQ8SumsShare, dim / (kBlocks * kBlockElements));
  for (int32_t slot = 0; slot < n; slot += 2, row += 2 * rows.slot_bytes) {
    // The last may have no neighbour; its weight is zero.
    const std::byte* next = row + (slot + 1 < n ? rows.slot_bytes : 0);
    ahead.Fetch(due);
    for (int c = 0; c < kVecs; ++c) {
      const size_t b = c * kLanes / kBlockElements, at = b * kQ8Bytes + c * kLanes % kBlockElements;
      const VS x = Bytes(row + at), y = Bytes(next + at);
      const VS below = hn::InterleaveLower(Shorts(), x, y);
      const VS above = hn::InterleaveUpper(Shorts(), x, y);
      for (int r = 0; r < kRows; ++r) {
        const VS w = weights.Pair(first_row + r, block + b, slot);
        low[r][c] = AddPairs<kVnni>(w, below, low[r][c]);
        high[r][c] = AddPairs<kVnni>(w, above, high[r][c]);
      }
    }
  }
  // Interleaving works within 128 bits: `low` has the first four of each eight elements.
  HWY_ALIGN float first_fours[kLanes / 2], last_fours[kLanes / 2];
  for (int r = 0; r < kRows; ++r) {
    float* to = values + r * dim + block * kBlockElements;
    for (int c = 0; c < kVecs; ++c) {
      const V back = hn::Set(Floats(), weights.back[block + c * kLanes / kBlockElements]);
      hn::Store(FromInts(low[r][c], back), Floats(), first_fours);
      hn::Store(FromInts(high[r][c], back), Floats(), last_fours);
      for (size_t i = 0; i < kLanes / 2; i += 4, to += 8) {
        std::copy_n(first_fours + i, 4, to);
        std::copy_n(last_fours + i, 4, to + 4);
      }
    }
  }
}

template <bool kVnni, int kRows>
void Q8AllBlocks(const ShortWeights& weights, int32_t first_row, size_t n_block,
                 const SlotRows& rows, const std::byte* first, int32_t n, Ahead& ahead,
                 float* values) {
  constexpr int kBlocks = hn::MaxLanes(Floats()) < 16 ? 1 : 2;  // that fit the registers
  const size_t dim = n_block * kBlockElements;
  size_t b = 0;
  for (; b + kBlocks <= n_block; b += kBlocks) {
    Q8Sums<kVnni, kRows, kBlocks>(weights, first_row, b, rows, first, n, dim, ahead, values);
  }
  if (b < n_block) {
    Q8Sums<kVnni, kRows, 1>(weights, first_row, b, rows, first, n, dim, ahead, values);
  }
}

void AllQ8Logits(const float* q, const AttentionTask& task, const SlotRows& k, size_t head_dim,
                 Ahead& ahead, float* logits) {
  const size_t n_block = head_dim / kBlockElements;
  BlockScales scales;
  scales.Read(k, task.k, task.n_slot, n_block, ahead);
  ShortQueries queries;
  queries.Round(q, task.n_row, head_dim);
  ForGroups(task.n_row, [&]<int kRows>(int32_t r) {
    Q8Logits<kRows>(queries, r, n_block, k, task.k, scales, task.n_slot, ahead,
                    logits + r * kFewRowsRange);
  });
}

void AllQ8Sums(const float* weights, const AttentionTask& task, const SlotRows& v, size_t head_dim,
               Ahead& ahead, float* values) {
  const size_t n_block = head_dim / kBlockElements;
  BlockScales scales;
  scales.Read(v, task.v, task.n_slot, n_block, ahead);
  ShortWeights rounded;
  rounded.Round(weights, task.n_row, scales, n_block, task.n_slot, ahead);
  ForGroups(task.n_row, [&]<int kRows>(int32_t r) {
    const auto sums_of = HasVnni() ? Q8AllBlocks<true, kRows> : Q8AllBlocks<false, kRows>;
    sums_of(rounded, r, n_block, v, task.v, task.n_slot, ahead, values + r * head_dim);
  });
}

#else

constexpr bool kQ8InIntegers = false;
void AllQ8Logits(const float*, const AttentionTask&, const SlotRows&, size_t, Ahead&, float*) {}
void AllQ8Sums(const float*, const AttentionTask&, const SlotRows&, size_t, Ahead&, float*) {}

#endif

}  // namespace HWY_NAMESPACE
}  // namespace kvbound
HWY_AFTER_NAMESPACE();

#endif  // KVBOUND_KERNELS_ATTENTION_Q8_INL_H_
