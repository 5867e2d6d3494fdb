// Numbers in 16 bits for products with q8_0 rows: queries and weights are rounded, products of
// pairs are added up exactly, and a block's scale is applied to sums. Bytes become floats at three
// times the cost of short integers. Included by files that foreach_target.h compiles once for each.
#if defined(KVBOUND_KERNELS_SHORT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KVBOUND_KERNELS_SHORT_INL_H_
#undef KVBOUND_KERNELS_SHORT_INL_H_
#else
#define KVBOUND_KERNELS_SHORT_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/attention_few-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kvbound {
namespace HWY_NAMESPACE {

// Where adding up products of neighbours is one instruction, or two.
#undef KVBOUND_Q8_IN_INTEGERS
#define KVBOUND_Q8_IN_INTEGERS (HWY_ARCH_X86 && HWY_TARGET != HWY_SCALAR)
#if KVBOUND_Q8_IN_INTEGERS

using Shorts = hn::Repartition<int16_t, Floats>;
using VI = hn::Vec<Ints>;
using VS = hn::Vec<Shorts>;

constexpr float kGreatestShort = 32767.0f;
constexpr size_t kMaxBlocks = FewQueries::kMaxBlocks;

// Of all work, see Ahead.
constexpr size_t kQ8LogitsShare = 16, kQ8ScalesShare = 2, kQ8WeightsShare = 3, kQ8SumsShare = 9;

// sum[i] + a[2 i] b[2 i] + a[2 i + 1] b[2 i + 1]. kVnni: in one instruction.
template <bool kVnni>
HWY_INLINE VI AddPairs(VS a, VS b, VI sum) {
#if HWY_TARGET == HWY_AVX3
  // Highway has no target with this extension that all CPUs with it could run.
  if constexpr (kVnni) {
    asm("vpdpwssd %2, %1, %0" : "+v"(sum.raw) : "v"(a.raw), "v"(b.raw));
    return sum;
  }
#endif
  auto unused = hn::Zero(Ints());
  return hn::ReorderWidenMulAccumulate(Ints(), a, b, sum, unused);
}

HWY_INLINE bool HasVnni() {
#if HWY_TARGET == HWY_AVX3
  static const bool has = __builtin_cpu_supports("avx512vnni");
  return has;
#else
  return false;
#endif
}

// Two neighbours, the same in all pairs of lanes.
HWY_INLINE VS PairAt(const int16_t* at) {
  int32_t pair;
  std::memcpy(&pair, at, sizeof(pair));
  return hn::BitCast(Shorts(), hn::Set(Ints(), pair));
}

// Elements of a row as short integers.
HWY_INLINE VS Bytes(const std::byte* at) {
  const hn::Rebind<int8_t, Shorts> d8;
  return hn::PromoteTo(Shorts(), hn::LoadU(d8, reinterpret_cast<const int8_t*>(at)));
}

// x * factor, rounded. Beyond 16 bits it saturates.
HWY_INLINE void StoreShorts(V x, V factor, int16_t* to) {
  const hn::Rebind<int16_t, Floats> d;
  hn::StoreU(hn::DemoteTo(d, hn::NearestInt(hn::Mul(x, factor))), d, to);
}

// Factors from floats to 16 bits, by the greatest magnitude of them, and back. A NaN among them
// makes the second one NaN.
class ShortFactors {
 public:
  HWY_INLINE ShortFactors() : max_(hn::Zero(Floats())), nan_(hn::Zero(Floats())) {}
  HWY_INLINE void Add(V x) {
    max_ = hn::Max(max_, hn::Abs(x));
    nan_ = hn::MulAdd(x, hn::Zero(Floats()), nan_);  // Max may lose one
  }
  float To() const { return Max() > 0 ? kGreatestShort / Max() : 0.0f; }
  float Back() const {
    return Max() / kGreatestShort + hn::GetLane(hn::SumOfLanes(Floats(), nan_));
  }

 private:
  float Max() const { return hn::GetLane(hn::MaxOfLanes(Floats(), max_)); }

  V max_, nan_;
};

// Scales of the blocks of rows, [n_block, range]; zero up to whole vectors.
struct BlockScales {
  void Read(const SlotRows& rows, const std::byte* first, int32_t n, size_t n_block, Ahead& ahead) {
    const int32_t lanes = hn::Lanes(Floats());
    const int32_t padded = (n + lanes - 1) / lanes * lanes;
    HWY_ALIGN uint16_t halves[kFewRowsRange];
    constexpr int32_t kStep = 32;  // slots between requests
    const size_t due = ahead.Due(kStep, kQ8ScalesShare, n_block);
    for (size_t b = 0; b < n_block; ++b) {
      const std::byte* at = first + b * kQ8Bytes;
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
      std::fill(halves + n, halves + padded, uint16_t{0});
      for (int32_t i = 0; i < padded; i += lanes) {
        hn::StoreU(F16Row::At(reinterpret_cast<const std::byte*>(halves), i), Floats(),
                   of_block[b] + i);
      }
    }
  }
  HWY_ALIGN float of_block[kMaxBlocks][kFewRowsRange];
};

// Weights times the scales of V's blocks in 16 bits. A weight is at most 1.
struct ShortWeights {
  // weights: [n_row, kFewRowsRange], zero from n up to whole vectors.
  void Round(const float* weights, int32_t n_row, const BlockScales& scales, size_t n_block,
             int32_t n, Ahead& ahead) {
    const Floats d;
    const int32_t lanes = hn::Lanes(d);
    constexpr int32_t kStep = 64;
    const size_t due = ahead.Due(kStep, kQ8WeightsShare, n_block * n_row);
    for (size_t b = 0; b < n_block; ++b) {
      ShortFactors factors;
      for (int32_t slot = 0; slot < n; slot += lanes) {
        factors.Add(hn::LoadU(d, scales.of_block[b] + slot));
      }
      back[b] = factors.Back();
      const V to = hn::Set(d, factors.To());
      HWY_ALIGN float factor[kFewRowsRange];
      for (int32_t slot = 0; slot < n; slot += lanes) {
        hn::Store(hn::Mul(hn::Load(d, scales.of_block[b] + slot), to), d, factor + slot);
      }
      for (int32_t r = 0; r < n_row; ++r) {
        for (int32_t slot = 0; slot < n; slot += lanes) {
          if (slot % kStep == 0) ahead.Fetch(due);
          StoreShorts(hn::LoadU(d, weights + r * kFewRowsRange + slot), hn::Load(d, factor + slot),
                      of_row[r][b] + slot);
        }
      }
    }
  }
  HWY_ALIGN int16_t of_row[kFewRows][kMaxBlocks][kFewRowsRange];
  float back[kMaxBlocks];
};

#endif

}  // namespace HWY_NAMESPACE
}  // namespace kvbound
HWY_AFTER_NAMESPACE();

#endif  // KVBOUND_KERNELS_SHORT_INL_H_
