#ifndef KVBOUND_TESTS_GOLDEN_SESSION_RUN_H_
#define KVBOUND_TESTS_GOLDEN_SESSION_RUN_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kvbound/session.h"
#include "kvbound/status.h"

namespace kvbound::golden {

// What a reader of logits needs of one row [n_vocab].
struct RowSummary {
  Token top = 0;         // argmax, the lowest id on ties
  float gap = 0;         // first minus second logit
  double logsumexp = 0;  // over the vocabulary
};
RowSummary Summarize(std::span<const float> row);

// A cut, per set, in the order of positions.
struct RecordedCut {
  int64_t tokens_seen = 0;
  int32_t n_before = 0;
  std::vector<std::vector<int32_t>> positions;  // [n_set][n_before]
  std::vector<std::vector<float>> scores;       // [n_set][n_before], higher = keep
  std::vector<std::vector<int32_t>> kept;       // [n_set][n_kept], positions
  std::vector<std::vector<float>> log_beta;     // [n_set][n_before] of policies per head with gates
};

// A prompt and what followed it.
struct RecordedRun {
  std::vector<Token> tokens;  // [n_new]: chosen, or as given
  std::vector<float> gap;     // [n_new]
  std::vector<float> logp;    // [n_new], of each token
  std::vector<RecordedCut> cuts;
};

// An engine for one session, f32 K and V, and the session.
struct EngineAndSession {
  std::unique_ptr<Engine> engine;
  std::unique_ptr<Session> session;
};
struct RunnerOptions {
  int32_t n_threads = 0;
  AttentionPath attention = AttentionPath::kAuto;
};
Result<EngineAndSession> OpenSession(const std::shared_ptr<const Model>& model,
                                     const RunnerOptions& runner, int32_t budget, int32_t chunk,
                                     const PolicyOptions& policy, Protection protection = {},
                                     int32_t max_logit_rows = 1,
                                     std::shared_ptr<const Gates> gates = nullptr);

// Feeds `prompt` and then n_new - 1 tokens one by one: those of `forced` [n_new], or, where it
// is empty, the most probable ones (end tokens are like any other). Cuts beyond `max_cuts` are
// not recorded.
Result<RecordedRun> RunSession(EngineAndSession& run, std::span<const Token> prompt, size_t n_new,
                               std::span<const Token> forced, size_t max_cuts);

// Called with the index of each token fed and the logits after it.
using RowVisitor = std::function<void(size_t index, std::span<const float> row)>;

// Feeds `tokens` in pieces of at most `chunk` tokens that keep to the chunk's borders. The
// session must have been opened with max_logit_rows >= chunk.
Status VisitRows(EngineAndSession& run, std::span<const Token> tokens, const RowVisitor& visit);

// The mean of -log p(tokens[i] | prompt, tokens[0, i)) under the full cache, and how many of
// `tokens` the full cache would have chosen itself before its first different choice.
struct FullCacheView {
  double mean_nll = 0;
  size_t same_prefix = 0;
  float gap_at_end = 0;  // of the choice that differed
};
Result<FullCacheView> ViewUnderFullCache(const std::shared_ptr<const Model>& model,
                                         const RunnerOptions& runner, std::span<const Token> prompt,
                                         std::span<const Token> tokens);

}  // namespace kvbound::golden

#endif  // KVBOUND_TESTS_GOLDEN_SESSION_RUN_H_
