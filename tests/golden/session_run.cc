#include "golden/session_run.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "base/strings.h"

namespace kvbound::golden {
namespace {

constexpr int32_t kLogitRows = 64;  // rows of logits held at a time

RecordedCut Record(const CutEvent& event) {
  RecordedCut cut;
  cut.tokens_seen = event.tokens_seen;
  cut.n_before = event.n_before;
  const auto n = static_cast<size_t>(event.n_before);
  if (!event.log_beta.empty()) cut.log_beta.resize(event.n_set);
  std::vector<size_t> order(n);
  for (int32_t set = 0; set < event.n_set; ++set) {
    const size_t base = static_cast<size_t>(set) * n;
    std::iota(order.begin(), order.end(), base);
    std::sort(order.begin(), order.end(),
              [&](size_t a, size_t b) { return event.positions[a] < event.positions[b]; });
    auto& positions = cut.positions.emplace_back();
    auto& scores = cut.scores.emplace_back();
    auto& kept = cut.kept.emplace_back();
    for (const size_t slot : order) {
      positions.push_back(event.positions[slot].value);
      scores.push_back(event.scores[slot]);
      if (!event.log_beta.empty()) cut.log_beta[set].push_back(event.log_beta[slot]);
      if (event.kept[slot] != 0) kept.push_back(event.positions[slot].value);
    }
  }
  return cut;
}

Status Step(EngineAndSession& run, Token token) {
  Session* const sessions[] = {run.session.get()};
  const Token tokens[] = {token};
  return run.engine->Step(sessions, tokens);
}

// A policy that waits for the next token has not made the cut after the last one yet.
Status FinishPendingCut(EngineAndSession& run, Token next) {
  const EngineOptions& options = run.engine->options();
  const SessionStats& stats = run.session->stats();
  const bool waits = run.session->policy().needs_next_token &&
                     stats.tokens_seen % options.chunk == 0 && stats.tokens_kept > options.budget;
  return waits ? Step(run, next) : Status::Ok();
}

}  // namespace

RowSummary Summarize(std::span<const float> row) {
  RowSummary summary;
  float second = -std::numeric_limits<float>::infinity();
  for (size_t i = 1; i < row.size(); ++i) {
    const float top = row[static_cast<size_t>(summary.top)];
    if (row[i] > top) {
      second = top;
      summary.top = static_cast<Token>(i);
    } else if (row[i] > second) {
      second = row[i];
    }
  }
  const double top = row[static_cast<size_t>(summary.top)];
  summary.gap = static_cast<float>(top - second);
  double sum = 0;
  for (const float logit : row) sum += std::exp(logit - top);
  summary.logsumexp = top + std::log(sum);
  return summary;
}

Result<EngineAndSession> OpenSession(const std::shared_ptr<const Model>& model,
                                     const RunnerOptions& runner, int32_t budget, int32_t chunk,
                                     const PolicyOptions& policy, Protection protection,
                                     int32_t max_logit_rows, std::shared_ptr<const Gates> gates) {
  EngineOptions options;
  options.positions = PositionMode::kOriginal;  // as in the papers' code
  options.budget = budget;
  options.chunk = chunk;
  options.type_k = KvType::kF32;
  options.type_v = KvType::kF32;
  options.policy = policy;
  options.gates = std::move(gates);
  options.attention = runner.attention;
  options.n_threads = runner.n_threads;
  options.max_logit_rows = max_logit_rows;
  SessionOptions session_options;
  session_options.protection = {protection.sinks, protection.recent, protection.pin_prompt};
  EngineAndSession run;
  KVBOUND_ASSIGN_OR_RETURN(run.engine, Engine::Create(model, options));
  KVBOUND_ASSIGN_OR_RETURN(run.session, run.engine->NewSession(session_options));
  return run;
}

Result<RecordedRun> RunSession(EngineAndSession& run, std::span<const Token> prompt, size_t n_new,
                               std::span<const Token> forced, size_t max_cuts) {
  RecordedRun record;
  KVBOUND_RETURN_IF_ERROR(run.session->Reset());
  run.session->SetCutObserver([&](const CutEvent& event) {
    if (record.cuts.size() < max_cuts) record.cuts.push_back(Record(event));
  });
  Status status = run.session->Feed(prompt);
  for (size_t i = 0; status.ok() && i < n_new; ++i) {
    const std::span<const float> row = run.session->logits();
    const RowSummary summary = Summarize(row);
    const Token token = forced.empty() ? summary.top : forced[i];
    record.tokens.push_back(token);
    record.gap.push_back(summary.gap);
    record.logp.push_back(static_cast<float>(row[static_cast<size_t>(token)] - summary.logsumexp));
    if (i + 1 < n_new) status = Step(run, token);
  }
  if (status.ok()) status = FinishPendingCut(run, record.tokens.back());
  run.session->SetCutObserver(nullptr);
  if (!status.ok()) return status;
  return record;
}

Status VisitRows(EngineAndSession& run, std::span<const Token> tokens, const RowVisitor& visit) {
  const auto chunk = static_cast<size_t>(run.engine->options().chunk);
  const auto n_vocab = static_cast<size_t>(run.engine->model().info().n_vocab);
  for (size_t done = 0; done < tokens.size();) {
    const auto seen = static_cast<size_t>(run.session->stats().tokens_seen);
    const size_t n = std::min(chunk - seen % chunk, tokens.size() - done);
    KVBOUND_RETURN_IF_ERROR(run.session->FeedWithLogits(tokens.subspan(done, n)));
    const std::span<const float> rows = run.session->AllLogits();
    if (rows.size() != n * n_vocab) {
      return Internal(StrCat("expected ", n, " rows of logits, found ", rows.size(), " values"));
    }
    for (size_t i = 0; i < n; ++i) visit(done + i, rows.subspan(i * n_vocab, n_vocab));
    done += n;
  }
  return Status::Ok();
}

Result<FullCacheView> ViewUnderFullCache(const std::shared_ptr<const Model>& model,
                                         const RunnerOptions& runner, std::span<const Token> prompt,
                                         std::span<const Token> tokens) {
  PolicyOptions none;
  none.name = "none";
  const auto budget = static_cast<int32_t>(prompt.size() + tokens.size());
  KVBOUND_ASSIGN_OR_RETURN(EngineAndSession run,
                           OpenSession(model, runner, budget, kLogitRows, none, {}, kLogitRows));
  FullCacheView view;
  bool same = true;
  const auto visit = [&](size_t index, std::span<const float> row) {
    const RowSummary summary = Summarize(row);
    view.mean_nll += (summary.logsumexp - row[static_cast<size_t>(tokens[index])]) /
                     static_cast<double>(tokens.size());
    if (!same) return;
    same = summary.top == tokens[index];
    if (same) ++view.same_prefix;
    if (!same) view.gap_at_end = summary.gap;
  };
  KVBOUND_RETURN_IF_ERROR(run.session->Feed(prompt));
  visit(0, run.session->logits());
  const auto visit_after = [&](size_t index, std::span<const float> row) { visit(index + 1, row); };
  KVBOUND_RETURN_IF_ERROR(VisitRows(run, tokens.first(tokens.size() - 1), visit_after));
  return view;
}

}  // namespace kvbound::golden
