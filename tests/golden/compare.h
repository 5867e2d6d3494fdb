#ifndef KVBOUND_TESTS_GOLDEN_COMPARE_H_
#define KVBOUND_TESTS_GOLDEN_COMPARE_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "golden/tolerance.h"
#include "kvbound/types.h"

namespace kvbound::golden {

// One compared quantity of a case: a number or an array of numbers.
struct Quantity {
  std::string name;
  int64_t n_values = 0;
  double max_diff = 0;  // infinite where one side has a number and the other has none
  double tolerance = 0;
  bool ok = true;
};

// Counts of compared choices: kept sets, or tokens.
struct ChoiceCount {
  int64_t equal = 0;
  int64_t inside_margin = 0;  // differ, but the reference was undecided
  int64_t wrong = 0;

  int64_t total() const { return equal + inside_margin + wrong; }
};

// What the comparison of one case found. Quantities under the same name are merged.
class CaseReport {
 public:
  void Add(const Quantity& quantity);
  void AddKept(const ChoiceCount& count);
  void AddTokens(const ChoiceCount& count);
  // A difference that fails the case, in one line.
  void Fail(std::string what);
  // Something the reader should know that fails nothing.
  void Note(std::string what);

  bool passed() const { return failures_.empty() && has_compared(); }
  bool has_compared() const { return !quantities_.empty() || kept_.total() > 0; }
  const std::vector<Quantity>& quantities() const { return quantities_; }
  const ChoiceCount& kept() const { return kept_; }
  const ChoiceCount& tokens() const { return tokens_; }
  const std::vector<std::string>& failures() const { return failures_; }
  const std::vector<std::string>& notes() const { return notes_; }

  // The quantity nearest to (or furthest beyond) its tolerance; nullptr if there is none.
  const Quantity* Worst() const;

 private:
  std::vector<Quantity> quantities_;
  ChoiceCount kept_;
  ChoiceCount tokens_;
  std::vector<std::string> failures_;
  std::vector<std::string> notes_;
};

// Compares number by number, |expected - found| <= tolerance. `what` is the quantity's name,
// `where` (may be empty) tells which of several arrays it is.
// REQUIRES: both have the same length.
void CompareNumbers(const std::string& what, const std::string& where,
                    std::span<const float> expected, std::span<const float> found, double tolerance,
                    CaseReport* report);
void CompareNumber(const std::string& what, double expected, double found, double tolerance,
                   CaseReport* report);

// As CompareNumbers, for scores of slots: NaN must stand where it is expected and nowhere else.
void CompareScores(const std::string& what, const std::string& where,
                   std::span<const float> expected, std::span<const float> found,
                   ScoreTolerance tolerance, CaseReport* report);

// A kept set of the reference and ours. Positions ascend.
struct KeptPair {
  std::span<const int32_t> expected;
  std::span<const int32_t> found;
  // Score distance between the last kept and the first evicted slot of the reference; nullopt
  // where it has none.
  std::optional<double> margin;
  // Our scores, with the positions that they belong to: [n_before], in any order.
  std::span<const int32_t> positions;
  std::span<const float> scores;
  double tolerance = 0;  // of a score
};

enum class KeptOutcome { kEqual, kInsideMargin, kWrong };  // ascending: the worse the later

// Equal sets, or a swap of the two neighbours of the cut where neither side could tell them
// apart; anything else is wrong and fails the report.
KeptOutcome CompareKept(const std::string& where, const KeptPair& pair, CaseReport* report);

// Compares greedy tokens: equal while the reference's gap (first minus second logit) exceeds
// kGapTolerance. Returns the number of leading equal tokens; a note tells where a difference
// inside the gap ends the comparison. REQUIRES: equal lengths.
size_t CompareTokens(const std::string& what, std::span<const Token> expected,
                     std::span<const float> gaps, std::span<const Token> found, CaseReport* report);

}  // namespace kvbound::golden

#endif  // KVBOUND_TESTS_GOLDEN_COMPARE_H_
