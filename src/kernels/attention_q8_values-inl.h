// Weighted sums of q8_0 values for few queries, in integers (see short-inl.h). Included by a file
// that foreach_target.h compiles once for each.
#if defined(KVBOUND_KERNELS_ATTENTION_Q8_VALUES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KVBOUND_KERNELS_ATTENTION_Q8_VALUES_INL_H_
#undef KVBOUND_KERNELS_ATTENTION_Q8_VALUES_INL_H_
#else
#define KVBOUND_KERNELS_ATTENTION_Q8_VALUES_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/short-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kvbound {
namespace HWY_NAMESPACE {

#if KVBOUND_Q8_IN_INTEGERS

// Elements of a row as short integers.
HWY_INLINE VS Bytes(const std::byte* at) {
  const hn::Rebind<int8_t, Shorts> d8;
  return hn::PromoteTo(Shorts(), hn::LoadU(d8, reinterpret_cast<const int8_t*>(at)));
}

// Weights times the scales of V's blocks in 16 bits. A weight is at most 1.
class ShortWeights {
 public:
  // weights: [n_row, kFewRowsRange], zero from n up to whole vectors.
  void Round(const float* weights, int32_t n_row, const SlotRows& rows, const std::byte* first,
             int32_t n, size_t n_block, Ahead& ahead) {
    const Floats d;
    const int32_t lanes = hn::Lanes(d);
    HWY_ALIGN float scales[kMaxBlocks][kFewRowsRange];
    float to_shorts[kMaxBlocks];
    for (size_t b = 0; b < n_block; ++b) {
      const ShortFactors factors =
          ReadScales(rows, first + b * kQ8Bytes, n, n_block, ahead, scales[b]);
      back[b] = factors.Back();
      to_shorts[b] = factors.To();
    }
    constexpr int32_t kStep = 64;  // slots between requests
    const size_t due = ahead.Due(kStep, kQ8WeightsShare, n_block * n_row);
    for (size_t b = 0; b < n_block; ++b) {
      const V to = hn::Set(d, to_shorts[b]);
      for (int32_t slot = 0; slot < n; slot += lanes) {
        hn::Store(hn::Mul(hn::Load(d, scales[b] + slot), to), d, scales[b] + slot);
      }
      for (int32_t r = 0; r < n_row; ++r) {
        const float* weight = weights + r * kFewRowsRange;
        for (int32_t slot = 0; slot < n; slot += lanes) {
          if (slot % kStep == 0) ahead.Fetch(due);
          StoreShorts(hn::LoadU(d, weight + slot), hn::Load(d, scales[b] + slot),
                      of_row_[r][b] + slot);
        }
      }
    }
  }
  // Those of slots `slot` and the next one.
  HWY_INLINE VS Pair(int32_t r, size_t b, int32_t slot) const {
    return PairAt(of_row_[r][b] + slot);
  }

  float back[kMaxBlocks];  // factors to floats

 private:
  // Scales of one block of n rows; zero up to whole vectors.
  static ShortFactors ReadScales(const SlotRows& rows, const std::byte* at, int32_t n,
                                 size_t n_block, Ahead& ahead, float* scales) {
    HWY_ALIGN uint16_t halves[kFewRowsRange];
    constexpr int32_t kStep = 32;  // slots between requests
    const size_t due = ahead.Due(kStep, kQ8ScalesShare, n_block);
    int32_t slot = 0;
    for (; slot + 8 <= n; slot += 8) {
      if (slot % kStep == 0) ahead.Fetch(due);
      for (int32_t s = 0; s < 8; ++s, at += rows.slot_bytes) {
        std::memcpy(&halves[slot + s], at, sizeof(uint16_t));
      }
    }
    for (; slot < n; ++slot, at += rows.slot_bytes) {
      std::memcpy(&halves[slot], at, sizeof(uint16_t));
    }
    const int32_t padded = static_cast<int32_t>(WholeVectors(n));
    std::fill(halves + n, halves + padded, uint16_t{0});
    ShortFactors factors;
    for (int32_t i = 0; i < padded; i += hn::Lanes(Floats())) {
      const V scale = F16Row::At(reinterpret_cast<const std::byte*>(halves), i);
      factors.Add(scale);
      hn::Store(scale, Floats(), scales + i);
    }
    return factors;
  }

  HWY_ALIGN int16_t of_row_[kFewRows][kMaxBlocks][kFewRowsRange];
};

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
  // Two rows, the last may have no neighbour: its weight is zero.
  const auto add = [&](int32_t slot, const std::byte* row, const std::byte* next) HWY_ATTR {
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
  };
  const size_t step = rows.slot_bytes;
  const std::byte* row = first + block * kQ8Bytes + 2;
  const size_t due = ahead.Due(4, kQ8SumsShare, dim / (kBlocks * kBlockElements));
  int32_t slot = 0;
  for (; slot + 4 <= n; slot += 4, row += 4 * step) {
    ahead.Fetch(due);
    add(slot, row, row + step);
    add(slot + 2, row + 2 * step, row + 3 * step);
  }
  for (; slot < n; slot += 2, row += 2 * step) add(slot, row, slot + 1 < n ? row + step : row);
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

void AllQ8Sums(const float* weights, const AttentionTask& task, const SlotRows& v, size_t head_dim,
               Ahead& ahead, float* values) {
  const size_t n_block = head_dim / kBlockElements;
  ShortWeights rounded;
  rounded.Round(weights, task.n_row, v, task.v, task.n_slot, n_block, ahead);
  ForGroups(task.n_row, [&]<int kRows>(int32_t r) {
    const auto sums_of = HasVnni() ? Q8AllBlocks<true, kRows> : Q8AllBlocks<false, kRows>;
    sums_of(rounded, r, n_block, v, task.v, task.n_slot, ahead, values + r * head_dim);
  });
}

#else

void AllQ8Sums(const float*, const AttentionTask&, const SlotRows&, size_t, Ahead&, float*) {}

#endif

}  // namespace HWY_NAMESPACE
}  // namespace kvbound
HWY_AFTER_NAMESPACE();

#endif  // KVBOUND_KERNELS_ATTENTION_Q8_VALUES_INL_H_
