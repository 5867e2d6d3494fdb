#ifndef KVBOUND_TESTING_SCORED_RUN_H_
#define KVBOUND_TESTING_SCORED_RUN_H_

#include <memory>
#include <string>
#include <vector>

#include "kvbound/session.h"
#include "testing/counter_causal_oracle.h"
#include "testing/tiny_engine.h"

namespace kvbound::testing {

// A session of a policy that scores with a tiny model, and everything that was fed to it, so that
// its cache can be computed again without the engine.
class ScoredRun {
 public:
  // Not protected beyond what the policy forces.
  ScoredRun(const TinyModel& model, const EngineOptions& options);

  void Feed(const std::vector<Token>& tokens);
  void Decode(const std::vector<Token>& tokens);

  // The cache as it is now, from ReferenceForward.
  OracleCache Cache() const;

  std::vector<float> Scores(const CounterCausalOptions& options) const;
  // The engine's scores with the mask of an ordinary forward pass.
  std::vector<float> CausalScores(const CounterCausalOptions& options) const;

  Engine& engine() { return *engine_; }
  Session& session() { return *session_; }
  const TinyModel& model() const { return model_; }
  const CutLog& log() const { return *log_; }
  bool fast() const { return fast_; }

 private:
  TinyModel model_;
  bool fast_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Session> session_;
  std::unique_ptr<CutLog> log_;
  std::vector<Token> ids_;
};

// Every combination that full or fast scoring takes.
std::vector<CounterCausalOptions> AllScoreOptions(bool fast);

// "reading B, score pmi, min_gap 1".
std::string Describe(const CounterCausalOptions& options);

// Largest difference; infinite if the lengths differ or one alone is NaN.
double ScoreDifference(const std::vector<float>& scores, const std::vector<double>& expected);

}  // namespace kvbound::testing

#endif  // KVBOUND_TESTING_SCORED_RUN_H_
