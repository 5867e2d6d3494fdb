#include "eval/bootstrap.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

namespace kvbound::eval {
namespace {

TEST(Bootstrap, AConstantRatioHasNoWidth) {
  const std::vector<double> b = {0.1, 0.25, 0.5, 4.0};
  std::vector<double> a;
  for (const double value : b) a.push_back(value / 2);
  const auto compared = ComparePaired(a, b);
  ASSERT_TRUE(compared.ok());
  EXPECT_DOUBLE_EQ(compared->ratio, 0.5);
  EXPECT_DOUBLE_EQ(compared->ratio_95.low, 0.5);
  EXPECT_DOUBLE_EQ(compared->ratio_95.high, 0.5);
  EXPECT_LT(compared->difference_95.low, compared->difference_95.high);
}

TEST(Bootstrap, AConstantDifferenceHasNoWidth) {
  const auto compared =
      ComparePaired(std::vector<double>{1.5, 2.5, 8.5}, std::vector<double>{1, 2, 8});
  ASSERT_TRUE(compared.ok());
  EXPECT_DOUBLE_EQ(compared->difference, 0.5);
  EXPECT_DOUBLE_EQ(compared->difference_95.low, 0.5);
  EXPECT_DOUBLE_EQ(compared->difference_95.high, 0.5);
}

// Of two texts, a resample takes the first twice, both, or the second twice: 1/4, 1/2, 1/4.
TEST(Bootstrap, TwoTextsGiveTheirOwnValuesAsEnds) {
  const auto compared = ComparePaired(std::vector<double>{1, 3}, std::vector<double>{2, 2});
  ASSERT_TRUE(compared.ok());
  EXPECT_DOUBLE_EQ(compared->ratio, 1.0);
  EXPECT_DOUBLE_EQ(compared->ratio_95.low, 0.5);
  EXPECT_DOUBLE_EQ(compared->ratio_95.high, 1.5);
  EXPECT_DOUBLE_EQ(compared->difference_95.low, -1.0);
  EXPECT_DOUBLE_EQ(compared->difference_95.high, 1.0);
}

// With many texts the interval of a mean difference approaches mean -+ 1.96 standard errors.
TEST(Bootstrap, ApproachesTheNormalInterval) {
  std::mt19937_64 random(7);
  std::vector<double> a, b;
  double sum = 0, squares = 0;
  constexpr int kTexts = 400;
  for (int i = 0; i < kTexts; ++i) {
    const double difference = static_cast<double>(random() >> 11) * 0x1p-53;
    a.push_back(5 + difference);
    b.push_back(5);
    sum += difference;
    squares += difference * difference;
  }
  const double mean = sum / kTexts;
  const double error = std::sqrt((squares / kTexts - mean * mean) / kTexts);
  const auto compared = ComparePaired(a, b);
  ASSERT_TRUE(compared.ok());
  EXPECT_NEAR(compared->difference, mean, 1e-12);
  EXPECT_NEAR(compared->difference_95.low, mean - 1.96 * error, 0.1 * error);
  EXPECT_NEAR(compared->difference_95.high, mean + 1.96 * error, 0.1 * error);
}

TEST(Bootstrap, DependsOnTheSeedAlone) {
  const std::vector<double> a = {1, 4, 2, 8, 5, 7}, b = {3, 1, 4, 1, 5, 9};
  const auto first = ComparePaired(a, b, {.n_resample = 50, .seed = 3});
  const auto again = ComparePaired(a, b, {.n_resample = 50, .seed = 3});
  const auto other = ComparePaired(a, b, {.n_resample = 50, .seed = 4});
  EXPECT_EQ(first->ratio_95.low, again->ratio_95.low);
  EXPECT_EQ(first->difference_95.high, again->difference_95.high);
  EXPECT_NE(first->ratio_95.low, other->ratio_95.low);
}

TEST(Bootstrap, TakesZeros) {
  const std::vector<double> zeros = {0, 0}, ones = {1, 1};
  EXPECT_EQ(ComparePaired(zeros, zeros)->ratio, 1);
  EXPECT_EQ(ComparePaired(zeros, zeros)->ratio_95.high, 1);
  EXPECT_TRUE(std::isinf(ComparePaired(ones, zeros)->ratio_95.low));
}

TEST(Bootstrap, RefusesBadInput) {
  const std::vector<double> one = {1}, two = {1, 2}, none;
  EXPECT_EQ(ComparePaired(one, two).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(ComparePaired(none, none).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(ComparePaired(one, one, {.n_resample = 0}).status().code(),
            StatusCode::kInvalidArgument);
}

// Values of the formula computed by hand, and the rule of quality studies: 0 of 8 is at most .32.
TEST(Wilson, KnownValues) {
  EXPECT_DOUBLE_EQ(WilsonInterval(0, 8).low, 0.0);
  EXPECT_NEAR(WilsonInterval(0, 8).high, 0.3244, 1e-4);
  EXPECT_NEAR(WilsonInterval(28, 32).low, 0.7193, 1e-3);
  EXPECT_NEAR(WilsonInterval(28, 32).high, 0.9503, 1e-3);
  EXPECT_NEAR(WilsonInterval(5, 10).low, 0.2366, 1e-4);
  EXPECT_NEAR(WilsonInterval(5, 10).high, 0.7634, 1e-4);
  EXPECT_NEAR(WilsonInterval(8, 8).low, 1 - 0.3244, 1e-4);
  EXPECT_DOUBLE_EQ(WilsonInterval(8, 8).high, 1.0);
}

}  // namespace
}  // namespace kvbound::eval
