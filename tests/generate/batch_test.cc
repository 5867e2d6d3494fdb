// Sequences of different lengths and policies in one batch give each what it gives alone.

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/strings.h"
#include "testing/expect_refused.h"
#include "testing/tiny_engine.h"

namespace kvbound::testing {
namespace {

constexpr int32_t kSeqs = 8;
constexpr int32_t kSteps = 40;

struct Setup {
  std::string engine_policy;
  std::vector<PolicyOptions> policies;  // of the sessions, in turn
  KvType type = KvType::kF32;
  AttentionPath attention = AttentionPath::kStock;
  // f16 turns a rounding difference into a step of the type.
  double tolerance() const { return type == KvType::kF32 ? 1e-4 : 2e-2; }
};

PolicyOptions Named(const char* name, std::optional<Granularity> granularity = {}) {
  PolicyOptions options;
  options.name = name;
  options.granularity = granularity;
  return options;
}

PolicyOptions Published(const char* name) {
  PolicyOptions options = Named(name);
  options.counter_causal.emplace().align = CounterCausalOptions::Align::kPublished;
  return options;
}

std::vector<Setup> Setups() {
  const std::vector<PolicyOptions> plain = {Named("random", Granularity::kPerHead), Named("window"),
                                            Named("random", Granularity::kPerLayer),
                                            Named("streaming"),
                                            Named("random", Granularity::kShared)};
  const auto with_scores = [](const char* policy) {
    return std::vector<PolicyOptions>{Named(policy), Named("window"), Published(policy),
                                      Named("random", Granularity::kShared), Named(policy)};
  };
  return {{"random", plain},
          {"random", plain, KvType::kF16},
          {"random", plain, KvType::kF32, AttentionPath::kFlash},
          {"random", plain, KvType::kF32, AttentionPath::kFused},
          {"random", plain, KvType::kF16, AttentionPath::kFused},
          {"h2o",
           {Named("h2o"), Named("window"), Named("h2o", Granularity::kPerLayer), Named("streaming"),
            Named("h2o", Granularity::kShared)},
           KvType::kF32,
           AttentionPath::kFused},
          {"counter-causal-fast", with_scores("counter-causal-fast")},
          {"counter-causal-fast", with_scores("counter-causal-fast"), KvType::kF32,
           AttentionPath::kFlash},
          {"counter-causal-fast", with_scores("counter-causal-fast"), KvType::kF32,
           AttentionPath::kFused},
          {"counter-causal", with_scores("counter-causal"), KvType::kF32, AttentionPath::kFused},
          {"counter-causal", with_scores("counter-causal")}};
}

const std::shared_ptr<const Model>& TheModel() {
  static const auto model = LoadTiny(MakeTinyModel());
  return model;
}

Token Best(const std::vector<float>& logits, double* gap) {
  std::vector<float> sorted = logits;
  std::ranges::sort(sorted, std::greater());
  *gap = sorted[0] - sorted[1];
  return static_cast<Token>(std::ranges::max_element(logits) - logits.begin());
}

class BatchTest : public ::testing::TestWithParam<Setup> {
 protected:
  EngineOptions Options(int32_t n_seq) const {
    EngineOptions options = ExactEngine(GetParam().engine_policy, 13, 5);
    options.type_k = options.type_v = GetParam().type;
    options.attention = GetParam().attention;
    options.n_seq = n_seq;
    return options;
  }
  SessionOptions OptionsOf(int32_t i) const {
    SessionOptions options = Protected(2, 2);
    options.policy = GetParam().policies[i % GetParam().policies.size()];
    return options;
  }
  static std::vector<Token> PromptOf(int32_t i) { return TestTokens(1 + 7 * i, i + 1); }
};

INSTANTIATE_TEST_SUITE_P(Setups, BatchTest, ::testing::ValuesIn(Setups()),
                         [](const ::testing::TestParamInfo<Setup>& info) {
                           std::string name =
                               StrCat(info.param.engine_policy, "_", KvTypeName(info.param.type),
                                      "_", AttentionPathName(info.param.attention));
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

// One sequence of the batch beside its twin that runs alone.
struct Pair {
  std::unique_ptr<Session> batched;
  std::unique_ptr<Engine> alone_engine;
  std::unique_ptr<Session> alone;
  bool compared = true;  // until a near tie sends the two texts apart
  Token next = 0, next_alone = 0;
};

TEST_P(BatchTest, EachSequenceGetsTheTextItGetsAlone) {
  const auto engine = MakeEngine(TheModel(), Options(kSeqs));
  std::vector<Pair> pairs(kSeqs);
  int n_compared = 0;
  const auto compare = [&](Pair& pair, int step) {
    const std::vector<float> a = CopyLogits(*pair.batched), b = CopyLogits(*pair.alone);
    double gap = 0.0;
    pair.next_alone = Best(b, &gap);
    pair.next = Best(a, &gap);
    if (!pair.compared) return;
    ++n_compared;
    ASSERT_LT(LargestDifference(a, b), GetParam().tolerance())
        << pair.batched->policy().name << " after step " << step;
    if (pair.next == pair.next_alone) return;
    EXPECT_LT(gap, 1e-2) << pair.batched->policy().name << " after step " << step;
    pair.compared = false;
  };
  for (int step = 0; step < kSteps; ++step) {
    if (step < kSeqs) {  // a prompt between the steps of the others
      Pair& pair = pairs[step];
      pair.batched = MakeSession(*engine, OptionsOf(step));
      pair.alone_engine = MakeEngine(TheModel(), Options(1));
      pair.alone = MakeSession(*pair.alone_engine, OptionsOf(step));
      ASSERT_TRUE(pair.batched->Feed(PromptOf(step)).ok());
      ASSERT_TRUE(pair.alone->Feed(PromptOf(step)).ok());
      compare(pair, step);
    }
    // Any subset, its rows in any order: all of them in every third step.
    std::vector<Session*> batch;
    std::vector<Token> tokens;
    for (int32_t j = 0; j < kSeqs; ++j) {
      const int32_t i = (j * 3 + step) % kSeqs;
      const bool in = step % 3 == 0 || ((step * 37 + 11) >> i) % 2 == 1;
      if (!in || pairs[i].batched == nullptr) continue;
      batch.push_back(pairs[i].batched.get());
      tokens.push_back(pairs[i].next);
    }
    if (batch.empty()) continue;
    const Status status = engine->Step(batch, tokens);
    ASSERT_TRUE(status.ok()) << status;
    for (Pair& pair : pairs) {
      if (std::ranges::find(batch, pair.batched.get()) == batch.end()) continue;
      ASSERT_TRUE(StepOne(*pair.alone_engine, *pair.alone, pair.next_alone).ok());
      compare(pair, step);
      if (HasFatalFailure()) return;
    }
  }
  EXPECT_GT(n_compared, 100);
  for (const Pair& pair : pairs) {
    EXPECT_GT(pair.batched->stats().cuts, 0);
    EXPECT_EQ(pair.batched->stats().cuts, pair.alone->stats().cuts);
    if (!pair.compared) continue;
    for (int32_t set = 0; set < pair.batched->n_set(); ++set) {
      EXPECT_EQ(SortedPositions(*pair.batched, set), SortedPositions(*pair.alone, set));
    }
  }
}

// The bits too, as long as the shape of the pass is the same: neighbours' content is of no matter.
TEST_P(BatchTest, NeighboursDoNotReachOver) {
  std::vector<float> first;
  for (const uint64_t seed : {1, 2}) {
    const auto engine = MakeEngine(TheModel(), Options(3));
    std::vector<std::unique_ptr<Session>> sessions;
    std::vector<Session*> batch;
    for (int32_t i = 0; i < 3; ++i) {
      sessions.push_back(MakeSession(*engine, OptionsOf(i)));
      ASSERT_TRUE(sessions[i]->Feed(i == 1 ? TestTokens(20) : TestTokens(20, 10 * seed + i)).ok());
      batch.push_back(sessions[i].get());
    }
    for (int step = 0; step < 9; ++step) {
      std::vector<Token> tokens = TestTokens(3, seed + step);
      tokens[1] = 50 + step;
      ASSERT_TRUE(engine->Step(batch, tokens).ok());
    }
    const std::vector<float> logits = CopyLogits(*sessions[1]);
    if (first.empty()) first = logits;
    EXPECT_TRUE(SameBits(logits, first));
  }
}

TEST(BatchRefusalTest, AFailedStepChangesNoSession) {
  EngineOptions options = ExactEngine("window", 6, 3);
  options.n_seq = 3;
  const auto engine = MakeEngine(TheModel(), options);
  const auto a = MakeSession(*engine), b = MakeSession(*engine);
  SessionOptions none;
  none.policy.emplace().name = "none";
  const auto full = MakeSession(*engine, none);
  ASSERT_TRUE(a->Feed(TestTokens(8)).ok());
  ASSERT_TRUE(b->Feed(TestTokens(4)).ok());
  ASSERT_TRUE(full->Feed(TestTokens(6)).ok());
  const std::vector<float> before = CopyLogits(*a);
  const auto expect_refused = [&](std::vector<Session*> batch, std::vector<Token> tokens,
                                  const std::vector<std::string>& words) {
    ExpectRefused(engine->Step(batch, tokens), words);
    EXPECT_EQ(a->stats().tokens_seen, 8);
    EXPECT_EQ(b->stats().tokens_seen, 4);
    EXPECT_TRUE(SameBits(CopyLogits(*a), before));
  };
  expect_refused({a.get(), b.get()}, {1, 286}, {"token 1", "286"});
  expect_refused({a.get(), b.get(), full.get()}, {1, 2, 3}, {"none", "6"});
  expect_refused({a.get(), a.get()}, {1, 2}, {"twice"});
  expect_refused({a.get(), nullptr}, {1, 2}, {"another"});
  expect_refused({a.get(), b.get()}, {1}, {"2", "1"});
  expect_refused({}, {}, {"0"});
  const auto other_engine = MakeEngine(TheModel(), options);
  const auto other = MakeSession(*other_engine);
  expect_refused({a.get(), other.get()}, {1, 2}, {"another"});
  std::vector<Session*> batch = {b.get(), a.get()};
  const std::vector<Token> tokens = {1, 2};
  EXPECT_TRUE(engine->Step(batch, tokens).ok());
  EXPECT_EQ(a->stats().tokens_seen, 9);
}

}  // namespace
}  // namespace kvbound::testing
