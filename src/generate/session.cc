#include "kvbound/session.h"

#include <algorithm>
#include <chrono>

#include "base/check.h"
#include "base/strings.h"
#include "generate/engine_impl.h"

namespace kvbound {

Session::Impl::Impl(EngineImpl& e, int32_t s, MakePolicyFunction make,
                    std::unique_ptr<EvictionPolicy> p, ProtectedSpans spans)
    : engine(e),
      seq(s),
      make_policy(std::move(make)),
      policy(std::move(p)),
      info(policy->Info()),
      protection(std::move(spans)) {
  engine.sessions[seq] = this;
  engine.store->Clear(seq, info.granularity);
  if (info.model_score == ModelScore::kNone) return;
  frequencies.counts.assign(engine.hparams().n_vocab, 0);
  scorer.emplace(info.model_score, seq, engine.model->loaded(), *engine.store, *engine.runner,
                 *engine.inputs, *engine.scratch, frequencies);
}

Session::Impl::~Impl() { engine.sessions[seq] = nullptr; }

int32_t Session::Impl::tokens_to_cut() const {
  const KvLayout& layout = engine.store->layout();
  if (!info.cuts_when_full) {
    return static_cast<int32_t>(layout.chunk - stats.tokens_seen % layout.chunk);
  }
  const int32_t room = layout.max_slots() - engine.store->n(seq);
  return room == 0 ? layout.chunk : std::min(layout.chunk, room);
}

Status Session::Impl::BeforeAppend(Token token) {
  if (info.needs_next_token && last_was_decoded) {
    const Position last{static_cast<int32_t>(stats.tokens_seen - 1)};
    engine.store->Relabel(seq, last, token);
  }
  return cut_waits ? CutIfFull() : Status::Ok();
}

Status Session::Impl::CheckRoom(int64_t t) const {
  const int32_t budget = engine.store->layout().budget;
  if (info.evicts || engine.store->n(seq) + t <= budget) return Status::Ok();
  return OutOfBudget(StrCat("policy '", info.name, "' never evicts: the budget of ", budget,
                            " slots holds ", engine.store->n(seq), " tokens and cannot take ", t,
                            " more; raise the budget or choose a policy that evicts"));
}

void Session::Impl::AfterAppend(std::span<const Token> tokens) {
  DCHECK(engine.shape.options.positions == PositionMode::kOriginal ||
         engine.store->next_rope(seq).value <= engine.shape.options.position_limit);
  stats.tokens_seen += tokens.size();
  stats.tokens_kept = engine.store->n(seq);
  stats.peak_slots = std::max(stats.peak_slots, stats.tokens_kept);
  has_logits = true;
  if (frequencies.counts.empty()) return;
  for (Token token : tokens) ++frequencies.counts[token];
  frequencies.total += tokens.size();
}

Status Session::Impl::CutIfFull() {
  const KvLayout& layout = engine.store->layout();
  const int32_t most = info.cuts_when_full ? layout.max_slots() - 1 : layout.budget;
  const bool full = info.evicts && engine.store->n(seq) > most;
  cut_waits = full;  // until it succeeds
  if (full) KVBOUND_RETURN_IF_ERROR(Cut(*this));
  cut_waits = false;
  return Status::Ok();
}

Status Session::Impl::CutAfterStep() {
  const bool at_chunk_end = stats.tokens_seen % engine.store->layout().chunk == 0;
  if (!at_chunk_end && !info.cuts_when_full) return Status::Ok();
  if (!info.needs_next_token) return CutIfFull();
  cut_waits = true;
  return Status::Ok();
}

Status Session::Impl::FeedChunk(std::span<const Token> tokens, EngineImpl::Want want) {
  KVBOUND_RETURN_IF_ERROR(BeforeAppend(tokens[0]));
  const auto begin = std::chrono::steady_clock::now();
  const int32_t t = static_cast<int32_t>(tokens.size());
  KVBOUND_RETURN_IF_ERROR(
      engine.store->Append(seq, tokens, Position{static_cast<int32_t>(stats.tokens_seen)}));
  if (Status status = engine.Forward({&seq, 1}, t, want); !status.ok()) {
    engine.store->Rollback(seq, t);
    return status;
  }
  AfterAppend(tokens);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  stats.prompt_seconds += seconds.count();
  stats.prompt_tokens += t;
  last_was_decoded = false;
  n_all_logits = want == EngineImpl::Want::kAll ? t : 0;
  return CutIfFull();
}

Status Session::Impl::PinPrompt(int64_t n_tokens) {
  if (!protection.protection().pin_prompt || stats.tokens_seen > 0) return Status::Ok();
  return protection.Pin({Position{0}, Position{static_cast<int32_t>(n_tokens)}});
}

Session::Session(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Session::~Session() = default;

Status Session::Feed(std::span<const Token> tokens, const FeedProgress& progress) {
  if (tokens.empty()) return InvalidArgument("feed: expected at least one token, found none");
  KVBOUND_RETURN_IF_ERROR(impl_->engine.CheckTokens(tokens));
  KVBOUND_RETURN_IF_ERROR(impl_->CheckRoom(tokens.size()));
  KVBOUND_RETURN_IF_ERROR(impl_->PinPrompt(tokens.size()));
  const int64_t total = tokens.size();
  for (int64_t done = 0; done < total;) {
    const int64_t t = std::min<int64_t>(impl_->tokens_to_cut(), total - done);
    const bool last = done + t == total;
    KVBOUND_RETURN_IF_ERROR(impl_->FeedChunk(
        tokens.subspan(done, t), last ? EngineImpl::Want::kLast : EngineImpl::Want::kNothing));
    done += t;
    if (progress && !progress(done, total)) {
      return Cancelled(StrCat("stopped after ", done, " of ", total, " tokens"));
    }
  }
  return Status::Ok();
}

Status Session::FeedWithLogits(std::span<const Token> tokens) {
  const int64_t room = std::min(impl_->engine.shape.options.max_logit_rows, impl_->tokens_to_cut());
  if (tokens.empty() || static_cast<int64_t>(tokens.size()) > room) {
    return InvalidArgument(StrCat("feed with logits: expected 1..", room,
                                  " tokens (max_logit_rows, rest of the chunk), found ",
                                  tokens.size()));
  }
  KVBOUND_RETURN_IF_ERROR(impl_->engine.CheckTokens(tokens));
  KVBOUND_RETURN_IF_ERROR(impl_->CheckRoom(tokens.size()));
  KVBOUND_RETURN_IF_ERROR(impl_->PinPrompt(tokens.size()));
  return impl_->FeedChunk(tokens, EngineImpl::Want::kAll);
}

std::span<const float> Session::logits() const {
  if (!impl_->has_logits) return {};
  return impl_->engine.logits(impl_->seq);
}

std::span<const float> Session::AllLogits() const {
  return impl_->engine.all_logits(impl_->n_all_logits);
}

Status Session::Pin(PositionSpan span) {
  if (span.end.value > impl_->stats.tokens_seen) {
    return InvalidArgument(StrCat("pin: expected positions below ", impl_->stats.tokens_seen,
                                  " (tokens fed), found ", span.end.value - 1));
  }
  for (int32_t set = 0; set < n_set(); ++set) {
    const auto here = [&](Position p) { return span.begin <= p && p < span.end; };
    const int64_t held = std::ranges::count_if(positions(set), here);
    if (held < span.end.value - span.begin.value) {
      return InvalidArgument(StrCat("pin: expected positions ", span.begin.value, "..",
                                    span.end.value - 1, " in the cache, found ", held,
                                    " of them: the rest has been evicted"));
    }
  }
  return impl_->protection.Pin(span);
}

Status Session::Reset() {
  EngineImpl& engine = impl_->engine;
  KVBOUND_ASSIGN_OR_RETURN(impl_->policy, impl_->make_policy());
  engine.store->Clear(impl_->seq, impl_->info.granularity);
  impl_->protection.Unpin();
  std::ranges::fill(impl_->frequencies.counts, 0);
  impl_->frequencies.total = 0;
  impl_->stats = {};
  impl_->has_logits = impl_->last_was_decoded = impl_->cut_waits = false;
  impl_->n_all_logits = 0;
  return Status::Ok();
}

void Session::SetCutObserver(CutObserver observer) { impl_->observer = std::move(observer); }

const SessionStats& Session::stats() const { return impl_->stats; }
const PolicyInfo& Session::policy() const { return impl_->info; }
Protection Session::protection() const { return impl_->protection.protection(); }

std::span<const Position> Session::positions(int32_t set) const {
  return impl_->engine.store->positions(impl_->seq, set);
}
std::span<const Token> Session::tokens(int32_t set) const {
  return impl_->engine.store->tokens(impl_->seq, set);
}
std::span<const RopePosition> Session::rope_positions(int32_t set) const {
  return impl_->engine.store->rope_positions(impl_->seq, set);
}
RopePosition Session::next_rope_position() const {
  return impl_->engine.store->next_rope(impl_->seq);
}
int32_t Session::n_set() const { return impl_->engine.store->n_set(impl_->seq); }

Status Session::ScoreNow(const CounterCausalOptions& options, std::span<float> scores) {
  if (!impl_->scorer) {
    return InvalidArgument(
        StrCat("score: policy '", impl_->info.name, "' asks for no score of the model"));
  }
  const size_t n_slot = positions(0).size();
  if (scores.size() != n_slot) {
    return InvalidArgument(
        StrCat("score: expected room for ", n_slot, " slots, found ", scores.size()));
  }
  return impl_->scorer->CounterCausal(options, scores);
}

}  // namespace kvbound
