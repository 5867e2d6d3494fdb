// retention: a trained gate tells how fast each token fades, per layer and KV head.
//
// Paper        TRIM-KV, arXiv 2512.03324; future utility: DBTrimKV, arXiv 2605.09649
// Keeps        the highest beta^age, or the highest sum of it over the steps to come
// Granularity  per head (default); per layer or shared: the mean over heads of their normalised
//              scores
// Cost         one product per slot and head; future utility: two logarithms more
// Deviations   4 sinks are protected by default, which the paper leaves to the gates: with
//              sinks 0, cadence full and age code it is the published preset

#include <algorithm>
#include <cmath>

#include "base/strings.h"
#include "kvbound/policy.h"
#include "policy/policies.h"

namespace kvbound {

namespace {

// log(1 - e^x) for x < 0.
float Log1mExp(float x) {
  return x > -0.6931472f ? std::log(-std::expm1(x)) : std::log1p(-std::exp(x));
}

// Gates that never forget leave log beta a hair below zero, or at zero once rounded.
constexpr float kLargestLogBeta = -1e-30f;

class Retention : public EvictionPolicy {
 public:
  Retention(const RetentionOptions& options, Granularity granularity)
      : options_(options), granularity_(granularity) {}

  PolicyInfo Info() const override {
    PolicyInfo info;
    info.name = "retention";
    info.summary = "keeps what trained gates say lasts, per layer and KV head; needs --gates";
    info.paper = "arXiv 2512.03324";
    info.granularity = granularity_;
    info.needs_gates = true;
    info.cuts_when_full = options_.cadence == RetentionOptions::Cadence::kFull;
    info.default_protection.sinks = 4;
    return info;
  }

  Status Score(const CacheView& view, ScoreTable& scores) override {
    const int64_t now = view.tokens_seen() + (options_.age == RetentionOptions::Age::kCode ? 1 : 0);
    const int32_t n_head = view.n_layer() * view.n_kv_head();
    const int32_t n_shared = n_head / view.n_set();  // heads that share a set
    for (int32_t head = 0; head < n_head; ++head) {
      const int32_t set = head / n_shared;
      const std::span<const float> log_beta =
          view.log_beta(head / view.n_kv_head(), head % view.n_kv_head());
      const std::span<const Position> positions = view.positions(set);
      const std::span<float> row = scores.Row(set);
      if (n_shared == 1) {
        for (size_t i = 0; i < row.size(); ++i) {
          row[i] = HeadScore(log_beta[i], now - positions[i].value);
        }
        continue;
      }
      if (head % n_shared == 0) std::ranges::fill(row, 0.0f);
      AddNormalised(log_beta, positions, now, row);
    }
    return Status::Ok();
  }

 private:
  // The logarithm of what a token is worth.
  float HeadScore(float log_beta, int64_t age) const {
    const float decay = log_beta * static_cast<float>(age);
    if (options_.score == RetentionOptions::Score::kDecay) return decay;
    const float x = std::min(log_beta, kLargestLogBeta);
    const float steps =
        options_.horizon > 0 ? Log1mExp(x * static_cast<float>(options_.horizon)) : 0.0f;
    return decay + steps - Log1mExp(x);
  }

  // Adds the worth of each slot, as a share of the head's whole.
  void AddNormalised(std::span<const float> log_beta, std::span<const Position> positions,
                     int64_t now, std::span<float> row) const {
    const auto score = [&](size_t i) { return HeadScore(log_beta[i], now - positions[i].value); };
    float highest = score(0);
    for (size_t i = 1; i < row.size(); ++i) highest = std::max(highest, score(i));
    float sum = 0.0f;
    for (size_t i = 0; i < row.size(); ++i) sum += std::exp(score(i) - highest);
    for (size_t i = 0; i < row.size(); ++i) row[i] += std::exp(score(i) - highest) / sum;
  }

  const RetentionOptions options_;
  const Granularity granularity_;
};

}  // namespace

MadePolicy MakeRetention(const PolicyOptions& options) {
  const RetentionOptions retention = options.retention.value_or(RetentionOptions{});
  if (retention.horizon < 0) {
    return InvalidArgument(
        StrCat("policy 'retention': horizon: expected at least 0, found ", retention.horizon));
  }
  if (retention.horizon > 0 && retention.score != RetentionOptions::Score::kFuture) {
    return InvalidArgument("policy 'retention': horizon: expected with score future");
  }
  const Granularity granularity = options.granularity.value_or(Granularity::kPerHead);
  return MadePolicy(std::make_unique<Retention>(retention, granularity));
}

}  // namespace kvbound
