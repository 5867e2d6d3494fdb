// The engine's scores against plain loops.

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/strings.h"
#include "testing/expect_refused.h"
#include "testing/scored_run.h"

namespace kvbound::testing {
namespace {

// Between f32 and double; single slots are less well conditioned than most.
constexpr double kTolerance = 1e-3;

using Options = CounterCausalOptions;

TinyModelOptions ModelOf(Arch arch) {
  TinyModelOptions options;
  options.arch = arch;
  options.n_layer = 3;
  options.qkv_bias = arch == Arch::kQwen2;
  options.tied = arch == Arch::kQwen2;
  return options;
}

void ExpectAllScores(const ScoredRun& run) {
  const OracleCache cache = run.Cache();
  for (const Options& options : AllScoreOptions(run.fast())) {
    const std::vector<double> expected =
        CounterCausalOracle(run.model(), cache, {run.fast(), options, false});
    EXPECT_LT(ScoreDifference(run.Scores(options), expected), kTolerance) << Describe(options);
  }
}

struct Case {
  Arch arch;
  bool fast;
  AttentionPath attention;
};

class CounterCausalTest : public ::testing::TestWithParam<Case> {
 protected:
  EngineOptions Options(int32_t budget, int32_t chunk) const {
    EngineOptions options =
        ExactEngine(GetParam().fast ? "counter-causal-fast" : "counter-causal", budget, chunk);
    options.attention = GetParam().attention;
    return options;
  }
};

INSTANTIATE_TEST_SUITE_P(Architectures, CounterCausalTest,
                         ::testing::Values(Case{Arch::kLlama, false, AttentionPath::kFused},
                                           Case{Arch::kLlama, true, AttentionPath::kFused},
                                           Case{Arch::kQwen2, false, AttentionPath::kFused},
                                           Case{Arch::kQwen3, true, AttentionPath::kFused},
                                           Case{Arch::kLlama, false, AttentionPath::kStock},
                                           Case{Arch::kLlama, true, AttentionPath::kStock},
                                           Case{Arch::kLlama, false, AttentionPath::kFlash},
                                           Case{Arch::kLlama, true, AttentionPath::kFlash},
                                           Case{Arch::kQwen2, false, AttentionPath::kStock},
                                           Case{Arch::kQwen2, true, AttentionPath::kStock},
                                           Case{Arch::kQwen3, false, AttentionPath::kStock},
                                           Case{Arch::kQwen3, true, AttentionPath::kStock}),
                         [](const ::testing::TestParamInfo<Case>& info) {
                           return StrCat(ArchName(info.param.arch),
                                         info.param.fast ? "_fast_" : "_full_",
                                         AttentionPathName(info.param.attention));
                         });

TEST_P(CounterCausalTest, MatchesTheOracleOnAnUncutCache) {
  ScoredRun run(MakeTinyModel(ModelOf(GetParam().arch)), Options(64, 16));
  run.Feed(TestTokens(21));
  ExpectAllScores(run);
  run.Decode(TestTokens(4, 2));
  ExpectAllScores(run);
}

// After cuts the positions have gaps, the slots are in no order, and keys of upper layers come
// from tokens that have left.
TEST_P(CounterCausalTest, MatchesTheOracleAfterCuts) {
  ScoredRun run(MakeTinyModel(ModelOf(GetParam().arch)), Options(11, 5));
  run.Feed(TestTokens(27));
  run.Decode(TestTokens(11, 2));
  ASSERT_GE(run.log().entries().size(), 4u);
  const auto positions = run.session().positions();
  EXPECT_FALSE(std::ranges::is_sorted(positions));
  ExpectAllScores(run);
}

// The keep sets of a whole run follow from the oracle's scores, where those are apart.
TEST_P(CounterCausalTest, MatchesTheOracleAfterRebases) {
  EngineOptions options = Options(16, 5);
  options.position_limit = 27;
  ScoredRun run(MakeTinyModel(ModelOf(GetParam().arch)), options);
  run.Feed(TestTokens(48));
  ExpectAllScores(run);
  run.Decode(TestTokens(14, 2));
  EXPECT_GE(run.session().stats().rebases, 4);
  ExpectAllScores(run);
}

TEST_P(CounterCausalTest, KeepsWhatTheOracleKeeps) {
  constexpr int32_t kBudget = 10, kChunk = 4;
  const TinyModel model = MakeTinyModel(ModelOf(GetParam().arch));
  const std::vector<Token> tokens = TestTokens(40, 3);
  ScoredRun cutting(model, Options(kBudget, kChunk));
  for (size_t at = 0; at < tokens.size(); at += kChunk) {
    cutting.Feed({tokens.begin() + at, tokens.begin() + at + kChunk});
  }
  const auto& cuts = cutting.log().entries();
  ASSERT_EQ(cuts.size(), 8u);
  OracleCache cache;
  cache.ids = tokens;
  cache.pass = ReferenceForward(model, tokens, {}, [&](int, int, int query, int key) {
    return cutting.log().Saw(0, query, key);
  });
  for (size_t c = 0; c < cuts.size(); ++c) {
    cache.slots = c == 0 ? std::vector<int32_t>{} : cuts[c - 1].kept[0];
    const int32_t seen = static_cast<int32_t>(cuts[c].tokens_seen);
    const int32_t first = c == 0 ? 0 : static_cast<int32_t>(cuts[c - 1].tokens_seen);
    for (int32_t p = first; p < seen; ++p) cache.slots.push_back(p);
    cache.rope = cache.slots;
    cache.tokens.clear();
    for (int32_t p : cache.slots) cache.tokens.push_back(tokens[p]);
    const std::vector<double> expected =
        CounterCausalOracle(model, cache, {GetParam().fast, {}, false});
    double highest_kept = -1e30, lowest_evicted = 1e30;
    for (size_t slot = 0; slot < expected.size(); ++slot) {
      if (cache.slots[slot] == seen - 1) continue;  // kept in any case
      if (std::ranges::binary_search(cuts[c].kept[0], cache.slots[slot])) {
        highest_kept = std::max(highest_kept, expected[slot]);
      } else {
        lowest_evicted = std::min(lowest_evicted, expected[slot]);
      }
    }
    EXPECT_LT(highest_kept, lowest_evicted + kTolerance) << "cut " << c;
    EXPECT_EQ(cuts[c].kept[0].back(), seen - 1);
  }
}

class TilesTest : public ::testing::TestWithParam<bool> {};

INSTANTIATE_TEST_SUITE_P(Scores, TilesTest, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "fast" : "full"; });

TEST_P(TilesTest, SeveralTilesAndBlocksOfTheVocabulary) {
  TinyModelOptions model;
  model.n_embd = 16;
  model.n_head = 2;
  model.n_kv_head = 1;
  model.n_ctx = 512;
  for (int i = 0; i < 9000; ++i) model.extra_pieces.push_back({StrCat("piece", i), -50.0f, 1});
  const char* policy = GetParam() ? "counter-causal-fast" : "counter-causal";
  ScoredRun run(MakeTinyModel(model), ExactEngine(policy, 260, 20));
  std::vector<Token> tokens = TestTokens(259);
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (i % 3 != 0) tokens[i] += static_cast<Token>(i * 33);  // over the whole vocabulary
  }
  run.Feed(tokens);
  std::vector<Options> chosen(2);
  chosen[1].score = Options::Score::kLogProb;
  if (!run.fast()) {
    chosen.push_back(chosen[1]);
    chosen.back().reading = Options::Reading::kD;
  }
  const OracleCache cache = run.Cache();
  for (const Options& options : chosen) {
    const std::vector<double> expected =
        CounterCausalOracle(run.model(), cache, {run.fast(), options, false});
    EXPECT_LT(ScoreDifference(run.Scores(options), expected), kTolerance) << Describe(options);
  }
}

TEST(CounterCausalRefusalTest, OptionsThatTheScoreDoesNotTake) {
  const TinyModel model = MakeTinyModel();
  ScoredRun full(model, ExactEngine("counter-causal", 8, 4));
  full.Feed(TestTokens(6));
  std::vector<float> scores(6);
  Options options;
  options.ffn = true;
  ExpectRefused(full.session().ScoreNow(options, scores), {"ffn"});
  options = {};
  options.min_gap = -1;
  ExpectRefused(full.session().ScoreNow(options, scores), {"min_gap", "-1"});
  ExpectRefused(full.session().ScoreNow({}, std::span(scores).first(5)), {"6", "5"});
  ScoredRun fast(model, ExactEngine("counter-causal-fast", 8, 4));
  fast.Feed(TestTokens(6));
  options = {};
  options.reading = Options::Reading::kB;
  ExpectRefused(fast.session().ScoreNow(options, scores), {"reading"});
  ScoredRun window(model, ExactEngine("window", 8, 4));
  window.Feed(TestTokens(6));
  ExpectRefused(window.session().ScoreNow({}, scores), {"window"});
}

TEST(CounterCausalRefusalTest, NeutralBosNeedsABosToken) {
  TinyModel model = MakeTinyModel();
  GgufSpec spec = model.Spec();
  spec.Drop("tokenizer.ggml.bos_token_id");
  auto loaded = Model::Load(WriteTemp(BuildGguf(spec)), {});
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  const auto engine = MakeEngine(*loaded, ExactEngine("counter-causal", 8, 4));
  const auto session = MakeSession(*engine);
  ASSERT_TRUE(session->Feed(TestTokens(6)).ok());
  std::vector<float> scores(6);
  Options options;
  options.reading = Options::Reading::kD;
  EXPECT_TRUE(session->ScoreNow(options, scores).ok());
  options.neutral = Options::Neutral::kBos;
  ExpectRefused(session->ScoreNow(options, scores), {"bos"});
}

}  // namespace
}  // namespace kvbound::testing
