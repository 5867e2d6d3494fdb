#include <algorithm>
#include <chrono>
#include <limits>
#include <vector>

#include "base/check.h"
#include "generate/engine_impl.h"
#include "policy/select.h"

namespace kvbound {
namespace {

// The store's view of one sequence for its policy.
class StoreView final : public CacheView {
 public:
  explicit StoreView(Session::Impl& session)
      : session_(session), store_(*session.engine.store), layout_(store_.layout()) {}

  int32_t n_layer() const override { return layout_.n_layer; }
  int32_t n_kv_head() const override { return layout_.n_kv_head; }
  int32_t head_dim() const override { return layout_.head_dim; }
  int32_t n_set() const override { return store_.n_set(session_.seq); }
  int32_t n_slot() const override { return store_.n(session_.seq); }
  int32_t budget() const override { return layout_.budget; }
  int64_t tokens_seen() const override { return session_.stats.tokens_seen; }

  std::span<const Position> positions(int32_t set) const override {
    return store_.positions(session_.seq, set);
  }
  std::span<const Token> tokens(int32_t set) const override {
    return store_.tokens(session_.seq, set);
  }
  std::span<const float> log_beta(int32_t layer, int32_t kv_head) const override {
    return store_.log_beta(session_.seq, layer, kv_head);
  }
  std::span<const float> attention_mass(int32_t layer, int32_t kv_head) const override {
    return store_.attention_mass(session_.seq, layer, kv_head);
  }
  Status ReadKeys(int32_t layer, int32_t kv_head, std::span<float> out) const override {
    return store_.ReadKeys(session_.seq, layer, kv_head, out);
  }
  SlotScorer* scorer() const override { return session_.scorer ? &*session_.scorer : nullptr; }

 private:
  Session::Impl& session_;
  const KvStore& store_;
  const KvLayout& layout_;
};

// Only an observed session pays for the copies.
void Report(const Session::Impl& session, const CacheView& view, std::span<const float> scores,
            std::span<const uint8_t> keep, bool rebases) {
  std::vector<Position> positions;
  std::vector<Token> tokens;
  for (int32_t set = 0; set < view.n_set(); ++set) {
    const std::span<const Position> p = view.positions(set);
    const std::span<const Token> t = view.tokens(set);
    positions.insert(positions.end(), p.begin(), p.end());
    tokens.insert(tokens.end(), t.begin(), t.end());
  }
  std::vector<float> log_beta;
  for (int32_t layer = 0; session.info.needs_gates && layer < view.n_layer(); ++layer) {
    for (int32_t head = 0; head < view.n_kv_head(); ++head) {
      const std::span<const float> row = view.log_beta(layer, head);
      log_beta.insert(log_beta.end(), row.begin(), row.end());
    }
  }
  CutEvent event;
  event.tokens_seen = view.tokens_seen();
  event.n_before = view.n_slot();
  event.n_kept = view.budget();
  event.rebases = rebases;
  event.granularity = session.info.granularity;
  event.n_set = view.n_set();
  event.n_kv_head = view.n_kv_head();
  event.positions = positions;
  event.tokens = tokens;
  event.scores = scores;
  event.kept = keep;
  event.log_beta = log_beta;
  session.observer(event);
}

// Whether the chunk after the cut would leave the positions that the engine allows.
bool PastLimit(const Session::Impl& session) {
  const EngineOptions& options = session.engine.shape.options;
  return options.positions == PositionMode::kAuto &&
         session.engine.store->next_rope(session.seq).value + int64_t{options.chunk} >
             options.position_limit;
}

}  // namespace

Status Cut(Session::Impl& session) {
  const auto begin = std::chrono::steady_clock::now();
  KvStore& store = *session.engine.store;
  const int32_t n_before = store.n(session.seq);
  DCHECK(n_before > store.layout().budget);
  const std::span<float> scores = store.score_scratch(session.seq);
  const std::span<uint8_t> keep = store.keep_scratch(session.seq);
  const StoreView view(session);
  ScoreTable table(scores, n_before);
  // A row that the policy forgets is an error, not the scores of an earlier cut.
  std::ranges::fill(scores, std::numeric_limits<float>::quiet_NaN());
  KVBOUND_RETURN_IF_ERROR(session.policy->Score(view, table));
  KVBOUND_RETURN_IF_ERROR(
      Select(view, scores, session.protection, store.order_scratch(session.seq), keep));
  const bool rebases = PastLimit(session);
  if (session.observer) Report(session, view, scores, keep, rebases);
  KVBOUND_RETURN_IF_ERROR(store.Keep(session.seq, keep));
  if (rebases) {
    store.Rebase(session.seq);
    ++session.stats.rebases;
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  session.stats.scoring_seconds += seconds.count();
  session.stats.tokens_evicted += n_before - store.n(session.seq);
  session.stats.tokens_kept = store.n(session.seq);
  ++session.stats.cuts;
  return Status::Ok();
}

}  // namespace kvbound
