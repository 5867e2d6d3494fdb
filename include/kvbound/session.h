#ifndef KVBOUND_SESSION_H_
#define KVBOUND_SESSION_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kvbound/memory.h"
#include "kvbound/model.h"
#include "kvbound/options.h"
#include "kvbound/policy.h"
#include "kvbound/status.h"
#include "kvbound/types.h"

namespace kvbound {

class EngineImpl;
class Session;

// Counters of one session since its creation.
struct SessionStats {
  int64_t tokens_seen = 0;
  int64_t prompt_tokens = 0;   // fed by Feed
  int64_t decoded_tokens = 0;  // fed by Engine::Step
  int32_t tokens_kept = 0;     // occupied slots now
  int64_t tokens_evicted = 0;  // per set
  int64_t cuts = 0;
  int64_t rebases = 0;         // cuts that moved the RoPE positions back (PositionMode::kAuto)
  int32_t peak_slots = 0;      // never above budget + chunk
  double prompt_seconds = 0;   // forward passes of Feed
  double decode_seconds = 0;   // forward passes of Step, shared among the batch
  double scoring_seconds = 0;  // Score, Select and the move of survivors, in both phases
};

// What one cut did, for traces and pictures. Spans are valid during the call.
struct CutEvent {
  int64_t tokens_seen = 0;
  int32_t n_before = 0;
  int32_t n_kept = 0;
  bool rebases = false;  // the survivors' RoPE positions become 0 .. n_kept - 1
  Granularity granularity = Granularity::kShared;
  int32_t n_set = 1;
  int32_t n_kv_head = 1;                // set = layer * n_kv_head + kv_head if per head
  std::span<const Position> positions;  // [n_set, n_before], in slot order
  std::span<const Token> tokens;        // [n_set, n_before]
  std::span<const float> scores;        // [n_set, n_before], higher = keep
  std::span<const uint8_t> kept;        // [n_set, n_before], 1 = survives
  // [n_layer * n_kv_head, n_before] whatever the granularity; empty unless the policy needs gates.
  std::span<const float> log_beta;
};
using CutObserver = std::function<void(const CutEvent&)>;

// Called after each chunk of a prompt with tokens done and tokens in all; false stops the feed.
using FeedProgress = std::function<bool(int64_t done, int64_t total)>;

// A bounded cache for n_seq sequences over one model, and the graphs that read and extend it.
// Everything is allocated by Create. One thread at a time may use an engine and its sessions.
class Engine {
 public:
  static Result<std::unique_ptr<Engine>> Create(std::shared_ptr<const Model> model,
                                                const EngineOptions& options);
  ~Engine();

  // A session on a free row of the store; OutOfBudget when all n_seq rows are in use. The row is
  // free again when the session is destroyed. Sessions must not outlive their engine.
  Result<std::unique_ptr<Session>> NewSession(const SessionOptions& options);

  // One decode step: feeds tokens[i] to sessions[i], all in one batch, reading the weights once.
  // Afterwards each session's logits() are those after its token. A session's result does not
  // depend on who shares its batch beyond float rounding. On failure no session has changed,
  // unless it was a policy that failed at a cut: then all tokens are in the cache, and that cut is
  // tried again before its session's next token. Feed likewise.
  Status Step(std::span<Session* const> sessions, std::span<const Token> tokens);

  // The bytes planned before anything was allocated, and the bytes that were allocated: equal.
  const MemoryPlan& plan() const;
  MemoryPlan Allocated() const;

  const EngineOptions& options() const;  // n_threads and attention as resolved
  const Model& model() const;

  // Internal.
  EngineImpl& impl() { return *impl_; }

 private:
  explicit Engine(std::unique_ptr<EngineImpl> impl);

  std::unique_ptr<EngineImpl> impl_;
};

// One sequence: a row of the engine's store, its policy, its counters.
class Session {
 public:
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // Reads `tokens` in chunks that end at multiples of `chunk` tokens seen, with a cut after each
  // (if more than `budget` slots are occupied). A prompt is never held whole. Afterwards logits()
  // are those of the last token, computed before its chunk's cut. Empty input, an id outside the
  // vocabulary, or a policy that does not evict and has no room: an error before anything is fed.
  // Cancelled (by `progress`): the chunks reported as done are in the cache.
  Status Feed(std::span<const Token> tokens, const FeedProgress& progress = nullptr);

  // As Feed, for at most max_logit_rows tokens that lie in one chunk: AllLogits() then holds a
  // row for each of them.
  Status FeedWithLogits(std::span<const Token> tokens);

  // [n_vocab], after the last token fed; empty before the first. Valid until the engine's next
  // forward pass.
  std::span<const float> logits() const;
  // [n, n_vocab] of the last FeedWithLogits.
  std::span<const float> AllLogits() const;

  // No cut takes positions of `span` from now on. OutOfBudget if the protected slots would then
  // fill the budget; InvalidArgument if part of the span has been evicted or has not been fed.
  Status Pin(PositionSpan span);

  // Forgets all tokens, pins and policy state; the statistics start again.
  Status Reset();

  // Called at each cut, after the selection and before the release. nullptr: none.
  void SetCutObserver(CutObserver observer);

  const SessionStats& stats() const;
  const PolicyInfo& policy() const;
  Protection protection() const;  // with the policy's defaults filled in

  // Position and token of each occupied slot of `set`, in slot order; valid until the next step.
  std::span<const Position> positions(int32_t set = 0) const;
  std::span<const Token> tokens(int32_t set = 0) const;
  int32_t n_set() const;
  // By which positions RoPE has rotated the keys of those slots, and those of the next token.
  std::span<const RopePosition> rope_positions(int32_t set = 0) const;
  RopePosition next_rope_position() const;

  // Scores the slots as they are now, without a cut: [n_slot] in slot order (see SlotScorer).
  // InvalidArgument unless the session's policy asks for that score of the model.
  Status ScoreNow(const CounterCausalOptions& options, std::span<float> scores);

  class Impl;
  Impl& impl() { return *impl_; }
  explicit Session(std::unique_ptr<Impl> impl);  // made by Engine::NewSession

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvbound

#endif  // KVBOUND_SESSION_H_
