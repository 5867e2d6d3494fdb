#include "golden/keep_selection.h"

#include <algorithm>
#include <memory>

#include "policy/protection.h"
#include "policy/select.h"

namespace kvbound::golden {
namespace {

// A sequence that was read without a cut, and its scores as if the model had just given them.
class ReplayedView : public CacheView, public SlotScorer {
 public:
  ReplayedView(std::span<const float> scores, int32_t budget)
      : given_(scores), budget_(budget), tokens_(scores.size()) {
    for (size_t i = 0; i < scores.size(); ++i) {
      positions_.push_back(Position{static_cast<int32_t>(i)});
    }
  }

  int32_t n_layer() const override { return 1; }
  int32_t n_kv_head() const override { return 1; }
  int32_t head_dim() const override { return 1; }
  int32_t n_set() const override { return 1; }
  int32_t n_slot() const override { return static_cast<int32_t>(given_.size()); }
  int32_t budget() const override { return budget_; }
  int64_t tokens_seen() const override { return n_slot(); }
  std::span<const Position> positions(int32_t) const override { return positions_; }
  std::span<const Token> tokens(int32_t) const override { return tokens_; }
  std::span<const float> log_beta(int32_t, int32_t) const override { return {}; }
  std::span<const float> attention_mass(int32_t, int32_t) const override { return {}; }
  Status ReadKeys(int32_t, int32_t, std::span<float>) const override {
    return Internal("a replayed sequence has no keys");
  }
  SlotScorer* scorer() const override { return const_cast<ReplayedView*>(this); }

  Status CounterCausal(const CounterCausalOptions&, std::span<float> scores) override {
    std::copy(given_.begin(), given_.end(), scores.begin());
    return Status::Ok();
  }

 private:
  std::span<const float> given_;
  int32_t budget_;
  std::vector<Position> positions_;
  std::vector<Token> tokens_;
};

}  // namespace

Result<std::vector<int32_t>> KeepByScores(const PolicyOptions& policy,
                                          std::span<const float> scores, int32_t budget,
                                          Protection protection) {
  KVBOUND_ASSIGN_OR_RETURN(const std::unique_ptr<EvictionPolicy> made, MakePolicy(policy));
  const ProtectionOptions asked{protection.sinks, protection.recent, protection.pin_prompt};
  KVBOUND_ASSIGN_OR_RETURN(const ProtectedSpans spans,
                           ProtectedSpans::Resolve(asked, made->Info(), budget));
  const ReplayedView view(scores, budget);
  std::vector<float> ranks(scores.size());
  ScoreTable table(ranks, view.n_slot());
  KVBOUND_RETURN_IF_ERROR(made->Score(view, table));
  std::vector<int32_t> order(scores.size());
  std::vector<uint8_t> keep(scores.size());
  KVBOUND_RETURN_IF_ERROR(Select(view, ranks, spans, order, keep));
  std::vector<int32_t> kept;
  for (size_t i = 0; i < keep.size(); ++i) {
    if (keep[i] != 0) kept.push_back(static_cast<int32_t>(i));
  }
  return kept;
}

}  // namespace kvbound::golden
