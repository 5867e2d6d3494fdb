#ifndef KVBOUND_TESTING_FAKE_CACHE_H_
#define KVBOUND_TESTING_FAKE_CACHE_H_

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "kvbound/policy.h"
#include "kvbound/status.h"
#include "kvbound/types.h"
#include "policy/protection.h"

namespace kvbound::testing {

class FakeCache;

// A SlotScorer without a model: the score of a slot is a function of its position and token.
class FakeScorer : public SlotScorer {
 public:
  using Function = std::function<float(Position, Token)>;

  explicit FakeScorer(Function function) : function_(std::move(function)) {}

  Status CounterCausal(const CounterCausalOptions& options, std::span<float> scores) override;

  int32_t n_call() const { return n_call_; }
  const CounterCausalOptions& last_options() const { return last_options_; }

 private:
  friend class FakeCache;
  Function function_;
  const FakeCache* cache_ = nullptr;
  int32_t n_call_ = 0;
  CounterCausalOptions last_options_;
};

// How survivors of a cut lie in their slots afterwards. No policy may depend on it.
enum class SlotOrder { kAscending, kReversed };

// The cycle of a bounded cache without a model: chunks that end at multiples of `chunk` tokens
// seen, and a cut after each chunk that leaves more than `budget` slots. Keys are made up from
// layer, head and position.
class FakeCache : public CacheView {
 public:
  struct Shape {
    int32_t n_layer = 2;
    int32_t n_kv_head = 3;
    int32_t head_dim = 4;
    int32_t budget = 8;
    int32_t chunk = 3;
  };

  FakeCache(const Shape& shape, Granularity granularity, FakeScorer* scorer = nullptr,
            SlotOrder order = SlotOrder::kReversed);

  // Feeds `tokens` with all cuts that they bring. Stops at the first error, before the cut.
  Status Feed(std::span<const Token> tokens, EvictionPolicy& policy,
              const ProtectedSpans& protection);

  // Feeds the tokens 100, 101, ... until `n` have been seen.
  Status FeedUntil(int64_t n, EvictionPolicy& policy, const ProtectedSpans& protection);

  // Positions of a set, ascending.
  std::vector<int32_t> Kept(int32_t set = 0) const;
  int32_t n_cut() const { return n_cut_; }
  int32_t peak_slots() const { return peak_slots_; }

  int32_t n_layer() const override { return shape_.n_layer; }
  int32_t n_kv_head() const override { return shape_.n_kv_head; }
  int32_t head_dim() const override { return shape_.head_dim; }
  int32_t n_set() const override { return static_cast<int32_t>(sets_.size()); }
  int32_t n_slot() const override { return static_cast<int32_t>(sets_[0].positions.size()); }
  int32_t budget() const override { return shape_.budget; }
  int64_t tokens_seen() const override { return tokens_seen_; }
  std::span<const Position> positions(int32_t set) const override { return sets_[set].positions; }
  std::span<const Token> tokens(int32_t set) const override { return sets_[set].tokens; }
  // Between -0.6 and -0.1, a function of head (layer * n_kv_head + kv_head) and position.
  static float LogBeta(int32_t head, Position position);
  std::span<const float> log_beta(int32_t layer, int32_t kv_head) const override;
  // Between 0 and 2, likewise.
  static float AttentionMass(int32_t head, Position position);
  std::span<const float> attention_mass(int32_t layer, int32_t kv_head) const override;
  Status ReadKeys(int32_t layer, int32_t kv_head, std::span<float> out) const override;
  SlotScorer* scorer() const override { return scorer_; }

 private:
  struct Set {
    std::vector<Position> positions;
    std::vector<Token> tokens;
  };

  std::span<const float> Column(int32_t layer, int32_t kv_head, float (*value)(int32_t, Position),
                                std::vector<float>& out) const;
  Status Cut(EvictionPolicy& policy, const ProtectedSpans& protection);

  const Shape shape_;
  const SlotOrder order_;
  FakeScorer* scorer_;
  std::vector<Set> sets_;
  int64_t tokens_seen_ = 0;
  int32_t n_cut_ = 0;
  int32_t peak_slots_ = 0;
  mutable std::vector<float> log_beta_, attention_mass_;
};

}  // namespace kvbound::testing

#endif  // KVBOUND_TESTING_FAKE_CACHE_H_
