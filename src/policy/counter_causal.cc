// counter-causal, counter-causal-fast: evict what the tokens behind predict.
//
// Paper        Back from the Future, Gould and van den Hengel, arXiv 2607.27600
// Keeps        the J slots whose token is least predictable from the cached tokens after it, and
//              in any case the last 1 + min_gap
// Granularity  shared
// Cost         full: a forward pass over all slots without K and V projections;
//              fast: the attention of the last layer over all slots
// Deviations   4 sinks and 32 recent tokens are protected by default, since without them the text
//              collapses; the paper's own setting is sinks 0, recent 0. Generated tokens are
//              scored for themselves (align=aligned); the authors' code scores each for its
//              successor (align=published).

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/strings.h"
#include "policy/policies.h"

namespace kvbound {

namespace {

using Options = CounterCausalOptions;

class CounterCausal : public EvictionPolicy {
 public:
  CounterCausal(bool fast, const Options& options) : fast_(fast), options_(options) {}

  PolicyInfo Info() const override {
    PolicyInfo info;
    info.name = fast_ ? "counter-causal-fast" : "counter-causal";
    info.summary = fast_ ? "evicts tokens predictable from those after them (last layer only)"
                         : "evicts tokens predictable from those after them (all layers)";
    info.paper = "arXiv 2607.27600";
    info.model_score = fast_ ? ModelScore::kCounterCausalFast : ModelScore::kCounterCausalFull;
    info.needs_next_token = options_.align == Options::Align::kPublished;
    info.default_protection.sinks = 4;
    info.default_protection.recent = 32;
    info.min_recent = 1 + options_.min_gap;
    return info;
  }

  Status Score(const CacheView& view, ScoreTable& scores) override {
    if (view.scorer() == nullptr || view.n_set() != 1) {
      return Internal(StrCat("policy '", Info().name, "': expected a scorer and 1 set, found ",
                             view.scorer() == nullptr ? "no scorer" : "one", " and ", view.n_set(),
                             " sets"));
    }
    const std::span<float> row = scores.Row(0);
    KVBOUND_RETURN_IF_ERROR(view.scorer()->CounterCausal(options_, row));

    const std::span<const Position> positions = view.positions(0);
    const auto [first, last] = std::minmax_element(positions.begin(), positions.end());
    for (size_t slot = 0; slot < row.size(); ++slot) {
      const bool undefined =
          (options_.reading == Options::Reading::kB && positions[slot] == *first) ||
          (options_.reading == Options::Reading::kC && positions[slot] == *last);
      const bool forced = positions[slot].value >= view.tokens_seen() - 1 - options_.min_gap;
      row[slot] = undefined || forced ? std::numeric_limits<float>::infinity() : -row[slot];
    }
    return Status::Ok();
  }

 private:
  const bool fast_;
  const Options options_;
};

Status Refuse(std::string_view policy, std::string_view parameter, std::string_view expected) {
  return InvalidArgument(
      StrCat("policy '", policy, "', parameter '", parameter, "': expected ", expected));
}

Status CheckMinGap(std::string_view policy, const Options& options) {
  constexpr int32_t kMost = 1 << 20;
  if (0 <= options.min_gap && options.min_gap <= kMost) return Status::Ok();
  return Refuse(policy, "min_gap", StrCat("0..", kMost, ", found ", options.min_gap));
}

}  // namespace

MadePolicy MakeCounterCausal(const PolicyOptions& policy) {
  const Options options = policy.counter_causal.value_or(Options{});
  KVBOUND_RETURN_IF_ERROR(CheckMinGap(policy.name, options));
  if (options.ffn) {
    return Refuse(policy.name, "ffn", "false (only 'counter-causal-fast' takes it), found true");
  }
  if (options.neutral != Options{}.neutral && options.reading != Options::Reading::kD) {
    return Refuse(policy.name, "neutral", "its default unless reading is D");
  }
  return MadePolicy(std::make_unique<CounterCausal>(/*fast=*/false, options));
}

MadePolicy MakeCounterCausalFast(const PolicyOptions& policy) {
  const Options options = policy.counter_causal.value_or(Options{});
  KVBOUND_RETURN_IF_ERROR(CheckMinGap(policy.name, options));
  if (options.reading != Options{}.reading) {
    return Refuse(policy.name, "reading", "A (only 'counter-causal' takes another)");
  }
  if (options.neutral != Options{}.neutral) {
    return Refuse(policy.name, "neutral", "its default (only 'counter-causal' takes another)");
  }
  return MadePolicy(std::make_unique<CounterCausal>(/*fast=*/true, options));
}

}  // namespace kvbound
