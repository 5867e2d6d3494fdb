#ifndef KVBOUND_POLICY_RECENCY_H_
#define KVBOUND_POLICY_RECENCY_H_

#include "kvbound/policy.h"

namespace kvbound {

// Scores every slot by its position, so that the last ones stay. Relative to the newest token, so
// that a float is exact for the 2^24 newest positions, of which a budget keeps some.
inline void ScoreByRecency(const CacheView& view, ScoreTable& scores) {
  for (int32_t set = 0; set < view.n_set(); ++set) {
    const std::span<const Position> positions = view.positions(set);
    const std::span<float> row = scores.Row(set);
    for (size_t slot = 0; slot < row.size(); ++slot) {
      row[slot] = static_cast<float>(positions[slot].value - view.tokens_seen());
    }
  }
}

}  // namespace kvbound

#endif  // KVBOUND_POLICY_RECENCY_H_
