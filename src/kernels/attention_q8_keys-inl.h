// Logits of few queries with q8_0 keys, in integers (see short-inl.h). Included by a file that
// foreach_target.h compiles once for each.
#if defined(KVBOUND_KERNELS_ATTENTION_Q8_KEYS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KVBOUND_KERNELS_ATTENTION_Q8_KEYS_INL_H_
#undef KVBOUND_KERNELS_ATTENTION_Q8_KEYS_INL_H_
#else
#define KVBOUND_KERNELS_ATTENTION_Q8_KEYS_INL_H_
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

// 16 bytes, `offset` from the start, of every fourth row.
template <class D>
HWY_INLINE hn::Vec<D> EveryFourth(D d, const std::byte* const* rows, size_t offset) {
  if constexpr (hn::MaxLanes(D()) == 4) {
    const hn::Repartition<int8_t, D> d8;
    return hn::BitCast(d, hn::LoadU(d8, reinterpret_cast<const int8_t*>(rows[0] + offset)));
  } else {
    const hn::Half<D> half;
    return hn::Combine(d, EveryFourth(half, rows + hn::MaxLanes(half), offset),
                       EveryFourth(half, rows, offset));
  }
}

// 16 elements of as many rows as there are lanes, a row in a lane: of[c] has elements 4 c to
// 4 c + 3.
struct Columns {
  HWY_INLINE Columns(const std::byte* const* rows, size_t offset) {
    const Ints d;
    const VI r0 = EveryFourth(d, rows, offset), r1 = EveryFourth(d, rows + 1, offset);
    const VI r2 = EveryFourth(d, rows + 2, offset), r3 = EveryFourth(d, rows + 3, offset);
    const VI a = hn::InterleaveLower(d, r0, r2), b = hn::InterleaveLower(d, r1, r3);
    const VI e = hn::InterleaveUpper(d, r0, r2), f = hn::InterleaveUpper(d, r1, r3);
    of[0] = hn::InterleaveLower(d, a, b);
    of[1] = hn::InterleaveUpper(d, a, b);
    of[2] = hn::InterleaveLower(d, e, f);
    of[3] = hn::InterleaveUpper(d, e, f);
  }
  // The first and third of four elements, plus kEvenOffset, as pairs; and the others.
  HWY_INLINE VS Even(int c) const {
    const VS sign = hn::Set(Shorts(), kEvenOffset), low = hn::Set(Shorts(), 0xFF);
    return hn::And(hn::Xor(hn::BitCast(Shorts(), of[c]), sign), low);
  }
  HWY_INLINE VS Odd(int c) const { return hn::ShiftRight<8>(hn::BitCast(Shorts(), of[c])); }

  static constexpr int32_t kEvenOffset = 128;
  VI of[4];
};

// Swaps the middle two of each four elements of a block, as Columns has keys. Returns
// what sums of products with Columns::Even have to begin with.
HWY_INLINE int32_t SwapMiddles(int16_t* x) {
  const hn::Repartition<uint8_t, Shorts> d8;
  const hn::Repartition<int64_t, Shorts> d64;
  HWY_ALIGN static constexpr uint8_t kSwapped[16] = {0, 1, 4,  5,  2,  3,  6,  7,
                                                     8, 9, 12, 13, 10, 11, 14, 15};
  const VS even = hn::BitCast(Shorts(), hn::Set(d64, Columns::kEvenOffset * 0x10001));
  VI sum = hn::Zero(Ints());
  for (size_t i = 0; i < kBlockElements; i += hn::Lanes(Shorts())) {
    const VS swapped = hn::TableLookupBytes(hn::LoadU(Shorts(), x + i),
                                            hn::BitCast(Shorts(), hn::LoadDup128(d8, kSwapped)));
    hn::StoreU(swapped, Shorts(), x + i);
    sum = AddPairs<false>(swapped, even, sum);
  }
  return -hn::GetLane(hn::SumOfLanes(Ints(), sum));
}

// The integers of queries [n_row, dim] from their floats.
void RoundQueries(int32_t n_row, size_t dim, FewQueries* queries) {
  const Floats d;
  const float* q = queries->floats;
  for (int32_t r = 0; r < n_row; ++r, q += dim) {
    ShortFactors factors;
    for (size_t i = 0; i < dim; i += hn::Lanes(d)) factors.Add(hn::LoadU(d, q + i));
    queries->back[r] = factors.Back();
    const V to = hn::Set(d, factors.To());
    int16_t* shorts = queries->shorts[r];
    for (size_t i = 0; i < dim; i += hn::Lanes(d)) StoreShorts(hn::LoadU(d, q + i), to, shorts + i);
    for (size_t b = 0; b < dim / kBlockElements; ++b) {
      queries->start[r][b] = SwapMiddles(shorts + b * kBlockElements);
    }
  }
}

// logits[r, lane] of kRows queries from row `first_row` on with as many keys as there are lanes.
template <bool kVnni, int kRows>
HWY_INLINE void LogitsOfLanes(const FewQueries& q, int32_t first_row, size_t n_block,
                              const std::byte* const* keys, Ahead& ahead, size_t due,
                              float* logits) {
  const Floats d;
  constexpr size_t kLanes = hn::MaxLanes(Floats());
  HWY_ALIGN uint16_t scales[kMaxBlocks][kLanes];
  for (size_t s = 0; s < kLanes; ++s) {
    for (size_t b = 0; b < n_block; ++b) std::memcpy(&scales[b][s], keys[s] + b * kQ8Bytes, 2);
  }
  V sum[kRows];
  for (int r = 0; r < kRows; ++r) sum[r] = hn::Zero(d);
  for (size_t b = 0; b < n_block; ++b) {
    VI even[kRows], odd[kRows];
    for (int r = 0; r < kRows; ++r) {
      even[r] = hn::Set(Ints(), q.start[first_row + r][b]);
      odd[r] = hn::Zero(Ints());
    }
    const size_t offset = b * kQ8Bytes + 2;
    const auto add = [&](const Columns& columns, size_t element) HWY_ATTR {
      for (int c = 0; c < 4; ++c, element += 4) {
        const VS x = columns.Even(c), y = columns.Odd(c);
        for (int r = 0; r < kRows; ++r) {
          even[r] = AddPairs<kVnni>(PairAt(q.shorts[first_row + r] + element), x, even[r]);
          odd[r] = AddPairs<kVnni>(PairAt(q.shorts[first_row + r] + element + 2), y, odd[r]);
        }
      }
    };
    ahead.Fetch(due);
    add(Columns(keys, offset), b * kBlockElements);
    ahead.Fetch(due);
    add(Columns(keys, offset + 16), b * kBlockElements + 16);
    const V scale = F16Row::At(reinterpret_cast<const std::byte*>(scales[b]), 0);
    for (int r = 0; r < kRows; ++r) {
      sum[r] = hn::MulAdd(hn::ConvertTo(d, hn::Add(even[r], odd[r])), scale, sum[r]);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    hn::StoreU(hn::Mul(sum[r], hn::Set(d, q.back[first_row + r])), d, logits + r * kFewRowsRange);
  }
}

// Where a task's rows start; past the last of them, it again up to whole vectors.
struct RowStarts {
  RowStarts(const SlotRows& rows, const std::byte* first, int32_t n) {
    for (int32_t slot = 0; slot < n; ++slot, first += rows.slot_bytes) of_slot[slot] = first;
    std::fill(of_slot + n, of_slot + WholeVectors(n), of_slot[n - 1]);
  }
  const std::byte* of_slot[kFewRowsRange];
};

// logits[r, slot] of kRows queries from row `first_row` on with n keys; rows of kFewRowsRange.
template <bool kVnni, int kRows>
void Q8Logits(const FewQueries& q, int32_t first_row, size_t n_block, const RowStarts& keys,
              int32_t n, Ahead& ahead, float* logits) {
  const int32_t lanes = hn::Lanes(Floats());
  const size_t due = ahead.Due(lanes, kQ8LogitsShare, 2 * n_block);
  for (int32_t slot = 0; slot < n; slot += lanes) {
    LogitsOfLanes<kVnni, kRows>(q, first_row, n_block, keys.of_slot + slot, ahead, due,
                                logits + slot);
  }
}

void AllQ8Logits(const AttentionTask& task, const SlotRows& k, size_t head_dim, Ahead& ahead,
                 float* logits) {
  const RowStarts starts(k, task.k, task.n_slot);
  ForGroups(task.n_row, [&]<int kRows>(int32_t r) {
    const auto logits_of = HasVnni() ? Q8Logits<true, kRows> : Q8Logits<false, kRows>;
    logits_of(*task.queries, r, head_dim / kBlockElements, starts, task.n_slot, ahead,
              logits + r * kFewRowsRange);
  });
}

#else

void RoundQueries(int32_t, size_t, FewQueries*) {}
void AllQ8Logits(const AttentionTask&, const SlotRows&, size_t, Ahead&, float*) {}

#endif

}  // namespace HWY_NAMESPACE
}  // namespace kvbound
HWY_AFTER_NAMESPACE();

#endif  // KVBOUND_KERNELS_ATTENTION_Q8_KEYS_INL_H_
