#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/strings.h"
#include "kvbound/policy.h"
#include "policy/protection.h"
#include "testing/fake_cache.h"

namespace kvbound {
namespace {

using testing::FakeCache;
using testing::FakeScorer;
using testing::SlotOrder;

std::unique_ptr<EvictionPolicy> MustMake(const PolicyOptions& options) {
  Result<std::unique_ptr<EvictionPolicy>> policy = MakePolicy(options);
  EXPECT_TRUE(policy.ok()) << policy.status();
  return *std::move(policy);
}

PolicyOptions Named(const std::string& name) {
  PolicyOptions options;
  options.name = name;
  return options;
}

ProtectedSpans Protect(const EvictionPolicy& policy, const ProtectionOptions& options,
                       int32_t budget) {
  Result<ProtectedSpans> spans = ProtectedSpans::Resolve(options, policy.Info(), budget);
  EXPECT_TRUE(spans.ok()) << spans.status();
  return *std::move(spans);
}

std::vector<int32_t> Range(int32_t begin, int32_t end) {
  std::vector<int32_t> range(end - begin);
  std::iota(range.begin(), range.end(), begin);
  return range;
}

// Positions that a shared policy holds after `n` tokens.
std::vector<int32_t> KeptAfter(int64_t n, const PolicyOptions& options,
                               const ProtectionOptions& protection, int32_t budget, int32_t chunk) {
  const auto policy = MustMake(options);
  FakeCache cache({.budget = budget, .chunk = chunk}, policy->Info().granularity);
  const Status status = cache.FeedUntil(n, *policy, Protect(*policy, protection, budget));
  EXPECT_TRUE(status.ok()) << status;
  return cache.Kept();
}

const ProtectionOptions kNothingProtected = {0, 0, false};

// A chunk that does not divide the budget, or is longer than it.
TEST(WindowTest, KeepsTheLastPositionsForAnyChunk) {
  const PolicyOptions window = Named("window");
  EXPECT_EQ(KeptAfter(15, window, kNothingProtected, 8, 3), Range(7, 15));
  EXPECT_EQ(KeptAfter(15, window, kNothingProtected, 8, 5), Range(7, 15));
  EXPECT_EQ(KeptAfter(15, window, kNothingProtected, 4, 7), Range(10, 15));
  EXPECT_EQ(KeptAfter(16, window, kNothingProtected, 8, 3), Range(7, 16));
  EXPECT_EQ(KeptAfter(15, window, {}, 8, 3), Range(7, 15));  // nothing is protected by default
  EXPECT_EQ(KeptAfter(15, window, kNothingProtected, 64, 3), Range(0, 15));
}

TEST(StreamingTest, KeepsSinksAndTheLastPositions) {
  const std::vector<int32_t> expected = {0, 1, 2, 3, 11, 12, 13, 14};
  EXPECT_EQ(KeptAfter(15, Named("streaming"), {4, 0, false}, 8, 3), expected);
  EXPECT_EQ(KeptAfter(15, Named("streaming"), {}, 8, 3), expected);  // 4 sinks by default
  EXPECT_EQ(KeptAfter(15, Named("window"), {4, 0, false}, 8, 3), expected);
  EXPECT_EQ(KeptAfter(300, Named("streaming"), {2, 0, false}, 8, 10),
            (std::vector<int32_t>{0, 1, 294, 295, 296, 297, 298, 299}));
}

TEST(StreamingTest, WithoutSinksItIsRefusedWithTheNameOfTheOther) {
  const auto policy = MustMake(Named("streaming"));
  const Status status = ProtectedSpans::Resolve(kNothingProtected, policy->Info(), 128).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("'window'"), std::string::npos) << status;
}

TEST(NoneTest, ACutIsAnError) {
  const auto policy = MustMake(Named("none"));
  const ProtectedSpans protection = Protect(*policy, {}, 8);
  FakeCache fits({.budget = 8, .chunk = 3}, Granularity::kShared);
  EXPECT_TRUE(fits.FeedUntil(8, *policy, protection).ok());
  FakeCache cache({.budget = 8, .chunk = 3}, Granularity::kShared);
  EXPECT_FALSE(cache.FeedUntil(9, *policy, protection).ok());
}

struct Cycle {
  std::string policy;
  Granularity granularity;
  int32_t budget;
  int32_t chunk;
};

std::vector<Cycle> AllCycles() {
  std::vector<Cycle> cycles;
  for (const PolicyInfo& info : ListPolicies()) {
    if (!info.evicts) continue;
    for (const int32_t budget : {2, 8, 21}) {
      for (const int32_t chunk : {1, 3, 7, 32}) {
        if (info.name != "random" && info.name != "retention") {
          cycles.push_back({info.name, info.granularity, budget, chunk});
          continue;
        }
        for (const Granularity granularity :
             {Granularity::kShared, Granularity::kPerLayer, Granularity::kPerHead}) {
          cycles.push_back({info.name, granularity, budget, chunk});
        }
      }
    }
  }
  return cycles;
}

// What every policy owes its caller, on a cycle whose model is a function of the position.
class PolicyCycleTest : public ::testing::TestWithParam<Cycle> {
 protected:
  struct Run {
    std::vector<std::vector<int32_t>> kept;  // per set
    int32_t peak_slots;
    int32_t n_cut;
  };

  Run RunCycle(int64_t n, SlotOrder order, const ProtectedSpans* pinned = nullptr) {
    const Cycle& c = GetParam();
    PolicyOptions options = Named(c.policy);
    if (c.policy == "random" || c.policy == "retention") options.granularity = c.granularity;
    const auto policy = MustMake(options);
    FakeScorer scorer([](Position p, Token) { return std::sin(static_cast<float>(p.value)); });
    const bool scored = policy->Info().model_score != ModelScore::kNone;
    FakeCache cache({.budget = c.budget, .chunk = c.chunk}, c.granularity,
                    scored ? &scorer : nullptr, order);
    const ProtectedSpans protection = pinned != nullptr ? *pinned : Protect(*policy, {}, c.budget);
    const Status status = cache.FeedUntil(n, *policy, protection);
    EXPECT_TRUE(status.ok()) << status;
    Run run{{}, cache.peak_slots(), cache.n_cut()};
    for (int32_t set = 0; set < cache.n_set(); ++set) run.kept.push_back(cache.Kept(set));
    return run;
  }
};

TEST_P(PolicyCycleTest, HoldsTheBudgetAndTheNewestToken) {
  const Cycle& c = GetParam();
  const int64_t n = 10 * c.chunk + 40 / c.chunk * c.chunk;  // ends at a cut
  const Run run = RunCycle(n, SlotOrder::kReversed);
  EXPECT_LE(run.peak_slots, c.budget + c.chunk);
  EXPECT_GT(run.n_cut, 0);
  for (const std::vector<int32_t>& kept : run.kept) {
    ASSERT_EQ(kept.size(), static_cast<size_t>(c.budget));
    EXPECT_EQ(std::adjacent_find(kept.begin(), kept.end()), kept.end());
    EXPECT_GE(kept.front(), 0);
    EXPECT_LT(kept.back(), n);
  }
}

TEST_P(PolicyCycleTest, DoesNotDependOnTheSlotOrderAndRepeats) {
  const Run run = RunCycle(100, SlotOrder::kReversed);
  EXPECT_EQ(run.kept, RunCycle(100, SlotOrder::kAscending).kept);
  EXPECT_EQ(run.kept, RunCycle(100, SlotOrder::kReversed).kept);
}

TEST_P(PolicyCycleTest, CutsNothingWithinTheBudget) {
  const Run run = RunCycle(GetParam().budget, SlotOrder::kReversed);
  EXPECT_EQ(run.n_cut, 0);
  EXPECT_EQ(run.kept[0], Range(0, GetParam().budget));
}

TEST_P(PolicyCycleTest, KeepsWhatIsProtected) {
  const Cycle& c = GetParam();
  if (c.budget < 8) return;
  const auto policy = MustMake(Named(c.policy));
  ProtectedSpans protection = Protect(*policy, {2, 2, false}, c.budget);
  ASSERT_TRUE(protection.Pin({{5}, {7}}).ok());
  const Run run = RunCycle(20 * c.chunk, SlotOrder::kReversed, &protection);
  for (const std::vector<int32_t>& kept : run.kept) {
    for (const int32_t position : {0, 1, 5, 6, 20 * c.chunk - 2, 20 * c.chunk - 1}) {
      EXPECT_TRUE(std::binary_search(kept.begin(), kept.end(), position)) << position;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, PolicyCycleTest, ::testing::ValuesIn(AllCycles()),
                         [](const auto& info) {
                           std::string name = StrCat(info.param.policy, "_",
                                                     GranularityName(info.param.granularity), "_J",
                                                     info.param.budget, "_h", info.param.chunk);
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

// The sets that `random` keeps after one cut of 12 slots to 6.
std::vector<std::vector<int32_t>> RandomSets(uint64_t seed, Granularity granularity) {
  PolicyOptions options = Named("random");
  options.seed = seed;
  options.granularity = granularity;
  const auto policy = MustMake(options);
  FakeCache cache({.budget = 6, .chunk = 12}, granularity);
  EXPECT_TRUE(cache.FeedUntil(12, *policy, Protect(*policy, kNothingProtected, 6)).ok());
  std::vector<std::vector<int32_t>> sets;
  for (int32_t set = 0; set < cache.n_set(); ++set) sets.push_back(cache.Kept(set));
  return sets;
}

TEST(RandomTest, TheSeedDecidesAndSetsAreIndependent) {
  for (const Granularity granularity :
       {Granularity::kShared, Granularity::kPerLayer, Granularity::kPerHead}) {
    EXPECT_EQ(RandomSets(1, granularity), RandomSets(1, granularity));
    EXPECT_NE(RandomSets(1, granularity), RandomSets(2, granularity));
  }
  EXPECT_EQ(RandomSets(1, Granularity::kShared).size(), 1u);
  EXPECT_EQ(RandomSets(1, Granularity::kPerLayer).size(), 2u);
  const auto sets = RandomSets(1, Granularity::kPerHead);
  ASSERT_EQ(sets.size(), 6u);
  EXPECT_NE(sets[0], sets[1]);
}

TEST(RandomTest, IsUniform) {
  constexpr int kRuns = 2000;
  std::vector<int> counts(12, 0);
  std::vector<int> pairs(12, 0);  // kept together with position 0
  for (int seed = 0; seed < kRuns; ++seed) {
    const std::vector<int32_t> kept = RandomSets(seed, Granularity::kShared)[0];
    for (const int32_t position : kept) {
      ++counts[position];
      if (kept[0] == 0) ++pairs[position];
    }
  }
  // Five standard deviations: of 2000 draws at 1/2, and at 1/2 * 5/11.
  for (const int count : counts) EXPECT_NEAR(count, kRuns / 2, 112);
  for (int p = 1; p < 12; ++p) EXPECT_NEAR(pairs[p], kRuns * 5 / 22, 94);
}

// Sequences with one seed draw alike and do not touch each other, whatever their order.
TEST(RandomTest, InterleavedSequencesKeepWhatEachKeepsAlone) {
  const FakeCache::Shape shape{.budget = 6, .chunk = 4};
  const auto alone_policy = MustMake(Named("random"));
  const ProtectedSpans protection = Protect(*alone_policy, kNothingProtected, 6);
  FakeCache alone(shape, Granularity::kPerHead);
  ASSERT_TRUE(alone.FeedUntil(60, *alone_policy, protection).ok());

  const auto a_policy = MustMake(Named("random"));
  const auto b_policy = MustMake(Named("random"));
  FakeCache a(shape, Granularity::kPerHead), b(shape, Granularity::kPerHead);
  for (int64_t n = 1; n <= 60; ++n) {
    ASSERT_TRUE(b.FeedUntil(2 * n, *b_policy, protection).ok());
    ASSERT_TRUE(a.FeedUntil(n, *a_policy, protection).ok());
  }
  for (int32_t set = 0; set < alone.n_set(); ++set) EXPECT_EQ(a.Kept(set), alone.Kept(set));
}

// Draws are made anew at each cut: with frozen draws, what survives the first cut would hold on.
TEST(RandomTest, OldSurvivorsAreNotSafe) {
  const auto policy = MustMake(Named("random"));
  const ProtectedSpans protection = Protect(*policy, kNothingProtected, 50);
  FakeCache cache({.budget = 50, .chunk = 50}, Granularity::kPerHead);
  ASSERT_TRUE(cache.FeedUntil(1000, *policy, protection).ok());
  for (int32_t set = 0; set < cache.n_set(); ++set) {
    const std::vector<int32_t> kept = cache.Kept(set);
    const auto newest = std::count_if(kept.begin(), kept.end(), [](int p) { return p >= 950; });
    EXPECT_GT(newest, 10);  // expected 25; with frozen draws 2.5
  }
}

// The last half of the budget, and of the others those with most attention.
TEST(H2oTest, KeepsRecentTokensAndHeavyHitters) {
  const int32_t budget = 8, n = 20;
  for (const Granularity granularity :
       {Granularity::kPerHead, Granularity::kPerLayer, Granularity::kShared}) {
    PolicyOptions options = Named("h2o");
    options.granularity = granularity;
    const auto policy = MustMake(options);
    FakeCache cache({.budget = budget, .chunk = n}, granularity);
    // Before the cut: what each head's slots have got.
    const int32_t n_head = cache.n_layer() * cache.n_kv_head();
    std::vector<std::vector<float>> mass(cache.n_set(), std::vector<float>(n));
    for (int32_t head = 0; head < n_head; ++head) {
      for (int32_t p = 0; p < n; ++p) {
        mass[head * cache.n_set() / n_head][p] += FakeCache::AttentionMass(head, {p});
      }
    }
    ASSERT_TRUE(cache.FeedUntil(n, *policy, Protect(*policy, kNothingProtected, budget)).ok());
    for (int32_t set = 0; set < cache.n_set(); ++set) {
      std::vector<int32_t> order = Range(0, n - budget / 2);
      std::ranges::sort(order, std::greater(), [&](int32_t p) { return mass[set][p]; });
      std::vector<int32_t> expected = Range(n - budget / 2, n);
      expected.insert(expected.end(), order.begin(), order.begin() + budget / 2);
      std::ranges::sort(expected);
      EXPECT_EQ(cache.Kept(set), expected) << GranularityName(granularity) << " set " << set;
    }
  }
}

class CounterCausalTest : public ::testing::TestWithParam<const char*> {
 protected:
  Result<std::vector<int32_t>> Kept(const CounterCausalOptions& options, FakeScorer& scorer) {
    PolicyOptions named = Named(GetParam());
    named.counter_causal = options;
    KVBOUND_ASSIGN_OR_RETURN(auto policy, MakePolicy(named));
    FakeCache cache({.budget = 6, .chunk = 12}, Granularity::kShared, &scorer);
    KVBOUND_RETURN_IF_ERROR(cache.FeedUntil(12, *policy, Protect(*policy, kNothingProtected, 6)));
    return cache.Kept();
  }
};

TEST_P(CounterCausalTest, EvictsTheMostPredictableAndKeepsTheLast) {
  FakeScorer scorer([](Position p, Token) { return static_cast<float>(p.value); });
  Result<std::vector<int32_t>> kept = Kept({}, scorer);
  ASSERT_TRUE(kept.ok()) << kept.status();
  EXPECT_EQ(*kept, (std::vector<int32_t>{0, 1, 2, 3, 4, 11}));
  EXPECT_EQ(scorer.n_call(), 1);

  kept = Kept({.min_gap = 2}, scorer);
  ASSERT_TRUE(kept.ok()) << kept.status();
  EXPECT_EQ(*kept, (std::vector<int32_t>{0, 1, 2, 9, 10, 11}));
}

TEST_P(CounterCausalTest, HandsItsOptionsOn) {
  FakeScorer scorer([](Position, Token) { return 0.0f; });
  CounterCausalOptions options;
  options.score = CounterCausalOptions::Score::kPmi;
  options.align = CounterCausalOptions::Align::kPublished;
  options.min_gap = 3;
  ASSERT_TRUE(Kept(options, scorer).ok());
  EXPECT_EQ(scorer.last_options().score, options.score);
  EXPECT_EQ(scorer.last_options().align, options.align);
  EXPECT_EQ(scorer.last_options().min_gap, 3);
}

TEST_P(CounterCausalTest, NanWhereTheReadingIsDefinedIsAnError) {
  FakeScorer scorer([](Position p, Token) { return p.value == 5 ? std::nanf("") : 0.0f; });
  const Status status = Kept({}, scorer).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("position 5"), std::string::npos) << status;
}

TEST_P(CounterCausalTest, AMinGapThatFillsTheBudgetIsRefusedBeforeAnythingRuns) {
  PolicyOptions named = Named(GetParam());
  named.counter_causal = CounterCausalOptions{.min_gap = 5};
  const auto policy = MustMake(named);
  const Status status = ProtectedSpans::Resolve(kNothingProtected, policy->Info(), 6).status();
  EXPECT_EQ(status.code(), StatusCode::kOutOfBudget) << status;
}

TEST_P(CounterCausalTest, WithoutAScorerIsAnInternalError) {
  const auto policy = MustMake(Named(GetParam()));
  FakeCache cache({.budget = 6, .chunk = 12}, Granularity::kShared);
  EXPECT_EQ(cache.FeedUntil(12, *policy, Protect(*policy, kNothingProtected, 6)).code(),
            StatusCode::kInternal);
}

INSTANTIATE_TEST_SUITE_P(Both, CounterCausalTest,
                         ::testing::Values("counter-causal", "counter-causal-fast"),
                         [](const auto& info) {
                           return std::string(info.param) == "counter-causal" ? "Full" : "Fast";
                         });

TEST(CounterCausalReadingTest, AnUndefinedSlotStays) {
  using Reading = CounterCausalOptions::Reading;
  for (const Reading reading : {Reading::kB, Reading::kC}) {
    const int32_t undefined = reading == Reading::kB ? 0 : 11;
    FakeScorer scorer([&](Position p, Token) {
      return p.value == undefined ? std::nanf("") : -static_cast<float>(p.value);
    });
    PolicyOptions options = Named("counter-causal");
    options.counter_causal = CounterCausalOptions{.reading = reading};
    const auto policy = MustMake(options);
    FakeCache cache({.budget = 4, .chunk = 12}, Granularity::kShared, &scorer);
    const Status status = cache.FeedUntil(12, *policy, Protect(*policy, kNothingProtected, 4));
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_EQ(cache.Kept(), reading == Reading::kB ? (std::vector<int32_t>{0, 9, 10, 11})
                                                   : (std::vector<int32_t>{8, 9, 10, 11}));
  }
}

}  // namespace
}  // namespace kvbound
