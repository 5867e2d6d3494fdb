#include "testing/fake_cache.h"

#include <algorithm>
#include <cmath>

#include "policy/select.h"

namespace kvbound::testing {

Status FakeScorer::CounterCausal(const CounterCausalOptions& options, std::span<float> scores) {
  ++n_call_;
  last_options_ = options;
  const std::span<const Position> positions = cache_->positions(0);
  const std::span<const Token> tokens = cache_->tokens(0);
  for (size_t slot = 0; slot < scores.size(); ++slot) {
    scores[slot] = function_(positions[slot], tokens[slot]);
  }
  return Status::Ok();
}

FakeCache::FakeCache(const Shape& shape, Granularity granularity, FakeScorer* scorer,
                     SlotOrder order)
    : shape_(shape), order_(order), scorer_(scorer) {
  if (scorer_ != nullptr) scorer_->cache_ = this;
  int32_t n_set = 1;
  if (granularity == Granularity::kPerLayer) n_set = shape.n_layer;
  if (granularity == Granularity::kPerHead) n_set = shape.n_layer * shape.n_kv_head;
  sets_.resize(n_set);
}

Status FakeCache::Feed(std::span<const Token> tokens, EvictionPolicy& policy,
                       const ProtectedSpans& protection) {
  for (const Token token : tokens) {
    for (Set& set : sets_) {
      set.positions.push_back({static_cast<int32_t>(tokens_seen_)});
      set.tokens.push_back(token);
    }
    ++tokens_seen_;
    peak_slots_ = std::max(peak_slots_, n_slot());
    if (tokens_seen_ % shape_.chunk == 0 && n_slot() > shape_.budget) {
      KVBOUND_RETURN_IF_ERROR(Cut(policy, protection));
    }
  }
  return Status::Ok();
}

Status FakeCache::FeedUntil(int64_t n, EvictionPolicy& policy, const ProtectedSpans& protection) {
  while (tokens_seen_ < n) {
    const Token token = 100 + static_cast<Token>(tokens_seen_);
    KVBOUND_RETURN_IF_ERROR(Feed(std::span(&token, 1), policy, protection));
  }
  return Status::Ok();
}

float FakeCache::LogBeta(int32_t head, Position position) {
  return -0.35f + 0.25f * std::sin(1.7f * position.value + head);
}

float FakeCache::AttentionMass(int32_t head, Position position) {
  return 1.0f + std::sin(2.3f * position.value + head);
}

std::span<const float> FakeCache::Column(int32_t layer, int32_t kv_head,
                                         float (*value)(int32_t, Position),
                                         std::vector<float>& out) const {
  const int32_t head = layer * shape_.n_kv_head + kv_head;
  out.clear();
  for (const Position position : positions(head * n_set() / (shape_.n_layer * shape_.n_kv_head))) {
    out.push_back(value(head, position));
  }
  return out;
}

std::span<const float> FakeCache::log_beta(int32_t layer, int32_t kv_head) const {
  return Column(layer, kv_head, LogBeta, log_beta_);
}

std::span<const float> FakeCache::attention_mass(int32_t layer, int32_t kv_head) const {
  return Column(layer, kv_head, AttentionMass, attention_mass_);
}

std::vector<int32_t> FakeCache::Kept(int32_t set) const {
  std::vector<int32_t> kept;
  for (const Position position : sets_[set].positions) kept.push_back(position.value);
  std::sort(kept.begin(), kept.end());
  return kept;
}

Status FakeCache::ReadKeys(int32_t layer, int32_t kv_head, std::span<float> out) const {
  const int32_t head = layer * shape_.n_kv_head + kv_head;
  const Set& set =
      sets_[static_cast<size_t>(head) * sets_.size() / (shape_.n_layer * shape_.n_kv_head)];
  if (out.size() != set.positions.size() * shape_.head_dim) {
    return InvalidArgument("ReadKeys: wrong size");
  }
  for (size_t i = 0; i < out.size(); ++i) {
    const int32_t position = set.positions[i / shape_.head_dim].value;
    out[i] = static_cast<float>((position * 31 + head * 17 + static_cast<int32_t>(i) % 7) % 13);
  }
  return Status::Ok();
}

Status FakeCache::Cut(EvictionPolicy& policy, const ProtectedSpans& protection) {
  const int32_t n = n_slot();
  const size_t all = sets_.size() * n;
  std::vector<float> scores(all, -1e30f);
  std::vector<int32_t> order(n);
  std::vector<uint8_t> keep(all);
  ScoreTable table(scores, n);
  KVBOUND_RETURN_IF_ERROR(policy.Score(*this, table));
  KVBOUND_RETURN_IF_ERROR(Select(*this, scores, protection, order, keep));
  for (size_t s = 0; s < sets_.size(); ++s) {
    Set kept;
    for (int32_t slot = 0; slot < n; ++slot) {
      if (keep[s * n + slot] == 0) continue;
      kept.positions.push_back(sets_[s].positions[slot]);
      kept.tokens.push_back(sets_[s].tokens[slot]);
    }
    if (order_ == SlotOrder::kReversed) {
      std::reverse(kept.positions.begin(), kept.positions.end());
      std::reverse(kept.tokens.begin(), kept.tokens.end());
    }
    sets_[s] = std::move(kept);
  }
  ++n_cut_;
  return Status::Ok();
}

}  // namespace kvbound::testing
