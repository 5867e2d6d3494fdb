// h2o: heavy hitters and recent tokens.
//
// Paper        H2O, Zhang et al., arXiv 2306.14048
// Keeps        the last half of the budget, and of the others what has got most attention since it
//              was entered
// Granularity  per head (default); per layer or shared: the sum over heads
// Cost         the attention operator adds up what each slot gets: 1.1x its time
// Deviations   the query heads of a group share a KV head's slots, so their attention is summed;
//              a cut comes once a chunk, not once a token

#include <algorithm>
#include <functional>
#include <limits>

#include "policy/policies.h"

namespace kvbound {

namespace {

class H2o : public EvictionPolicy {
 public:
  explicit H2o(Granularity granularity) : granularity_(granularity) {}

  PolicyInfo Info() const override {
    PolicyInfo info;
    info.name = "h2o";
    info.summary = "keeps the last J/2 tokens and what has got most attention";
    info.paper = "arXiv 2306.14048";
    info.granularity = granularity_;
    info.needs_attention_mass = true;
    return info;
  }

  Status Score(const CacheView& view, ScoreTable& scores) override {
    const int32_t n_head = view.n_layer() * view.n_kv_head();
    const int32_t n_shared = n_head / view.n_set();  // heads that share a set
    for (int32_t head = 0; head < n_head; ++head) {
      const std::span<const float> mass =
          view.attention_mass(head / view.n_kv_head(), head % view.n_kv_head());
      const std::span<float> row = scores.Row(head / n_shared);
      if (head % n_shared == 0) std::ranges::fill(row, 0.0f);
      std::ranges::transform(row, mass, row.begin(), std::plus<>());
    }
    const int64_t first_recent = view.tokens_seen() - view.budget() / 2;
    for (int32_t set = 0; set < view.n_set(); ++set) {
      const std::span<const Position> positions = view.positions(set);
      const std::span<float> row = scores.Row(set);
      for (size_t slot = 0; slot < row.size(); ++slot) {
        if (positions[slot].value >= first_recent) {
          row[slot] = std::numeric_limits<float>::infinity();
        }
      }
    }
    return Status::Ok();
  }

 private:
  const Granularity granularity_;
};

}  // namespace

MadePolicy MakeH2o(const PolicyOptions& options) {
  return MadePolicy(std::make_unique<H2o>(options.granularity.value_or(Granularity::kPerHead)));
}

}  // namespace kvbound
