// G1: logits of every position of a text under the full cache, and a greedy continuation.

#include <algorithm>
#include <cmath>

#include "base/strings.h"
#include "golden/groups.h"

namespace kvbound::golden {
namespace {

constexpr int64_t kMaxTokens = CaseFile::kMaxTokens;
constexpr int32_t kChunk = 64;  // rows of logits held at a time
constexpr int64_t kTop = 5;

struct LogitsCase {
  std::vector<Token> tokens;
  std::vector<Token> greedy;
  std::vector<float> greedy_gap;
  std::vector<int32_t> top_ids;    // [n, 5]
  std::vector<float> top_logits;   // [n, 5]
  std::vector<float> logsumexp;    // [n]
  std::vector<float> nll;          // [n - 1]
  std::vector<float> last_logits;  // [n_vocab], or empty
  double mean_nll = 0;
};

Result<LogitsCase> ReadCase(const CaseFile& file, int32_t n_vocab) {
  LogitsCase c;
  KVBOUND_ASSIGN_OR_RETURN(c.tokens, file.Ints("token_ids", n_vocab));
  const auto n = static_cast<int64_t>(c.tokens.size());
  if (n < 2 || n > kMaxTokens) {
    return file.FieldError("token_ids", StrCat("2..", kMaxTokens, " ids"), StrCat(n));
  }
  KVBOUND_RETURN_IF_ERROR(file.Int("n", n, n).status());
  KVBOUND_ASSIGN_OR_RETURN(c.greedy, file.Ints("greedy_ids", n_vocab));
  if (c.greedy.empty() || static_cast<int64_t>(c.greedy.size()) > kMaxTokens) {
    return file.FieldError("greedy_ids", StrCat("1..", kMaxTokens, " ids"),
                           StrCat(c.greedy.size()));
  }
  KVBOUND_ASSIGN_OR_RETURN(c.greedy_gap, file.Numbers("greedy_gap", c.greedy.size()));
  KVBOUND_ASSIGN_OR_RETURN(c.mean_nll, file.Number("mean_nll"));
  KVBOUND_ASSIGN_OR_RETURN(c.top_ids, file.I32("top5_ids", {n, kTop}));
  for (const int32_t id : c.top_ids) {
    if (id < 0 || id >= n_vocab) {
      return file.ArrayError("top5_ids", StrCat("ids 0..", n_vocab - 1), StrCat(id));
    }
  }
  KVBOUND_ASSIGN_OR_RETURN(c.top_logits, file.F32("top5_logits", {n, kTop}));
  KVBOUND_ASSIGN_OR_RETURN(c.logsumexp, file.F32("logsumexp", {n}));
  KVBOUND_ASSIGN_OR_RETURN(c.nll, file.F32("nll", {n - 1}));
  if (file.HasArray("last_logits")) {
    KVBOUND_ASSIGN_OR_RETURN(c.last_logits, file.F32("last_logits", {n_vocab}));
  }
  return c;
}

// What the engine gives for the same.
struct FoundLogits {
  std::vector<float> at_top_ids;  // [n, 5], our logits of the reference's ids
  std::vector<float> logsumexp;   // [n]
  std::vector<float> nll;         // [n - 1]
  std::vector<float> last_logits;
  std::vector<Token> greedy;
  std::vector<float> greedy_gap;
};

// The reference's ids must be our five highest too, in the same order, unless two logits lie so
// close that rounding decides.
void CompareRanks(const LogitsCase& c, size_t index, std::span<const float> row,
                  std::vector<Token>* ids, CaseReport* report) {
  std::partial_sort(ids->begin(), ids->begin() + kTop, ids->end(), [&](Token a, Token b) {
    const float of_a = row[static_cast<size_t>(a)];
    const float of_b = row[static_cast<size_t>(b)];
    return of_a != of_b ? of_a > of_b : a < b;
  });
  for (size_t rank = 0; rank < kTop; ++rank) {
    const Token expected = c.top_ids[index * kTop + rank];
    const Token found = (*ids)[rank];
    const float distance =
        std::abs(row[static_cast<size_t>(found)] - row[static_cast<size_t>(expected)]);
    if (found == expected || distance <= kGapTolerance) continue;
    report->Fail(StrCat("top5_ids[", index, ", ", rank, "]: expected ", expected, ", found ", found,
                        ", our logits differ by ", distance));
  }
}

Status ReadRows(const LogitsCase& c, EngineAndSession& run, FoundLogits* found,
                CaseReport* report) {
  std::vector<Token> ids;
  return VisitRows(run, c.tokens, [&](size_t index, std::span<const float> row) {
    ids.resize(row.size());
    for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<Token>(i);
    CompareRanks(c, index, row, &ids, report);
    for (size_t rank = 0; rank < kTop; ++rank) {
      found->at_top_ids.push_back(row[static_cast<size_t>(c.top_ids[index * kTop + rank])]);
    }
    const double logsumexp = Summarize(row).logsumexp;
    found->logsumexp.push_back(static_cast<float>(logsumexp));
    if (index + 1 < c.tokens.size()) {
      const float logit = row[static_cast<size_t>(c.tokens[index + 1])];
      found->nll.push_back(static_cast<float>(logsumexp - logit));
    } else if (!c.last_logits.empty()) {
      found->last_logits.assign(row.begin(), row.end());
    }
  });
}

Status ContinueGreedily(size_t n, EngineAndSession& run, FoundLogits* found) {
  for (size_t i = 0; i < n; ++i) {
    const RowSummary summary = Summarize(run.session->logits());
    found->greedy.push_back(summary.top);
    found->greedy_gap.push_back(summary.gap);
    if (i + 1 == n) break;
    Session* const sessions[] = {run.session.get()};
    KVBOUND_RETURN_IF_ERROR(run.engine->Step(sessions, {&summary.top, 1}));
  }
  return Status::Ok();
}

}  // namespace

Status RunLogitsCase(const CaseFile& file, const Subject& subject, CaseReport* report) {
  KVBOUND_ASSIGN_OR_RETURN(const LogitsCase c, ReadCase(file, subject.model->info().n_vocab));
  PolicyOptions none;
  none.name = "none";
  const auto budget = static_cast<int32_t>(c.tokens.size() + c.greedy.size());
  KVBOUND_ASSIGN_OR_RETURN(EngineAndSession run, OpenSession(subject.model, subject.options, budget,
                                                             kChunk, none, {}, kChunk));
  FoundLogits found;
  KVBOUND_RETURN_IF_ERROR(ReadRows(c, run, &found, report));
  KVBOUND_RETURN_IF_ERROR(ContinueGreedily(c.greedy.size(), run, &found));

  CompareNumbers("top5_logits", "", c.top_logits, found.at_top_ids, kLogitTolerance, report);
  CompareNumbers("logsumexp", "", c.logsumexp, found.logsumexp, kLogitTolerance, report);
  CompareNumbers("nll", "", c.nll, found.nll, kLogitTolerance, report);
  double sum = 0;
  for (const float nll : found.nll) sum += nll;
  CompareNumber("mean_nll", c.mean_nll, sum / static_cast<double>(found.nll.size()),
                kLogitTolerance, report);
  if (!c.last_logits.empty()) {
    CompareNumbers("last_logits", "", c.last_logits, found.last_logits, kLogitTolerance, report);
  }
  const size_t n_equal = CompareTokens("greedy_ids", c.greedy, c.greedy_gap, found.greedy, report);
  // The first different choice still saw equal input.
  const size_t n_gaps = std::min(n_equal + 1, c.greedy.size());
  CompareNumbers("greedy_gap", "", std::span(c.greedy_gap).first(n_gaps),
                 std::span(found.greedy_gap).first(n_gaps), kGapTolerance, report);
  return Status::Ok();
}

}  // namespace kvbound::golden
