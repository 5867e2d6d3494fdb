#include "golden/compare.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace kvbound::golden {
namespace {

using Floats = std::vector<float>;
using Ints = std::vector<int32_t>;

TEST(CompareNumbers, PassesAtTheToleranceAndFailsBeyond) {
  CaseReport report;
  CompareNumbers("logp", "", Floats{1, 2}, Floats{1, 2.5f}, 0.5, &report);
  EXPECT_TRUE(report.passed());
  CompareNumbers("logp", "", Floats{1, 2}, Floats{1, 2.75f}, 0.5, &report);
  EXPECT_FALSE(report.passed());
  ASSERT_EQ(report.failures().size(), 1u);
  EXPECT_NE(report.failures()[0].find("logp[1]: expected 2, found 2.75"), std::string::npos);
  ASSERT_EQ(report.quantities().size(), 1u) << "the same name is one quantity";
  EXPECT_EQ(report.quantities()[0].n_values, 4);
  EXPECT_EQ(report.quantities()[0].max_diff, 0.75);
}

TEST(CompareNumbers, NanAndInfinityNeverPass) {
  for (const float found : {NAN, INFINITY, -INFINITY}) {
    CaseReport report;
    CompareNumbers("logp", "", Floats{1}, Floats{found}, 1e30, &report);
    EXPECT_FALSE(report.passed()) << found;
  }
  CaseReport report;
  CompareNumber("mean_nll", 1.0, NAN, 1e30, &report);
  EXPECT_FALSE(report.passed());
}

TEST(CompareScores, NanMustStandInTheSamePlaces) {
  CaseReport same;
  CompareScores("B_raw", "", Floats{NAN, 1}, Floats{NAN, 1}, kFastScoreTolerance, &same);
  EXPECT_TRUE(same.passed());
  CaseReport missing;
  CompareScores("B_raw", "", Floats{NAN, 1}, Floats{0, 1}, kFastScoreTolerance, &missing);
  EXPECT_FALSE(missing.passed());
  CaseReport extra;
  CompareScores("B_raw", "", Floats{NAN, 1}, Floats{NAN, NAN}, kFastScoreTolerance, &extra);
  EXPECT_FALSE(extra.passed());
}

TEST(CompareScores, OneSlotInAHundredMayLieBetweenTheTolerances) {
  const Floats expected(200, 1.0f);
  Floats found = expected;
  found[3] = found[7] = 1.002f;
  CaseReport two;
  CompareScores("A_raw", "", expected, found, kFullScoreTolerance, &two);
  EXPECT_TRUE(two.passed());
  found[9] = 1.002f;
  CaseReport three;
  CompareScores("A_raw", "", expected, found, kFullScoreTolerance, &three);
  EXPECT_FALSE(three.passed());
  found = expected;
  found[3] = 1.006f;
  CaseReport worst;
  CompareScores("A_raw", "", expected, found, kFullScoreTolerance, &worst);
  EXPECT_FALSE(worst.passed());
}

TEST(CaseReport, WorstIsNearestItsToleranceOrBeyond) {
  CaseReport report;
  EXPECT_EQ(report.Worst(), nullptr);
  EXPECT_FALSE(report.passed()) << "nothing was compared";
  report.Add({"coarse", 1, 0.5, 1.0, true});
  report.Add({"fine", 1, 0.09, 0.1, true});
  EXPECT_EQ(report.Worst()->name, "fine");
  report.Add({"wrong", 1, 0.1, 1.0, false});
  EXPECT_EQ(report.Worst()->name, "wrong");
}

// Slots at 0..5; ours are ranked by these scores, highest first.
class CompareKeptTest : public ::testing::Test {
 protected:
  KeptOutcome Compare(const Ints& expected, const Ints& found, std::optional<double> margin,
                      double tolerance = 5e-3) {
    return CompareKept("refresh 0", {expected, found, margin, positions_, scores_, tolerance},
                       &report_);
  }

  const Ints positions_{0, 1, 2, 3, 4, 5};
  const Floats scores_{9, 8, 5.001f, 5, 4, 3};
  CaseReport report_;
};

TEST_F(CompareKeptTest, EqualSets) {
  EXPECT_EQ(Compare({0, 1, 2}, {0, 1, 2}, 0.0), KeptOutcome::kEqual);
  EXPECT_EQ(report_.kept().equal, 1);
}

TEST_F(CompareKeptTest, SwapAtTheCutInsideTheMargin) {
  EXPECT_EQ(Compare({0, 1, 3}, {0, 1, 2}, 0.002), KeptOutcome::kInsideMargin);
  EXPECT_EQ(Compare({0, 1, 3}, {0, 1, 2}, std::nullopt), KeptOutcome::kInsideMargin);
  EXPECT_EQ(report_.kept().inside_margin, 2);
  EXPECT_TRUE(report_.failures().empty());
}

TEST_F(CompareKeptTest, SwapBeyondTheMarginIsWrong) {
  EXPECT_EQ(Compare({0, 1, 3}, {0, 1, 2}, 0.006), KeptOutcome::kWrong);
  ASSERT_EQ(report_.failures().size(), 1u);
  EXPECT_NE(report_.failures()[0].find("expected but evicted: 3; kept but not expected: 2"),
            std::string::npos);
}

TEST_F(CompareKeptTest, OnlyNeighboursOfTheCutMaySwap) {
  EXPECT_EQ(Compare({0, 1, 4}, {0, 1, 2}, 0.002), KeptOutcome::kWrong) << "scores far apart";
  EXPECT_EQ(Compare({0, 3, 4}, {0, 1, 2}, 0.002), KeptOutcome::kWrong) << "two swaps";
  EXPECT_EQ(Compare({0, 1}, {0, 1, 2}, 0.002), KeptOutcome::kWrong) << "another size";
}

TEST_F(CompareKeptTest, AnExactPolicyHasNoMargin) {
  EXPECT_EQ(Compare({0, 1, 3}, {0, 1, 2}, std::nullopt, 0.0), KeptOutcome::kWrong);
}

TEST(CompareTokens, EndsWithANoteInsideTheGap) {
  CaseReport report;
  const Floats gaps{1.0f, 0.001f, 1.0f};
  EXPECT_EQ(CompareTokens("generated", Ints{4, 5, 6}, gaps, Ints{4, 7, 8}, &report), 1u);
  EXPECT_TRUE(report.failures().empty());
  ASSERT_EQ(report.notes().size(), 1u);
  EXPECT_EQ(report.tokens().equal, 1);
  EXPECT_EQ(report.tokens().inside_margin, 1);
}

TEST(CompareTokens, FailsBeyondTheGap) {
  CaseReport report;
  const Floats gaps{1.0f, 0.003f, 1.0f};
  EXPECT_EQ(CompareTokens("generated", Ints{4, 5, 6}, gaps, Ints{4, 7, 6}, &report), 1u);
  ASSERT_EQ(report.failures().size(), 1u);
  EXPECT_NE(report.failures()[0].find("generated[1]: expected 5, found 7"), std::string::npos);
}

}  // namespace
}  // namespace kvbound::golden
