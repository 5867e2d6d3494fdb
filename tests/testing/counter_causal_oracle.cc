#include "testing/counter_causal_oracle.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace kvbound::testing {
namespace {

using Row = ReferencePass::Row;
using Rows = ReferencePass::Rows;
using Reading = CounterCausalOptions::Reading;
using Score = CounterCausalOptions::Score;

class Oracle {
 public:
  Oracle(const TinyModel& model, const OracleCache& cache, const OracleOptions& options)
      : model_(model), pass_(model), cache_(cache), o_(options), mean_(model.options.n_embd) {
    for (const int32_t position : cache.slots) {
      rank_.push_back(static_cast<int>(std::ranges::count_if(
          cache.slots, [position](int32_t other) { return other < position; })));
    }
    for (int32_t id = 0; id < model.n_vocab(); ++id) {
      ReferencePass::Add(pass_.Embedding(id), &mean_);
    }
    for (double& x : mean_) x /= model.n_vocab();
    for (size_t layer = 0; layer < cache.pass.keys.size(); ++layer) {
      Rows& k = keys_.emplace_back();
      Rows& v = values_.emplace_back();
      for (size_t slot = 0; slot < cache.slots.size(); ++slot) {
        const int32_t position = cache.slots[slot];
        Row key = cache.pass.keys[layer][position];
        pass_.Rotate(cache.rope[slot] - position, &key);
        k.push_back(std::move(key));
        v.push_back(cache.pass.values[layer][position]);
      }
    }
  }

  double ScoreOf(int slot) const {
    const int source = SourceOf(slot);
    if (source < 0) return std::numeric_limits<double>::quiet_NaN();
    const Reading reading = o_.options.reading;
    const int32_t position = reading == Reading::kD ? cache_.rope[slot] - 1 : cache_.rope[source];
    const int first_rank = Rank(slot) + 1 + o_.options.min_gap + (reading == Reading::kC ? 1 : 0);
    const auto visible = [&](int, int j) {
      return o_.causal ? Rank(j) <= Rank(slot) : Rank(j) >= first_rank;
    };
    Row x = Start(source);
    const int n_layer = model_.options.n_layer;
    for (int layer = o_.fast ? n_layer - 1 : 0; layer < n_layer; ++layer) {
      const Row q = pass_.Query(layer, x, position);
      ReferencePass::Add(pass_.Attend(layer, q, keys_[layer], values_[layer], visible), &x);
      if (o_.fast && !o_.options.ffn) break;
      ReferencePass::Add(pass_.FeedForward(layer, x), &x);
    }
    return Read(pass_.Head(x), cache_.tokens[slot]);
  }

 private:
  int Rank(int slot) const { return rank_[slot]; }

  // The slot whose token starts the stream, or -1.
  int SourceOf(int slot) const {
    int rank = Rank(slot);
    if (o_.options.reading == Reading::kB) --rank;
    if (o_.options.reading == Reading::kC) ++rank;
    for (int s = 0; s < static_cast<int>(cache_.slots.size()); ++s) {
      if (Rank(s) == rank) return s;
    }
    return -1;
  }

  Row Start(int source) const {
    if (o_.fast) return cache_.pass.last_input[cache_.slots[source]];
    if (o_.options.reading != Reading::kD) return pass_.Embedding(cache_.tokens[source]);
    if (o_.options.neutral == CounterCausalOptions::Neutral::kBos) return pass_.Embedding(1);
    return mean_;
  }

  double Read(const Row& z, int32_t token) const {
    const double mean = std::accumulate(z.begin(), z.end(), 0.0) / static_cast<double>(z.size());
    switch (o_.options.score) {
      case Score::kLogit:
        return z[token];
      case Score::kCentred:
        return z[token] - mean;
      case Score::kLogProb:
        return -ReferenceNll(z, token);
      case Score::kPmi:
        break;
    }
    const double count = static_cast<double>(std::ranges::count(cache_.ids, token));
    const double n_all = static_cast<double>(cache_.ids.size() + z.size());
    return -ReferenceNll(z, token) - std::log((count + 1.0) / n_all);
  }

  const TinyModel& model_;
  const ReferencePass pass_;
  const OracleCache& cache_;
  const OracleOptions& o_;
  std::vector<int> rank_;     // of each slot in position order
  Row mean_;                  // of all embeddings
  std::vector<Rows> keys_;    // [n_layer, n_slot]
  std::vector<Rows> values_;  // [n_layer, n_slot]
};

}  // namespace

std::vector<double> CounterCausalOracle(const TinyModel& model, const OracleCache& cache,
                                        const OracleOptions& options) {
  const Oracle oracle(model, cache, options);
  std::vector<double> scores;
  for (size_t slot = 0; slot < cache.slots.size(); ++slot) {
    scores.push_back(oracle.ScoreOf(static_cast<int>(slot)));
  }
  return scores;
}

}  // namespace kvbound::testing
