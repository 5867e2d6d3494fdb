#include "golden/compare.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "base/strings.h"

namespace kvbound::golden {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

std::string WithPlace(const std::string& what, const std::string& where) {
  return where.empty() ? what : StrCat(what, " (", where, ")");
}

// The elements of sorted `a` that sorted `b` lacks.
std::vector<int32_t> Difference(std::span<const int32_t> a, std::span<const int32_t> b) {
  std::vector<int32_t> only;
  std::set_difference(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(only));
  return only;
}

std::string List(std::span<const int32_t> values) {
  std::string text;
  for (size_t i = 0; i < values.size() && i < 6; ++i) {
    text += StrCat(i == 0 ? "" : " ", values[i]);
  }
  return values.size() > 6 ? StrCat(text, " ... (", values.size(), ")") : text;
}

std::optional<double> ScoreOf(const KeptPair& pair, int32_t position) {
  const auto it = std::find(pair.positions.begin(), pair.positions.end(), position);
  const auto index = static_cast<size_t>(it - pair.positions.begin());
  if (index >= pair.scores.size()) return std::nullopt;
  return pair.scores[index];
}

bool IsSwapAtTheCut(const KeptPair& pair, std::span<const int32_t> missing,
                    std::span<const int32_t> extra) {
  if (missing.size() != 1 || extra.size() != 1 || pair.tolerance <= 0) return false;
  if (pair.margin && *pair.margin > pair.tolerance) return false;
  const std::optional<double> of_missing = ScoreOf(pair, missing[0]);
  const std::optional<double> of_extra = ScoreOf(pair, extra[0]);
  // Both scores may be off by the tolerance, and so may the reference's.
  return of_missing && of_extra && std::abs(*of_missing - *of_extra) <= 2 * pair.tolerance;
}

}  // namespace

void CaseReport::Add(const Quantity& quantity) {
  for (Quantity& known : quantities_) {
    if (known.name != quantity.name) continue;
    known.n_values += quantity.n_values;
    known.max_diff = std::max(known.max_diff, quantity.max_diff);
    known.ok = known.ok && quantity.ok;
    return;
  }
  quantities_.push_back(quantity);
}

void CaseReport::AddKept(const ChoiceCount& count) {
  kept_.equal += count.equal;
  kept_.inside_margin += count.inside_margin;
  kept_.wrong += count.wrong;
}

void CaseReport::AddTokens(const ChoiceCount& count) {
  tokens_.equal += count.equal;
  tokens_.inside_margin += count.inside_margin;
  tokens_.wrong += count.wrong;
}

void CaseReport::Fail(std::string what) { failures_.push_back(std::move(what)); }

void CaseReport::Note(std::string what) { notes_.push_back(std::move(what)); }

const Quantity* CaseReport::Worst() const {
  const Quantity* worst = nullptr;
  double worst_share = -1;
  for (const Quantity& quantity : quantities_) {
    const double share = !quantity.ok ? kInfinity : quantity.max_diff / quantity.tolerance;
    if (share > worst_share || worst == nullptr) {
      worst = &quantity;
      worst_share = share;
    }
  }
  return worst;
}

void CompareScores(const std::string& what, const std::string& where,
                   std::span<const float> expected, std::span<const float> found,
                   ScoreTolerance tolerance, CaseReport* report) {
  Quantity quantity{what, static_cast<int64_t>(expected.size()), 0, tolerance.worst, true};
  size_t worst_index = 0;
  size_t n_outliers = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    if (std::isnan(expected[i]) && std::isnan(found[i])) continue;
    double diff = std::abs(static_cast<double>(expected[i]) - found[i]);
    if (std::isnan(diff)) diff = kInfinity;
    if (diff > tolerance.typical) ++n_outliers;
    if (diff > quantity.max_diff) {
      quantity.max_diff = diff;
      worst_index = i;
    }
  }
  const size_t n_allowed = tolerance.n_outliers(expected.size());
  if (quantity.max_diff > tolerance.worst) {
    quantity.ok = false;
    report->Fail(StrCat(WithPlace(what, where), "[", worst_index, "]: expected ",
                        expected[worst_index], ", found ", found[worst_index], ", difference ",
                        quantity.max_diff, " beyond ", tolerance.worst));
  } else if (n_outliers > n_allowed) {
    quantity.ok = false;
    report->Fail(StrCat(WithPlace(what, where), ": ", n_outliers, " of ", expected.size(),
                        " differ by more than ", tolerance.typical, ", allowed are ", n_allowed,
                        "; largest difference ", quantity.max_diff, " at [", worst_index, "]"));
  }
  report->Add(quantity);
}

void CompareNumbers(const std::string& what, const std::string& where,
                    std::span<const float> expected, std::span<const float> found, double tolerance,
                    CaseReport* report) {
  CompareScores(what, where, expected, found, {tolerance, tolerance}, report);
}

void CompareNumber(const std::string& what, double expected, double found, double tolerance,
                   CaseReport* report) {
  double diff = std::abs(expected - found);
  if (std::isnan(diff)) diff = kInfinity;
  const bool ok = diff <= tolerance;
  if (!ok) {
    report->Fail(StrCat(what, ": expected ", expected, ", found ", found, ", difference ", diff,
                        " beyond ", tolerance));
  }
  report->Add({what, 1, diff, tolerance, ok});
}

KeptOutcome CompareKept(const std::string& where, const KeptPair& pair, CaseReport* report) {
  const std::vector<int32_t> missing = Difference(pair.expected, pair.found);
  const std::vector<int32_t> extra = Difference(pair.found, pair.expected);
  if (missing.empty() && extra.empty()) {
    report->AddKept({1, 0, 0});
    return KeptOutcome::kEqual;
  }
  if (IsSwapAtTheCut(pair, missing, extra)) {
    report->AddKept({0, 1, 0});
    return KeptOutcome::kInsideMargin;
  }
  report->AddKept({0, 0, 1});
  report->Fail(StrCat("kept (", where, "): expected but evicted: ", List(missing),
                      "; kept but not expected: ", List(extra),
                      pair.margin ? StrCat("; margin ", *pair.margin) : ""));
  return KeptOutcome::kWrong;
}

size_t CompareTokens(const std::string& what, std::span<const Token> expected,
                     std::span<const float> gaps, std::span<const Token> found,
                     CaseReport* report) {
  const auto n = static_cast<size_t>(
      std::mismatch(expected.begin(), expected.end(), found.begin(), found.end()).first -
      expected.begin());
  ChoiceCount count{static_cast<int64_t>(n), 0, 0};
  if (n < expected.size()) {
    const bool undecided = gaps[n] <= kGapTolerance;
    (undecided ? count.inside_margin : count.wrong) = 1;
    const std::string place =
        StrCat(what, "[", n, "]: expected ", expected[n], ", found ", found[n], ", gap ", gaps[n]);
    if (undecided) {
      report->Note(place + ": differs inside the gap, the tokens after it are not comparable");
    } else {
      report->Fail(place);
    }
  }
  report->AddTokens(count);
  return n;
}

}  // namespace kvbound::golden
