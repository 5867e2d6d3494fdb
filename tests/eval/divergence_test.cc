#include "eval/divergence.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace kvbound::eval {
namespace {

std::vector<float> RandomLogits(size_t n, uint64_t seed, float width) {
  std::mt19937_64 random(seed);
  std::vector<float> logits;
  for (size_t i = 0; i < n; ++i) {
    logits.push_back(width * (static_cast<float>(random() >> 40) * 0x1p-24f - 0.5f));
  }
  return logits;
}

double LogSum(const std::vector<float>& logits) {
  double sum = 0;
  for (const float z : logits) sum += std::exp(double{z});
  return std::log(sum);
}

double PlainDivergence(const std::vector<float>& p, const std::vector<float>& q) {
  double kl = 0;
  for (size_t i = 0; i < p.size(); ++i) {
    const double log_p = p[i] - LogSum(p);
    kl += std::exp(log_p) * (log_p - (q[i] - LogSum(q)));
  }
  return kl;
}

double DivergenceOf(const std::vector<float>& p, const std::vector<float>& q) {
  std::vector<float> weights(p.size());
  const LogitRow p_row = SumUp(p, weights);
  return Divergence(p, weights, p_row, q, SumUp(q));
}

TEST(Divergence, EqualsPlainLoops) {
  for (const size_t n : {1, 2, 15, 16, 17, 511, 512, 513, 1000}) {
    for (const float width : {0.1f, 10.0f, 60.0f}) {
      SCOPED_TRACE(n);
      const std::vector<float> p = RandomLogits(n, n, width), q = RandomLogits(n, n + 1, width);
      const LogitRow row = SumUp(p);
      EXPECT_NEAR(row.log_sum, LogSum(p), 1e-6 * (1 + std::fabs(LogSum(p))));
      EXPECT_EQ(row.top, std::max_element(p.begin(), p.end()) - p.begin());
      const double expected = PlainDivergence(p, q);
      EXPECT_NEAR(DivergenceOf(p, q), expected, 2e-6 * (1 + width + expected));
    }
  }
}

TEST(Divergence, IsExactlyZeroForEqualRows) {
  const std::vector<float> p = RandomLogits(49152, 3, 30.0f);
  EXPECT_EQ(DivergenceOf(p, p), 0.0);
}

TEST(Divergence, DoesNotSeeAConstantAdded) {
  const std::vector<float> p = RandomLogits(300, 4, 8.0f);
  std::vector<float> q = p;
  for (float& z : q) z += 4.0f;
  EXPECT_NEAR(DivergenceOf(p, q), 0.0, 1e-5);
}

TEST(Divergence, TakesLargeAndTinyLogits) {
  std::vector<float> p = {1000.0f, -1000.0f, 990.0f, -3e38f};
  const LogitRow row = SumUp(p);
  EXPECT_EQ(row.top, 0);
  EXPECT_NEAR(row.log_sum, 1000.0 + std::log1p(std::exp(-10.0)), 1e-4);
}

TEST(Divergence, TheLowestOfEqualTokensIsTheTop) {
  std::vector<float> p(40, 1.0f);
  p[7] = p[33] = 2.0f;
  EXPECT_EQ(SumUp(p).top, 7);
}

TEST(Divergence, IsNoNumberWhereALogitIsNone) {
  const std::vector<float> p = RandomLogits(100, 5, 8.0f);
  for (const size_t at : {0, 50, 99}) {
    std::vector<float> q = p;
    q[at] = std::numeric_limits<float>::quiet_NaN();
    EXPECT_FALSE(std::isfinite(DivergenceOf(p, q))) << at;
    EXPECT_FALSE(std::isfinite(DivergenceOf(q, p))) << at;
  }
}

}  // namespace
}  // namespace kvbound::eval
