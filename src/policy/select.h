#ifndef KVBOUND_POLICY_SELECT_H_
#define KVBOUND_POLICY_SELECT_H_

#include <cstdint>
#include <span>

#include "kvbound/policy.h"
#include "kvbound/status.h"
#include "policy/protection.h"

namespace kvbound {

// Turns the scores of a cut into keep sets: in each set the protected slots stay, and the highest
// scores fill the budget; the lower position wins a tie, so the slot order never matters.
//   scores  [n_set, n_slot], higher = keep
//   order   [n_slot], scratch
//   keep    [n_set, n_slot], 1 = survives
// Every set keeps min(n_slot, budget) slots. InvalidArgument: a NaN score, named by set, slot and
// position. Deterministic; allocates nothing; O(n_slot) per set on average.
Status Select(const CacheView& view, std::span<const float> scores,
              const ProtectedSpans& protection, std::span<int32_t> order, std::span<uint8_t> keep);

}  // namespace kvbound

#endif  // KVBOUND_POLICY_SELECT_H_
