#include "scoring/counter_causal.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/check.h"
#include "base/strings.h"

namespace kvbound {
namespace {

constexpr float kUndefined = std::numeric_limits<float>::quiet_NaN();
constexpr int64_t kMaxTileBytes = int64_t{16} << 20;
constexpr int32_t kMaxTile = 256;
constexpr int32_t kMinTile = 8;

using Reading = CounterCausalOptions::Reading;
using Score = CounterCausalOptions::Score;

bool NeedsVocabulary(Score score) { return score == Score::kLogProb || score == Score::kPmi; }

GraphSpec SpecOf(ModelScore score, const HParams& hparams, const CounterCausalOptions& options,
                 int32_t n_tile, int32_t n_kv) {
  GraphSpec spec;
  spec.append = false;
  spec.n_tok = n_tile;
  spec.n_kv = n_kv;
  if (score == ModelScore::kCounterCausalFast) {
    spec.start = GraphSpec::Start::kHiddenRows;
    spec.first_layer = hparams.n_layer - 1;
    spec.last_ffn = options.ffn;
  } else if (options.reading == Reading::kD &&
             options.neutral == CounterCausalOptions::Neutral::kMeanEmbedding) {
    spec.start = GraphSpec::Start::kRows;
  }
  spec.output =
      NeedsVocabulary(options.score) ? GraphSpec::Output::kNormed : GraphSpec::Output::kTargetLogit;
  spec.centred = options.score == Score::kCentred;
  return spec;
}

}  // namespace

int32_t ScoreTile(const KvLayout& layout, const HParams& hparams) {
  const int64_t row_bytes = int64_t{layout.n_slot()} * hparams.n_head * sizeof(float);
  const int64_t fits = std::clamp<int64_t>(kMaxTileBytes / row_bytes, kMinTile, kMaxTile);
  const int64_t n_tiles = (layout.max_slots() + fits - 1) / fits;
  const int64_t even = (layout.max_slots() + n_tiles - 1) / n_tiles;  // no nearly empty last tile
  return static_cast<int32_t>((even + kMinTile - 1) / kMinTile * kMinTile);
}

int64_t VocabBlockRows(const HParams& hparams) { return std::min<int64_t>(hparams.n_vocab, 4096); }

std::vector<GraphCase> ScoreCases(const KvLayout& layout, const HParams& hparams,
                                  ModelScore score) {
  std::vector<GraphCase> cases;
  for (Score kind : {Score::kLogit, Score::kCentred, Score::kLogProb}) {
    CounterCausalOptions options;
    options.score = kind;
    options.ffn = score == ModelScore::kCounterCausalFast;
    GraphSpec spec = SpecOf(score, hparams, options, ScoreTile(layout, hparams), layout.n_slot());
    cases.push_back({spec, {{0, 1}}});
    if (score == ModelScore::kCounterCausalFull) {
      spec.start = GraphSpec::Start::kRows;
      cases.push_back({spec, {{0, 1}}});
    }
  }
  return cases;
}

Status ValidateCounterCausal(ModelScore score, const CounterCausalOptions& options) {
  if (options.min_gap < 0) {
    return InvalidArgument(StrCat("min_gap: expected 0 or more, found ", options.min_gap));
  }
  if (score == ModelScore::kCounterCausalFast && options.reading != Reading::kA) {
    return InvalidArgument("reading: fast scoring has reading A only; use counter-causal");
  }
  if (score == ModelScore::kCounterCausalFull && options.ffn) {
    return InvalidArgument("ffn: full scoring always applies it; use counter-causal-fast");
  }
  return Status::Ok();
}

ScoreScratch::ScoreScratch(const KvLayout& layout, const HParams& hparams)
    : order(layout.n_slot()),
      rank(layout.n_slot()),
      normed(size_t{1} * ScoreTile(layout, hparams) * hparams.n_embd),
      block(VocabBlockRows(hparams)),
      max(ScoreTile(layout, hparams)),
      sum(ScoreTile(layout, hparams)) {}

uint64_t ScoreScratch::Bytes(const KvLayout& layout, const HParams& hparams) {
  const uint64_t tile = ScoreTile(layout, hparams);
  return layout.n_slot() * 2 * sizeof(int32_t) + tile * hparams.n_embd * sizeof(float) +
         VocabBlockRows(hparams) * sizeof(float) + tile * (sizeof(float) + sizeof(double));
}

uint64_t ScoreScratch::allocated_bytes() const {
  return (order.capacity() + rank.capacity()) * sizeof(int32_t) +
         (normed.capacity() + block.capacity() + max.capacity()) * sizeof(float) +
         sum.capacity() * sizeof(double);
}

CounterCausalScorer::CounterCausalScorer(ModelScore score, int32_t seq, const LoadedModel& model,
                                         KvStore& store, GraphRunner& runner, GraphInputs& inputs,
                                         ScoreScratch& scratch, const Frequencies& frequencies)
    : score_(score),
      seq_(seq),
      model_(model),
      store_(store),
      runner_(runner),
      inputs_(inputs),
      scratch_(scratch),
      frequencies_(frequencies) {}

Status CounterCausalScorer::CounterCausal(const CounterCausalOptions& options,
                                          std::span<float> scores) {
  return Score(options, Direction::kCounterCausal, scores);
}

Status CounterCausalScorer::Score(const CounterCausalOptions& options, Direction direction,
                                  std::span<float> scores) {
  KVBOUND_RETURN_IF_ERROR(ValidateCounterCausal(score_, options));
  const HParams& hp = model_.hparams();
  if (options.reading == Reading::kD && options.neutral == CounterCausalOptions::Neutral::kBos &&
      !hp.bos_id) {
    return Unsupported(StrCat(model_.file().path(), ": neutral=bos: the model has no BOS token"));
  }
  const int32_t n = store_.n(seq_);
  DCHECK(static_cast<int32_t>(scores.size()) == n);
  const int32_t n_tile = ScoreTile(store_.layout(), hp);
  const int32_t n_kv = GroupedSlots(n);
  const GraphSpec spec = SpecOf(score_, hp, options, n_tile, n_kv);
  const SeqRun run{seq_, 1};
  OrderSlots();
  if (!inputs_.has_mask()) {
    std::ranges::copy(std::span(scratch_.rank).first(n), inputs_.ranks.begin());
    std::fill_n(inputs_.occupied.begin(), hp.n_kv_head, n);
  }
  if (spec.centred) inputs_.mean_head = model_.MeanHeadRow();
  for (int32_t first = 0; first < n; first += n_tile) {
    FillTile(first, n_tile, n_kv, options, direction);
    if (spec.start == GraphSpec::Start::kRows) FillNeutral();  // LogProbs uses the same rows
    inputs_.rows = scratch_.normed;
    KVBOUND_ASSIGN_OR_RETURN(const Graph* graph, runner_.Get(spec, {&run, 1}));
    inputs_.Upload(*graph);
    KVBOUND_RETURN_IF_ERROR(runner_.Compute(*graph));
    const std::span<float> out = scores.subspan(first, std::min(n_tile, n - first));
    if (graph->target_logit != nullptr) {
      ReadOutput(graph->target_logit, 0, out);
    } else {
      KVBOUND_RETURN_IF_ERROR(LogProbs(first, n_tile, *graph, out));
    }
  }
  const std::span<const Token> tokens = store_.tokens(seq_, 0);
  for (int32_t slot = 0; slot < n; ++slot) {
    if (!QueryOf(slot, options, direction).defined) scores[slot] = kUndefined;
    if (options.score == Score::kPmi) scores[slot] -= LogFrequency(tokens[slot]);
  }
  return Status::Ok();
}

void CounterCausalScorer::OrderSlots() {
  const int32_t n = store_.n(seq_);
  const std::span<const Position> positions = store_.positions(seq_, 0);
  const auto order = std::span(scratch_.order).first(n);
  std::iota(order.begin(), order.end(), 0);
  std::ranges::sort(order, {}, [&](int32_t slot) { return positions[slot]; });
  for (int32_t r = 0; r < n; ++r) scratch_.rank[order[r]] = r;
}

CounterCausalScorer::Query CounterCausalScorer::QueryOf(int32_t slot,
                                                        const CounterCausalOptions& options,
                                                        Direction direction) const {
  const int32_t n = store_.n(seq_);
  const std::span<const RopePosition> positions = store_.rope_positions(seq_, 0);
  const int32_t rank = scratch_.rank[slot];
  const auto neighbour = [&](int32_t r) { return scratch_.order[std::clamp(r, 0, n - 1)]; };
  Query query{true, slot, positions[slot].value, rank + 1 + options.min_gap, n};
  switch (options.reading) {
    case Reading::kA:
      break;
    case Reading::kB:
      query.defined = rank > 0;
      query.source = neighbour(rank - 1);
      query.position = positions[query.source].value;
      break;
    case Reading::kC:
      query.defined = rank + 1 < n;
      query.source = neighbour(rank + 1);
      query.position = positions[query.source].value;
      query.first_rank += 1;
      break;
    case Reading::kD:
      query.position -= 1;
      break;
  }
  if (direction == Direction::kCausal) {
    query.first_rank = 0;
    query.end_rank = rank + 1;
  }
  return query;
}

// Fills the inputs for slots [first, first + n_tile); rows past the last slot compute nothing of
// use.
void CounterCausalScorer::FillTile(int32_t first, int32_t n_tile, int32_t n_kv,
                                   const CounterCausalOptions& options, Direction direction) {
  const int32_t n = store_.n(seq_);
  const std::span<const Token> tokens = store_.tokens(seq_, 0);
  const bool fast = score_ == ModelScore::kCounterCausalFast;
  for (int32_t i = 0; i < n_tile; ++i) {
    const int32_t slot = std::min(first + i, n - 1);
    const Query query = QueryOf(slot, options, direction);
    const Token start = options.reading == Reading::kD && model_.hparams().bos_id
                            ? *model_.hparams().bos_id
                            : tokens[query.source];
    inputs_.tokens[i] = fast ? query.source : start;
    inputs_.positions[i] = query.position;
    inputs_.targets[i] = tokens[slot];
    inputs_.visible[i] = {query.first_rank, n - query.end_rank};
    if (!inputs_.has_mask()) continue;
    const std::span<float> mask = inputs_.MaskRow(i, n_kv);
    std::ranges::fill(mask, kMasked);
    const bool any = query.first_rank < query.end_rank;
    inputs_.row_on[i] = any ? 1.0f : 0.0f;
    if (!any) mask[0] = 0.0f;  // keeps the softmax finite; row_on silences it
    for (int32_t r = query.first_rank; r < query.end_rank; ++r) mask[scratch_.order[r]] = 0.0f;
  }
}

void CounterCausalScorer::FillNeutral() {
  const std::span<const float> mean = model_.MeanEmbedding();
  for (size_t at = 0; at < scratch_.normed.size(); at += mean.size()) {
    std::ranges::copy(mean, scratch_.normed.begin() + at);
  }
}

// log softmax(z)[target] of each slot of the tile, by a running log-sum-exp over blocks of the
// vocabulary. The last block overlaps the one before; its rows seen before are skipped.
Status CounterCausalScorer::LogProbs(int32_t first, int32_t n_tile, const Graph& graph,
                                     std::span<float> scores) {
  const int64_t n_vocab = model_.hparams().n_vocab;
  const int64_t n_rows = runner_.vocab_block_rows();
  const std::span<const Token> targets = store_.tokens(seq_, 0).subspan(first, scores.size());
  ReadOutput(graph.normed, 0,
             std::span(scratch_.normed).first(int64_t{n_tile} * model_.hparams().n_embd));
  std::ranges::fill(scratch_.max, kMasked);
  std::ranges::fill(scratch_.sum, 0.0);
  KVBOUND_ASSIGN_OR_RETURN(const Graph* block, runner_.GetVocabBlock());
  for (int64_t begin = 0; begin < n_vocab; begin += n_rows) {
    const int64_t row = std::min(begin, n_vocab - n_rows);
    runner_.SetVocabBlock(row);
    inputs_.rows = scratch_.normed;
    inputs_.Upload(*block);
    KVBOUND_RETURN_IF_ERROR(runner_.Compute(*block));
    for (size_t i = 0; i < scores.size(); ++i) {
      ReadOutput(block->logits, i * n_rows, scratch_.block);
      const std::span<const float> z = std::span(scratch_.block).subspan(begin - row);
      const float max = std::max(scratch_.max[i], *std::ranges::max_element(z));
      double sum = scratch_.sum[i] * std::exp(double{scratch_.max[i]} - max);
      for (float value : z) sum += std::exp(value - max);
      scratch_.max[i] = max;
      scratch_.sum[i] = sum;
      if (targets[i] >= begin && targets[i] < row + n_rows) scores[i] = z[targets[i] - begin];
    }
  }
  for (size_t i = 0; i < scores.size(); ++i) {
    scores[i] -= static_cast<float>(scratch_.max[i] + std::log(scratch_.sum[i]));
  }
  return Status::Ok();
}

float CounterCausalScorer::LogFrequency(Token token) const {
  const double count = frequencies_.counts[token] + 1.0;
  return static_cast<float>(
      std::log(count / (static_cast<double>(frequencies_.total) + model_.hparams().n_vocab)));
}

}  // namespace kvbound
