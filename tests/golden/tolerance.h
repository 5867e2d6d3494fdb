#ifndef KVBOUND_TESTS_GOLDEN_TOLERANCE_H_
#define KVBOUND_TESTS_GOLDEN_TOLERANCE_H_

#include <cstddef>

// How far a result may lie from a golden value. The golden values are float32; every one was
// computed in float64 too, and these are multiples of the distance between the two, which is
// what any order of summation may cost.
namespace kvbound::golden {

// Logits, log-sum-exp, log-probabilities and their means. Seen between float32 and float64:
// 1.6e-4 (SmolLM2), 8e-5 (stories260k).
inline constexpr double kLogitTolerance = 1e-3;

// The distance of two logits: each may be off by kLogitTolerance. Below it, the order of two
// tokens says nothing.
inline constexpr double kGapTolerance = 2e-3;

// Log-probabilities of a given text behind evictions: errors of the surviving K and V rows add
// to those of the logits.
inline constexpr double kForcedTolerance = 2e-3;

// Scores of slots: `typical` holds for 99 % of them, `worst` for all.
struct ScoreTolerance {
  double typical = 0;
  double worst = 0;

  // How many of n slots may lie between the two.
  size_t n_outliers(size_t n) const { return typical < worst ? n / 100 : 0; }
};

// All layers: single slots are ill-conditioned (1.5e-3 between float32 and float64; the rounding
// of RoPE's angles alone does it).
inline constexpr ScoreTolerance kFullScoreTolerance{5e-4, 5e-3};

// One layer: no such slots.
inline constexpr ScoreTolerance kFastScoreTolerance{5e-4, 5e-4};

// log beta, and log beta times an age of a few hundred tokens. Seen between float32 and float64:
// 8e-6 of log beta.
inline constexpr double kLogBetaTolerance = 5e-5;
inline constexpr ScoreTolerance kRetentionScoreTolerance{2e-3, 2e-3};

// Attention mass near a cut, about 1: logits in f32 are off by some 1e-5, and so are its shares. Of
// 630 sets one has a margin of 6e-8 and differs between float32 and float64; the next has 2.6e-5.
inline constexpr ScoreTolerance kMassTolerance{1e-5, 1e-5};

// Losses, gradients and logits of training, as vectors and relative to their length. Seen between
// float32 and float64: 1e-6.
inline constexpr double kTrainTolerance = 1e-4;

// A policy that ranks by position alone, without rounding.
inline constexpr ScoreTolerance kExactScoreTolerance{0, 0};

}  // namespace kvbound::golden

#endif  // KVBOUND_TESTS_GOLDEN_TOLERANCE_H_
