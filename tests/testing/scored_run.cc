#include "testing/scored_run.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>

#include "base/strings.h"
#include "generate/engine_impl.h"
#include "testing/rope_log.h"

namespace kvbound::testing {
namespace {

using Options = CounterCausalOptions;

void Check(const Status& status) {
  if (!status.ok()) throw std::runtime_error(status.ToString());
}

}  // namespace

ScoredRun::ScoredRun(const TinyModel& model, const EngineOptions& options)
    : model_(model),
      fast_(options.policy.name == "counter-causal-fast"),
      engine_(MakeEngine(LoadTiny(model), options)),
      session_(MakeSession(*engine_, Protected(0, 0))),
      log_(std::make_unique<CutLog>(*session_)) {}

void ScoredRun::Feed(const std::vector<Token>& tokens) {
  Check(session_->Feed(tokens));
  ids_.insert(ids_.end(), tokens.begin(), tokens.end());
}

void ScoredRun::Decode(const std::vector<Token>& tokens) {
  for (const Token token : tokens) {
    Check(StepOne(*engine_, *session_, token));
    ids_.push_back(token);
  }
}

OracleCache ScoredRun::Cache() const {
  OracleCache cache;
  cache.ids = ids_;
  const EngineOptions& options = engine_->options();
  const RopeLog rope(*log_, 1, options.chunk, options.position_limit);
  cache.pass = ReferenceForward(
      model_, ids_, {}, [this](int, int, int query, int key) { return log_->Saw(0, query, key); },
      [&rope](int, int, int query, int key) { return query - rope.Distance(0, query, key); });
  for (const Position p : session_->positions()) {
    cache.slots.push_back(p.value);
    // As a token fed next would see it.
    cache.rope.push_back(rope.Seen(0, static_cast<int32_t>(ids_.size()), p.value));
  }
  cache.tokens.assign(session_->tokens().begin(), session_->tokens().end());
  return cache;
}

std::vector<float> ScoredRun::Scores(const Options& options) const {
  std::vector<float> scores(session_->positions().size());
  Check(session_->ScoreNow(options, scores));
  return scores;
}

std::vector<float> ScoredRun::CausalScores(const Options& options) const {
  std::vector<float> scores(session_->positions().size());
  Check(session_->impl().scorer->Score(options, CounterCausalScorer::Direction::kCausal, scores));
  return scores;
}

std::vector<Options> AllScoreOptions(bool fast) {
  std::vector<Options> starts;
  if (fast) {
    for (const bool ffn : {false, true}) starts.emplace_back().ffn = ffn;
  } else {
    for (const auto reading :
         {Options::Reading::kA, Options::Reading::kB, Options::Reading::kC, Options::Reading::kD}) {
      starts.emplace_back().reading = reading;
    }
    starts.push_back(starts.back());
    starts.back().neutral = Options::Neutral::kBos;
  }
  std::vector<Options> all;
  for (Options options : starts) {
    for (const auto score : {Options::Score::kLogit, Options::Score::kCentred,
                             Options::Score::kLogProb, Options::Score::kPmi}) {
      for (const int32_t min_gap : {0, 3}) {
        options.score = score;
        options.min_gap = min_gap;
        all.push_back(options);
      }
    }
  }
  return all;
}

std::string Describe(const Options& options) {
  static constexpr const char* kScores[] = {"logit", "centred", "logprob", "pmi"};
  std::string text = StrCat("reading ", std::string(1, "ABCD"[static_cast<int>(options.reading)]));
  if (options.neutral == Options::Neutral::kBos) text += " from BOS";
  if (options.ffn) text += " with ffn";
  return StrCat(text, ", score ", kScores[static_cast<int>(options.score)], ", min_gap ",
                options.min_gap);
}

double ScoreDifference(const std::vector<float>& scores, const std::vector<double>& expected) {
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  if (scores.size() != expected.size()) return kInfinite;
  double largest = 0.0;
  for (size_t slot = 0; slot < scores.size(); ++slot) {
    if (std::isnan(scores[slot]) != std::isnan(expected[slot])) return kInfinite;
    if (std::isnan(scores[slot])) continue;
    largest = std::max(largest, std::fabs(scores[slot] - expected[slot]));
  }
  return largest;
}

}  // namespace kvbound::testing
