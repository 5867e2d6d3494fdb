#ifndef KVBOUND_GENERATE_ENGINE_IMPL_H_
#define KVBOUND_GENERATE_ENGINE_IMPL_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "generate/memory_plan.h"
#include "kv/store.h"
#include "kvbound/session.h"
#include "model/graph_inputs.h"
#include "model/graph_runner.h"
#include "policy/protection.h"
#include "scoring/counter_causal.h"

namespace kvbound {

// The store, the graphs and the host arrays behind an Engine.
class EngineImpl {
 public:
  static Result<std::unique_ptr<EngineImpl>> Create(std::shared_ptr<const Model> model,
                                                    const EngineOptions& options);

  // InvalidArgument if an id is outside the vocabulary.
  Status CheckTokens(std::span<const Token> tokens) const;
  // As Engine::Step, for checked tokens.
  Status Step(std::span<Session* const> sessions, std::span<const Token> tokens);

  enum class Want { kNothing, kLast, kAll };
  // Runs one forward pass over the last n_tok slots of each of `seqs` (ascending, one sequence if
  // n_tok > 1), whose tokens the store has already. kLast fills logits() of each sequence, kAll
  // also all_logits(n_tok) of the one. Corrupt if a logit is not finite, naming the position.
  Status Forward(std::span<const int32_t> seqs, int32_t n_tok, Want want);

  std::span<float> logits(int32_t seq);
  std::span<float> all_logits(int32_t n_rows);
  MemoryPlan Allocated() const;
  const HParams& hparams() const { return model->loaded().hparams(); }

  std::shared_ptr<const Model> model;
  EngineShape shape;
  MemoryPlan plan;
  std::unique_ptr<KvStore> store;
  std::unique_ptr<LoadedGates> gates;  // null unless the default policy needs them
  std::unique_ptr<GraphRunner> runner;
  std::optional<GraphInputs> inputs;
  std::optional<ScoreScratch> scratch;
  std::vector<Session::Impl*> sessions;  // [n_seq], null where free

 private:
  EngineImpl() = default;
  void FindRuns(std::span<const int32_t> seqs);
  void FillInputs(std::span<const int32_t> seqs, int32_t n_tok, int32_t n_kv, int32_t n_out);
  Status ReadLogits(const Graph& graph, std::span<const int32_t> seqs, int32_t n_tok, Want want);
  Status ReadLogBeta(const Graph& graph, std::span<const int32_t> seqs, int32_t n_tok);
  void ReadAttentionMass(const Graph& graph, std::span<const int32_t> seqs);
  Status CheckFinite(std::span<const float> row, int32_t seq, int32_t slot) const;
  Status CheckBatch(std::span<Session* const> sessions) const;

  std::vector<float> logits_;       // [n_seq + max_logit_rows, n_vocab]
  std::vector<float> gate_output_;  // of one layer of the pass under way
  std::vector<SeqRun> runs_;        // of the pass under way
  std::vector<int32_t> batch_;      // its sequences, ascending
};

// One sequence of an engine: a row of the store and what belongs to it.
class Session::Impl {
 public:
  // Makes the policy, again at each Reset.
  using MakePolicyFunction = std::function<Result<std::unique_ptr<EvictionPolicy>>()>;

  Impl(EngineImpl& engine, int32_t seq, MakePolicyFunction make_policy,
       std::unique_ptr<EvictionPolicy> policy, ProtectedSpans protection);
  ~Impl();

  // What must happen before `token` is appended: a slot of a generated token learns the token
  // after it, and a cut that waited for it runs (align=published).
  Status BeforeAppend(Token token);
  // OutOfBudget if t more tokens do not fit.
  Status CheckRoom(int64_t t) const;
  // Feeds tokens that lie in one chunk, then cuts.
  Status FeedChunk(std::span<const Token> tokens, EngineImpl::Want want);
  // Pins the first prompt if the protection says so.
  Status PinPrompt(int64_t n_tokens);
  // Counts tokens whose forward pass is done.
  void AfterAppend(std::span<const Token> tokens);
  // Runs the cut if more than the budget is occupied. One that fails is tried again before the
  // next token.
  Status CutIfFull();
  // The same after a decoded token that ends a chunk; waits for the next token if the policy does.
  Status CutAfterStep();
  // Tokens that can be fed before the next cut comes due, 1 .. chunk.
  int32_t tokens_to_cut() const;

  EngineImpl& engine;
  const int32_t seq;
  MakePolicyFunction make_policy;
  std::unique_ptr<EvictionPolicy> policy;
  PolicyInfo info;
  ProtectedSpans protection;
  CounterCausalScorer::Frequencies frequencies;
  std::optional<CounterCausalScorer> scorer;
  CutObserver observer;
  SessionStats stats;
  bool has_logits = false;
  bool last_was_decoded = false;  // the last token came from Engine::Step
  bool cut_waits = false;
  int32_t n_all_logits = 0;
};

// The budget is exceeded: score, select, release. One path for prefill and decode. On failure
// nothing is evicted.
Status Cut(Session::Impl& session);

}  // namespace kvbound

#endif  // KVBOUND_GENERATE_ENGINE_IMPL_H_
