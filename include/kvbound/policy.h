#ifndef KVBOUND_POLICY_H_
#define KVBOUND_POLICY_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kvbound/status.h"
#include "kvbound/types.h"

namespace kvbound {

// Which slots share one decision. A cache keeps n_set token sets: 1, n_layer, or
// n_layer * n_kv_head of them; set = 0, layer, or layer * n_kv_head + kv_head.
enum class Granularity { kShared, kPerLayer, kPerHead };

std::string_view GranularityName(Granularity granularity);

// What no cut may take, whatever the policy scores. Counts inside the budget.
struct Protection {
  int32_t sinks = 0;        // the first positions of the sequence
  int32_t recent = 0;       // the last positions fed
  bool pin_prompt = false;  // the first prompt fed (in a chat: the system message)
};

// Which score of the model a policy asks for (see SlotScorer).
enum class ModelScore { kNone, kCounterCausalFull, kCounterCausalFast };

struct PolicyInfo {
  std::string name;     // as typed after --policy
  std::string summary;  // one line: what is kept
  std::string paper;    // "arXiv 2309.17453", or "-"
  Granularity granularity = Granularity::kShared;
  ModelScore model_score = ModelScore::kNone;
  // Score reads log beta of every slot: the engine needs gates.
  bool needs_gates = false;
  // Score reads the attention that slots have got: fused attention alone computes it.
  bool needs_attention_mass = false;
  // A cut comes only when budget + chunk slots are occupied, not at every multiple of the chunk.
  bool cuts_when_full = false;
  // A cut in decode waits until the token after the last one fed is known (align=published).
  bool needs_next_token = false;
  // False: never cuts; feeding beyond the budget is an error.
  bool evicts = true;
  // Used for every field of the protection that the user leaves open; sinks shrink to half of a
  // small budget and recent to a quarter of it.
  Protection default_protection;
  // Fewer sinks than this are refused.
  int32_t min_sinks = 0;
  // The last positions that Score keeps in any case. They count like protection when a session
  // is made, so that a budget too small for them is refused before anything runs.
  int32_t min_recent = 0;
};

// Counter-causal surprise (Gould and van den Hengel, arXiv 2607.27600): how well do the cached
// tokens after slot i predict token i? The most predictable are evicted.
struct CounterCausalOptions {
  // Start of the residual stream for slot i, in position order, and where its query sits:
  // A: token i at i. B: token i-1 at i-1. C: token i+1 at i+1. D: a neutral vector at i-1.
  enum class Reading { kA, kB, kC, kD };
  enum class Neutral { kMeanEmbedding, kBos };
  // kPublished: a generated token's slot is scored for the token after it, as the authors' code.
  enum class Align { kAligned, kPublished };
  // Of the logit row z and the slot's token x: z[x]; z[x] - mean z; log softmax(z)[x]; and that
  // minus the log of x's frequency among all tokens fed (add-one smoothed).
  enum class Score { kLogit, kCentred, kLogProb, kPmi };

  Reading reading = Reading::kA;              // full scoring only
  Neutral neutral = Neutral::kMeanEmbedding;  // reading D only
  Align align = Align::kAligned;
  Score score = Score::kLogit;
  bool ffn = false;     // fast scoring only: apply the last layer's feed-forward block
  int32_t min_gap = 0;  // slot i reads slots j >= i + 1 + min_gap; the last 1 + min_gap stay
};

// Retention gates (Bui et al., arXiv 2512.03324 and 2605.09649): beta of a token, layer and KV head
// to the power of the token's age.
struct RetentionOptions {
  // kDecay: beta^age (TRIM-KV). kFuture: the sum of beta^(age + s) over s = 0 .. horizon - 1
  // (DBTrimKV), what the token will have been worth by then.
  enum class Score { kDecay, kFuture };
  // Of a token at position i when t tokens have been fed: t - i, its age at the next query; or
  // t - i + 1, as in the authors' code.
  enum class Age { kNext, kCode };
  // kChunk: a cut whenever tokens seen are a multiple of the chunk. kFull: whenever budget + chunk
  // slots are occupied, as in the authors' code.
  enum class Cadence { kChunk, kFull };

  Score score = Score::kDecay;
  Age age = Age::kNext;
  Cadence cadence = Cadence::kChunk;
  int64_t horizon = 0;  // kFuture only: steps summed; 0: without end
};

// Computes a score of the model for every slot of a sequence; handed to policies that ask for it.
class SlotScorer {
 public:
  virtual ~SlotScorer() = default;

  // Fills scores [n_slot], in slot order, with the counter-causal score: higher = more
  // predictable. NaN where the reading is undefined. Leaves the cache untouched; allocates
  // nothing. Takes a forward pass over n_slot rows (full) or over the last layer alone (fast).
  virtual Status CounterCausal(const CounterCausalOptions& options, std::span<float> scores) = 0;
};

// What a policy sees of one sequence at a cut. Valid during the call only.
class CacheView {
 public:
  virtual ~CacheView() = default;

  virtual int32_t n_layer() const = 0;
  virtual int32_t n_kv_head() const = 0;
  virtual int32_t head_dim() const = 0;
  virtual int32_t n_set() const = 0;
  virtual int32_t n_slot() const = 0;  // occupied slots, the same in every set
  virtual int32_t budget() const = 0;  // slots that survive the cut
  virtual int64_t tokens_seen() const = 0;

  // Position and token at each slot of `set`: [n_slot], in slot order, which is not position
  // order once a cut has happened. REQUIRES: 0 <= set < n_set().
  virtual std::span<const Position> positions(int32_t set) const = 0;
  virtual std::span<const Token> tokens(int32_t set) const = 0;

  // log beta of each slot for one head: [n_slot], in slot order, below zero. REQUIRES:
  // PolicyInfo::needs_gates.
  virtual std::span<const float> log_beta(int32_t layer, int32_t kv_head) const = 0;

  // Attention that each slot of one head has got from all queries of its group since it was
  // entered: [n_slot], in slot order. REQUIRES: PolicyInfo::needs_attention_mass.
  virtual std::span<const float> attention_mass(int32_t layer, int32_t kv_head) const = 0;

  // Copies the keys of one head, rotated as the next query sees them, to out [n_slot, head_dim],
  // converted to float. A rebase may have turned them since the last cut.
  virtual Status ReadKeys(int32_t layer, int32_t kv_head, std::span<float> out) const = 0;

  // Not null iff PolicyInfo::model_score asked for it.
  virtual SlotScorer* scorer() const = 0;
};

// Scores of one cut: [n_set, n_slot], higher = keep, +infinity = keep in any case.
class ScoreTable {
 public:
  ScoreTable(std::span<float> scores, int32_t n_slot) : scores_(scores), n_slot_(n_slot) {}

  std::span<float> Row(int32_t set) {
    return scores_.subspan(static_cast<size_t>(set) * n_slot_, n_slot_);
  }

 private:
  std::span<float> scores_;
  int32_t n_slot_;
};

// Decides what a cut keeps. One object per sequence, so it may hold state of that sequence; it
// never frees anything: it returns numbers, and the store checks and releases. Not thread-safe.
class EvictionPolicy {
 public:
  virtual ~EvictionPolicy() = default;

  // The same answer at every call.
  virtual PolicyInfo Info() const = 0;

  // Called once a cut, when the sequence holds more than budget() slots. Fills every row of
  // `scores`; NaN is an error. On failure nothing is evicted and the step fails.
  virtual Status Score(const CacheView& view, ScoreTable& scores) = 0;
};

using PolicyFactory = std::function<std::unique_ptr<EvictionPolicy>()>;

// A policy by name, with the parameters that it takes. A parameter that the named policy does
// not take is refused, never ignored.
struct PolicyOptions {
  std::string name = "counter-causal-fast";
  std::optional<uint64_t> seed;                        // random (default 1)
  std::optional<Granularity> granularity;              // h2o, random, retention (per head)
  std::optional<CounterCausalOptions> counter_causal;  // counter-causal, counter-causal-fast
  std::optional<RetentionOptions> retention;           // retention
};

Result<std::unique_ptr<EvictionPolicy>> MakePolicy(const PolicyOptions& options);

// Every policy of the registry, in the order of its table.
std::vector<PolicyInfo> ListPolicies();

}  // namespace kvbound

#endif  // KVBOUND_POLICY_H_
