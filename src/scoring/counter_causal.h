#ifndef KVBOUND_SCORING_COUNTER_CAUSAL_H_
#define KVBOUND_SCORING_COUNTER_CAUSAL_H_

#include <cstdint>
#include <span>
#include <vector>

#include "kv/store.h"
#include "kvbound/policy.h"
#include "kvbound/status.h"
#include "model/graph_inputs.h"
#include "model/graph_runner.h"

namespace kvbound {

// Slots scored in one pass. Streams of different slots do not read each other, so tiles are
// independent and bound the workspace: at most 16 MiB of attention weights each.
int32_t ScoreTile(const KvLayout& layout, const HParams& hparams);

// Rows of the vocabulary whose logits exist at one time.
int64_t VocabBlockRows(const HParams& hparams);

// The largest passes of a score, to reserve.
std::vector<GraphCase> ScoreCases(const KvLayout& layout, const HParams& hparams, ModelScore score);

// Refuses options that the score does not take: reading and neutral (fast), ffn (full), a
// negative gap.
Status ValidateCounterCausal(ModelScore score, const CounterCausalOptions& options);

// What one engine needs for scoring besides the graphs, shared by its sessions.
class ScoreScratch {
 public:
  ScoreScratch(const KvLayout& layout, const HParams& hparams);
  static uint64_t Bytes(const KvLayout& layout, const HParams& hparams);
  uint64_t allocated_bytes() const;

  std::vector<int32_t> order;  // [n_slot] slots by position
  std::vector<int32_t> rank;   // [n_slot] of each slot in that order
  std::vector<float> normed;   // [tile, n_embd], also rows of a neutral start
  std::vector<float> block;    // [vocab block] logits of one slot
  std::vector<float> max;      // [tile] running maximum and sum of exponentials
  std::vector<double> sum;     // [tile]
};

// Counter-causal surprise (arXiv 2607.27600), full and fast: the attention mask is flipped, so
// that slot i reads the cached K and V of slots after it in position order; only Q is new. The
// cache is read, never written. Full scoring runs all layers from the slot's embedding; fast
// scoring the last layer's attention from the slot's kept hidden row.
class CounterCausalScorer final : public SlotScorer {
 public:
  // How often each token of the vocabulary was fed, for pmi.
  struct Frequencies {
    std::vector<int32_t> counts;  // [n_vocab]
    int64_t total = 0;
  };
  // kCausal reads slots up to and with its own: reproduces the ordinary logits (tests).
  enum class Direction { kCounterCausal, kCausal };

  // All references must outlive the scorer. Scores sequence `seq` of the store.
  CounterCausalScorer(ModelScore score, int32_t seq, const LoadedModel& model, KvStore& store,
                      GraphRunner& runner, GraphInputs& inputs, ScoreScratch& scratch,
                      const Frequencies& frequencies);

  Status CounterCausal(const CounterCausalOptions& options, std::span<float> scores) override;

  Status Score(const CounterCausalOptions& options, Direction direction, std::span<float> scores);

 private:
  // One slot's query: where its stream starts and what it may read.
  struct Query {
    bool defined = false;
    int32_t source = 0;  // slot whose token or hidden row starts the stream
    int32_t position = 0;
    int32_t first_rank = 0;  // reads ranks [first_rank, end_rank)
    int32_t end_rank = 0;
  };

  void OrderSlots();
  Query QueryOf(int32_t slot, const CounterCausalOptions& options, Direction direction) const;
  void FillTile(int32_t first, int32_t n_tile, int32_t n_kv, const CounterCausalOptions& options,
                Direction direction);
  void FillNeutral();
  Status LogProbs(int32_t first, int32_t n_tile, const Graph& graph, std::span<float> scores);
  float LogFrequency(Token token) const;

  ModelScore score_;
  int32_t seq_;
  const LoadedModel& model_;
  KvStore& store_;
  GraphRunner& runner_;
  GraphInputs& inputs_;
  ScoreScratch& scratch_;
  const Frequencies& frequencies_;
};

}  // namespace kvbound

#endif  // KVBOUND_SCORING_COUNTER_CAUSAL_H_
