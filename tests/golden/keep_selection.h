#ifndef KVBOUND_TESTS_GOLDEN_KEEP_SELECTION_H_
#define KVBOUND_TESTS_GOLDEN_KEEP_SELECTION_H_

#include <cstdint>
#include <span>
#include <vector>

#include "kvbound/policy.h"
#include "kvbound/status.h"

namespace kvbound::golden {

// The positions, ascending, that a counter-causal policy and the selection of a cut would keep
// of a sequence at positions 0..n-1, if the model gave it `scores` [n] (NaN = undefined).
Result<std::vector<int32_t>> KeepByScores(const PolicyOptions& policy,
                                          std::span<const float> scores, int32_t budget,
                                          Protection protection);

}  // namespace kvbound::golden

#endif  // KVBOUND_TESTS_GOLDEN_KEEP_SELECTION_H_
