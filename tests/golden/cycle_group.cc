// The chunked cycle of every method: what each refresh kept and why, what was generated, and the
// log-probabilities of a given text behind the same evictions.

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string_view>

#include "base/strings.h"
#include "golden/cycle_case.h"
#include "golden/golden_gates.h"
#include "golden/groups.h"

namespace kvbound::golden {
namespace {

enum class Align { kNone, kAligned, kPublished };  // of counter-causal policies
enum class Gated { kNo, kChunk, kOfficial };       // how gates cut

// How a method of the reference is asked for here. A method that gets built is one line.
struct Method {
  std::string_view method;       // in the header
  std::string_view policy;       // ours; empty: not built
  std::string_view skip_reason;  // set iff not built
  Align align = Align::kNone;
  Protection protection = {};
  CycleArrays arrays = {};
  // The reference's score is our score times this.
  float score_sign = 1;
  ScoreTolerance tolerance = kExactScoreTolerance;
  Gated gated = Gated::kNo;
};

Method Full(std::string_view method, Align align, Protection protection = {}) {
  return {method, "counter-causal", "", align, protection, {true, true}, -1, kFullScoreTolerance};
}

Method Fast(std::string_view method, Align align, Protection protection = {}) {
  return {method,     "counter-causal-fast", "", align,
          protection, {true, true},          -1, kFastScoreTolerance};
}

constexpr std::string_view kBaselineNotBuilt = "this baseline is not built yet";

Method Retention(std::string_view method, Gated gated) {
  return {method, "retention", "", Align::kNone, {}, {true, false}, 1, kRetentionScoreTolerance,
          gated};
}

const std::vector<Method>& Methods() {
  static const std::vector<Method> kMethods = {
      {"none", "none", ""},
      Full("full-aligned", Align::kAligned),
      Full("full-published", Align::kPublished),
      Full("full-protected", Align::kAligned, {4, 32, false}),
      Fast("fast-aligned", Align::kAligned),
      Fast("fast-published", Align::kPublished),
      Fast("fast-protected", Align::kAligned, {4, 32, false}),
      {"sliding", "window", ""},
      {"streaming4", "streaming", "", Align::kNone, {4, 0, false}},
      {"h2o", "h2o", "", Align::kNone, {}, {true, false}, 1, kMassTolerance},
      {"tova", "", kBaselineNotBuilt},
      {"keydiff", "", kBaselineNotBuilt},
      {"snapkv", "", kBaselineNotBuilt},
      {"rkv", "", kBaselineNotBuilt},
      {"importance", "", kBaselineNotBuilt},
      {"h2o-standin", "", kBaselineNotBuilt},
      Retention("retention-cycle", Gated::kChunk),
      Retention("retention-official", Gated::kOfficial),
  };
  return kMethods;
}

const Method* FindMethod(std::string_view name) {
  for (const Method& method : Methods()) {
    if (method.method == name) return &method;
  }
  return nullptr;
}

PolicyOptions PolicyOf(const Method& method) {
  PolicyOptions policy;
  policy.name = method.policy;
  if (method.align != Align::kNone) {
    policy.counter_causal.emplace();
    policy.counter_causal->align = method.align == Align::kPublished
                                       ? CounterCausalOptions::Align::kPublished
                                       : CounterCausalOptions::Align::kAligned;
  }
  if (method.gated == Gated::kOfficial) {
    policy.retention.emplace();
    policy.retention->age = RetentionOptions::Age::kCode;
    policy.retention->cadence = RetentionOptions::Cadence::kFull;
  }
  return policy;
}

// Compares the scores of one cut with the reference's raw scores. A policy ranks a slot that it
// keeps in any case with infinity: here that is the last slot alone.
void CompareCutScores(const Method& method, const Refresh& expected, const RecordedCut& found,
                      const std::string& where, CaseReport* report) {
  std::vector<float> scores = found.scores[0];
  for (float& score : scores) score *= method.score_sign;
  const bool last_is_forced = std::isinf(found.scores[0].back());
  const size_t n = scores.size() - (last_is_forced ? 1 : 0);
  CompareScores("scores", where, std::span(expected.scores).first(n), std::span(scores).first(n),
                method.tolerance, report);
}

// Compares one cut; the outcome is that of the worst set.
KeptOutcome CompareCut(const Method& method, const Refresh& expected, const RecordedCut& found,
                       const std::string& where, CaseReport* report) {
  if (!expected.scores.empty()) CompareCutScores(method, expected, found, where, report);
  KeptOutcome worst = KeptOutcome::kEqual;
  for (size_t set = 0; set < expected.kept.size(); ++set) {
    KeptPair pair;
    pair.expected = expected.kept[set];
    pair.found = found.kept[set];
    if (!expected.margin.empty()) pair.margin = expected.margin[set];
    pair.positions = found.positions[set];
    pair.scores = found.scores[set];
    pair.tolerance = method.tolerance.worst;
    const std::string place = expected.kept.size() == 1 ? where : StrCat(where, ", set ", set);
    worst = std::max(worst, CompareKept(place, pair, report));
  }
  return worst;
}

// Compares cuts in order while they can be compared: until tokens_seen reaches `end` (another
// token was fed there), or a set differs. Returns how many tokens had been fed at the first
// difference: logits up to there are comparable.
int64_t CompareCuts(const std::string& run, const Method& method, std::span<const Refresh> expected,
                    std::span<const RecordedCut> found, int64_t end, CaseReport* report) {
  for (size_t r = 0; r < expected.size() && expected[r].processed < end; ++r) {
    const std::string where = StrCat(run, "refresh ", r, " at ", expected[r].processed);
    const KeptOutcome outcome = CompareCut(method, expected[r], found[r], where, report);
    if (outcome == KeptOutcome::kEqual) continue;
    report->Note(
        StrCat(outcome == KeptOutcome::kInsideMargin ? "differs inside margin at " : "wrong at ",
               where, ": what follows is not comparable"));
    return expected[r].processed;
  }
  return std::numeric_limits<int64_t>::max();
}

// The times and sizes of all cuts are the cycle's, whatever was kept. `n_before` is checked
// where the reference gives it.
bool CompareLog(const std::string& run, const CycleCase& c, std::span<const Refresh> expected,
                std::span<const RecordedCut> found, CaseReport* report) {
  const auto describe = [](const auto& processed, const auto& n_before) {
    return StrCat(processed, " (", n_before, " slots)");
  };
  for (size_t r = 0; r < std::max(expected.size(), found.size()); ++r) {
    const std::string want =
        r < expected.size() ? describe(expected[r].processed, expected[r].n_before) : "no cut";
    const std::string have =
        r < found.size() ? describe(found[r].tokens_seen, found[r].n_before) : "no cut";
    const bool same = r < expected.size() && r < found.size() &&
                      expected[r].processed == found[r].tokens_seen &&
                      (expected[r].n_before == 0 || expected[r].n_before == found[r].n_before);
    if (same && found[r].kept.size() == static_cast<size_t>(c.n_set)) continue;
    report->Fail(same ? StrCat(run, "refresh ", r, ": expected ", c.n_set, " sets, found ",
                               found[r].kept.size())
                      : StrCat(run, "refresh ", r, ": expected ", want, ", found ", have));
    return false;
  }
  return true;
}

// `n_new` clipped to the tokens chosen before `seen` tokens had been fed and cut.
size_t TokensUpTo(const CycleCase& c, int64_t seen) {
  const int64_t n = seen - static_cast<int64_t>(c.prompt.size());
  const auto n_new = static_cast<int64_t>(c.generated.size());
  return static_cast<size_t>(std::clamp<int64_t>(n < n_new ? n + 1 : n_new, 0, n_new));
}

void CompareGeneration(const Method& method, const CycleCase& c, const RecordedRun& run,
                       CaseReport* report) {
  if (!CompareLog("", c, c.refreshes, run.cuts, report)) return;
  const auto n_equal = std::mismatch(c.generated.begin(), c.generated.end(), run.tokens.begin());
  const auto first_different = static_cast<int64_t>(n_equal.first - c.generated.begin());
  // The first different token is fed as number n + first_different + 1; a published cut already
  // uses it one token earlier.
  const int64_t end = static_cast<int64_t>(c.prompt.size()) + first_different +
                      (method.align == Align::kPublished ? 0 : 1);
  const int64_t seen = CompareCuts("", method, c.refreshes, run.cuts, end, report);

  const size_t n = TokensUpTo(c, seen);
  const size_t n_same = CompareTokens("generated", std::span(c.generated).first(n), c.gap,
                                      std::span(run.tokens).first(n), report);
  CompareNumbers("logp", "", std::span(c.logp).first(n_same), std::span(run.logp).first(n_same),
                 kLogitTolerance, report);
  const size_t n_gaps = std::min(n_same + 1, n);
  CompareNumbers("gap", "", std::span(c.gap).first(n_gaps), std::span(run.gap).first(n_gaps),
                 kGapTolerance, report);
}

void CompareForcedRun(const Method& method, const CycleCase& c, const RecordedRun& run,
                      CaseReport* report) {
  // Up to the prompt's end the forced run is the other run.
  std::vector<Refresh> expected;
  for (const Refresh& refresh : c.refreshes) {
    if (refresh.processed <= static_cast<int64_t>(c.prompt.size())) expected.push_back(refresh);
  }
  expected.insert(expected.end(), c.forced_refreshes.begin(), c.forced_refreshes.end());
  const std::string name = "forced ";
  if (!CompareLog(name, c, expected, run.cuts, report)) return;
  const int64_t seen =
      CompareCuts(name, method, expected, run.cuts, std::numeric_limits<int64_t>::max(), report);
  const size_t n = TokensUpTo(c, seen);
  CompareNumbers("forced_logp", "", std::span(c.forced_logp).first(n), std::span(run.logp).first(n),
                 kForcedTolerance, report);
  if (n < c.forced_logp.size()) return;
  double nll = 0;
  for (const float logp : run.logp) nll -= logp / static_cast<double>(n);
  CompareNumber("mean_forced_nll", c.mean_forced_nll, nll, kForcedTolerance, report);
}

void CompareFullCacheView(const CycleCase& c, const FullCacheView& view, CaseReport* report) {
  CompareNumber("full_cache_nll", c.full_cache_nll, view.mean_nll, kLogitTolerance, report);
  if (view.same_prefix == static_cast<size_t>(c.same_prefix)) return;
  const std::string what = StrCat("same_prefix_as_full_cache: expected ", c.same_prefix, ", found ",
                                  view.same_prefix, ", gap ", view.gap_at_end);
  if (view.same_prefix < static_cast<size_t>(c.same_prefix) && view.gap_at_end <= kGapTolerance) {
    report->Note(what + ": differs inside the gap");
  } else {
    report->Fail(what);
  }
}

}  // namespace

std::string WhyCycleMethodIsSkipped(const std::string& method, AttentionPath attention) {
  const Method* known = FindMethod(method);
  if (known == nullptr) {
    return StrCat("method '", Printable(method), "' is not known to this build");
  }
  if (!known->skip_reason.empty()) return std::string(known->skip_reason);
  const bool fused = attention == AttentionPath::kAuto || attention == AttentionPath::kFused;
  const auto policy = MakePolicy(PolicyOf(*known));
  if (!fused && policy.ok() && (*policy)->Info().needs_attention_mass) {
    return StrCat("policy '", known->policy, "' needs fused attention");
  }
  return "";
}

Status RunCycleCase(const CaseFile& file, const Subject& subject, CaseReport* report) {
  KVBOUND_ASSIGN_OR_RETURN(const std::string name, file.Text("method"));
  const Method& method = *FindMethod(name);
  KVBOUND_ASSIGN_OR_RETURN(const CycleCase c,
                           ReadCycleCase(file, subject.model->info(), method.arrays));
  std::shared_ptr<const Gates> gates;
  if (method.gated != Gated::kNo) {
    KVBOUND_ASSIGN_OR_RETURN(gates, GatesOfCase(file, *subject.model));
  }
  KVBOUND_ASSIGN_OR_RETURN(EngineAndSession run,
                           OpenSession(subject.model, subject.options, c.budget, c.chunk,
                                       PolicyOf(method), method.protection, 1, gates));
  // One more than expected shows that there are too many.
  const size_t max_cuts = c.refreshes.size() + c.forced_refreshes.size() + 1;
  KVBOUND_ASSIGN_OR_RETURN(const RecordedRun generated,
                           RunSession(run, c.prompt, c.generated.size(), {}, max_cuts));
  CompareGeneration(method, c, generated, report);
  KVBOUND_ASSIGN_OR_RETURN(const RecordedRun forced,
                           RunSession(run, c.prompt, c.generated.size(), c.continuation, max_cuts));
  CompareForcedRun(method, c, forced, report);
  KVBOUND_ASSIGN_OR_RETURN(
      const FullCacheView view,
      ViewUnderFullCache(subject.model, subject.options, c.prompt, c.generated));
  CompareFullCacheView(c, view, report);
  return Status::Ok();
}

}  // namespace kvbound::golden
