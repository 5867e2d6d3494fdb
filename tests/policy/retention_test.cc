#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "kvbound/policy.h"
#include "testing/fake_cache.h"

namespace kvbound {
namespace {

using testing::FakeCache;

std::unique_ptr<EvictionPolicy> MakeRetention(const RetentionOptions& retention,
                                              Granularity granularity = Granularity::kPerHead) {
  PolicyOptions options;
  options.name = "retention";
  options.retention = retention;
  options.granularity = granularity;
  return std::move(*MakePolicy(options));
}

// The scores of 30 tokens that no cut has touched, [n_set][slot].
struct Scored {
  FakeCache cache;
  std::vector<std::vector<float>> rows;

  Scored(const RetentionOptions& retention, Granularity granularity = Granularity::kPerHead)
      : cache({.budget = 64, .chunk = 8}, granularity) {
    const auto policy = MakeRetention(retention, granularity);
    const auto protection = ProtectedSpans::Resolve({0, 0, false}, policy->Info(), 64);
    EXPECT_TRUE(cache.FeedUntil(30, *policy, *protection).ok());
    std::vector<float> all(cache.n_set() * cache.n_slot(), std::nanf(""));
    ScoreTable table(all, cache.n_slot());
    EXPECT_TRUE(policy->Score(cache, table).ok());
    for (int32_t set = 0; set < cache.n_set(); ++set) {
      const auto row = table.Row(set);
      rows.emplace_back(row.begin(), row.end());
    }
  }

  double Age(int32_t set, size_t slot) const { return 30.0 - cache.positions(set)[slot].value; }
};

TEST(RetentionTest, DecayIsLogBetaTimesTheAgeByBothConventions) {
  for (const auto age : {RetentionOptions::Age::kNext, RetentionOptions::Age::kCode}) {
    const Scored scored({.age = age});
    for (int32_t set = 0; set < 6; ++set) {
      const auto log_beta = scored.cache.log_beta(set / 3, set % 3);
      for (size_t slot = 0; slot < log_beta.size(); ++slot) {
        const double steps = scored.Age(set, slot) + (age == RetentionOptions::Age::kCode ? 1 : 0);
        EXPECT_NEAR(scored.rows[set][slot], log_beta[slot] * steps, 1e-5);
      }
    }
  }
}

TEST(RetentionTest, FutureIsTheSumOverTheStepsToCome) {
  for (const int64_t horizon : {0, 1, 7, 100}) {
    const Scored scored({.score = RetentionOptions::Score::kFuture, .horizon = horizon});
    for (int32_t set = 0; set < 6; ++set) {
      const auto log_beta = scored.cache.log_beta(set / 3, set % 3);
      for (size_t slot = 0; slot < log_beta.size(); ++slot) {
        double sum = 0;
        for (int64_t s = 0; s < (horizon == 0 ? 100000 : horizon); ++s) {
          sum += std::exp((scored.Age(set, slot) + s) * double{log_beta[slot]});
        }
        EXPECT_NEAR(scored.rows[set][slot], std::log(sum), 1e-4) << horizon;
      }
    }
  }
}

TEST(RetentionTest, ASharedSetIsScoredByTheMeanShareOverItsHeads) {
  const Scored shared({}, Granularity::kShared);
  ASSERT_EQ(shared.rows.size(), 1u);
  std::vector<double> expected(30, 0.0);
  for (int32_t head = 0; head < 6; ++head) {
    const auto log_beta = shared.cache.log_beta(head / 3, head % 3);
    double sum = 0;
    for (size_t i = 0; i < 30; ++i) sum += std::exp(log_beta[i] * shared.Age(0, i));
    for (size_t i = 0; i < 30; ++i) expected[i] += std::exp(log_beta[i] * shared.Age(0, i)) / sum;
  }
  for (size_t i = 0; i < 30; ++i) EXPECT_NEAR(shared.rows[0][i], expected[i], 1e-5);
}

TEST(RetentionTest, CutsWhenFullOnlyIfAskedFor) {
  EXPECT_FALSE(MakeRetention({})->Info().cuts_when_full);
  EXPECT_TRUE(MakeRetention({.cadence = RetentionOptions::Cadence::kFull})->Info().cuts_when_full);
}

}  // namespace
}  // namespace kvbound
