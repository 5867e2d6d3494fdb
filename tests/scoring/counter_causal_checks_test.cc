// Nine properties that every implementation of counter-causal eviction must have, one test each.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "generate/engine_impl.h"
#include "testing/scored_run.h"

namespace kvbound::testing {
namespace {

using Options = CounterCausalOptions;

class CounterCausalChecks : public ::testing::TestWithParam<Arch> {
 protected:
  TinyModel Tiny(ggml_type matrix_type = GGML_TYPE_F32) const {
    TinyModelOptions options;
    options.arch = GetParam();
    options.n_layer = 3;
    options.qkv_bias = GetParam() == Arch::kQwen2;
    options.tied = GetParam() == Arch::kQwen2;
    options.n_ff = 64;
    options.matrix_type = matrix_type;
    return MakeTinyModel(options);
  }
};

INSTANTIATE_TEST_SUITE_P(Architectures, CounterCausalChecks,
                         ::testing::Values(Arch::kLlama, Arch::kQwen2, Arch::kQwen3),
                         [](const auto& info) { return std::string(ArchName(info.param)); });

constexpr const char* kPolicies[] = {"counter-causal", "counter-causal-fast"};

// The bytes of K, V and hidden rows.
std::vector<uint8_t> CacheBytes(Session& session) {
  const KvTensors& kv = session.impl().engine.store->tensors();
  std::vector<ggml_tensor*> tensors = kv.k;
  tensors.insert(tensors.end(), kv.v.begin(), kv.v.end());
  if (kv.hidden != nullptr) tensors.push_back(kv.hidden);
  std::vector<uint8_t> bytes;
  for (const ggml_tensor* t : tensors) {
    const auto* data = static_cast<const uint8_t*>(t->data);
    bytes.insert(bytes.end(), data, data + ggml_nbytes(t));
  }
  return bytes;
}

// The bytes of a slot's hidden row, a number each.
std::vector<float> Hidden(Session& session, int32_t slot) {
  const ggml_tensor* t = session.impl().engine.store->hidden();
  const auto* row = static_cast<const uint8_t*>(t->data) + slot * t->nb[1];
  return {row, row + t->nb[1]};
}

// Everything that a slot holds, by position: rows of K and V of every head, token, hidden row.
std::map<int32_t, std::vector<float>> Contents(Session& session, int32_t set, int32_t first_head,
                                               int32_t n_head) {
  const KvStore& store = *session.impl().engine.store;
  const int32_t n = static_cast<int32_t>(session.positions(set).size());
  const int32_t d = store.layout().head_dim;
  std::map<int32_t, std::vector<float>> contents;
  for (int32_t slot = 0; slot < n; ++slot) {
    std::vector<float>& row = contents[session.positions(set)[slot].value];
    row.push_back(static_cast<float>(session.tokens(set)[slot]));
    if (store.hidden() != nullptr) {
      const std::vector<float> hidden = Hidden(session, slot);
      row.insert(row.end(), hidden.begin(), hidden.end());
    }
  }
  std::vector<float> rows(static_cast<size_t>(n) * d);
  for (int32_t head = first_head; head < first_head + n_head; ++head) {
    const int32_t layer = head / store.layout().n_kv_head;
    const int32_t kv_head = head % store.layout().n_kv_head;
    for (const bool keys : {true, false}) {
      const Status read = keys ? store.ReadKeys(0, layer, kv_head, rows)
                               : store.ReadValues(0, layer, kv_head, rows);
      EXPECT_TRUE(read.ok()) << read;
      for (int32_t slot = 0; slot < n; ++slot) {
        std::vector<float>& row = contents[session.positions(set)[slot].value];
        row.insert(row.end(), rows.begin() + slot * d, rows.begin() + (slot + 1) * d);
      }
    }
  }
  return contents;
}

TEST_P(CounterCausalChecks, Check1NothingCutEqualsUncutAndScoringTouchesNothing) {
  for (const char* policy : kPolicies) {
    ScoredRun run(Tiny(), ExactEngine(policy, 40, 8));
    run.Feed(TestTokens(29));
    const std::vector<uint8_t> before = CacheBytes(run.session());
    for (const Options& options : AllScoreOptions(run.fast())) run.Scores(options);
    run.CausalScores({});
    EXPECT_EQ(CacheBytes(run.session()), before);
    run.Decode(TestTokens(11, 2));

    const auto uncut_engine = MakeEngine(LoadTiny(run.model()), ExactEngine("none", 200, 8));
    const auto uncut = MakeSession(*uncut_engine);
    ASSERT_TRUE(uncut->Feed(TestTokens(29)).ok());
    for (Token token : TestTokens(11, 2)) ASSERT_TRUE(StepOne(*uncut_engine, *uncut, token).ok());
    EXPECT_TRUE(SameBits(CopyLogits(run.session()), CopyLogits(*uncut))) << policy;
    EXPECT_EQ(run.session().stats().cuts, 0);
  }
}

// Scores under an ordinary mask: the logit of each slot's own token at its own position.
void ExpectCausalScoresAreLogits(const TinyModel& tiny, const char* policy, bool ffn,
                                 double tolerance, const ModelOptions& weights = {}) {
  EngineOptions options = ExactEngine(policy, 40, 24);
  options.max_logit_rows = 24;
  const auto engine = MakeEngine(LoadTiny(tiny, weights), options);
  const auto session = MakeSession(*engine);
  const std::vector<Token> tokens = TestTokens(24);
  ASSERT_TRUE(session->FeedWithLogits(tokens).ok());
  const std::vector<float> logits(session->AllLogits().begin(), session->AllLogits().end());
  const size_t n_vocab = tiny.n_vocab();
  Options score;
  score.ffn = ffn;
  for (const auto kind :
       {Options::Score::kLogit, Options::Score::kCentred, Options::Score::kLogProb}) {
    score.score = kind;
    std::vector<float> scores(tokens.size());
    ASSERT_TRUE(
        session->impl().scorer->Score(score, CounterCausalScorer::Direction::kCausal, scores).ok());
    for (size_t i = 0; i < tokens.size(); ++i) {
      const std::vector<double> row(logits.begin() + i * n_vocab,
                                    logits.begin() + (i + 1) * n_vocab);
      double expected = row[tokens[i]];
      if (kind == Options::Score::kLogProb) expected = -ReferenceNll(row, tokens[i]);
      if (kind == Options::Score::kCentred) {
        for (const double z : row) expected -= z / static_cast<double>(n_vocab);
      }
      EXPECT_NEAR(scores[i], expected, tolerance) << Describe(score) << ", slot " << i;
    }
  }
}

TEST_P(CounterCausalChecks, Check2FullPassWithACausalMaskGivesTheLogits) {
  ExpectCausalScoresAreLogits(Tiny(), "counter-causal", false, 1e-4);
}

TEST_P(CounterCausalChecks, Check3FastPassWithACausalMaskAndFfnGivesTheLogits) {
  ExpectCausalScoresAreLogits(Tiny(), "counter-causal-fast", true, 1e-4);
}

// The gathered row against the product with the whole head, which for f16 and block types is
// another operator. (There is no score of blocks of tokens; reading D, which one with blocks of
// one token would equal, is compared with the oracle in counter_causal_test.)
TEST_P(CounterCausalChecks, Check4TheGatheredLogitIsTheColumnOfTheHead) {
  for (const char* policy : kPolicies) {
    const bool ffn = std::string_view(policy) == "counter-causal-fast";
    for (const bool f32 : {false, true}) {
      ModelOptions weights;
      weights.dequantize_f32 = f32;
      const double exact = 1e-4;
      ExpectCausalScoresAreLogits(Tiny(GGML_TYPE_F16), policy, ffn, f32 ? exact : 2e-2, weights);
      ExpectCausalScoresAreLogits(Tiny(GGML_TYPE_Q8_0), policy, ffn, f32 ? exact : 0.2, weights);
    }
  }
}

TEST_P(CounterCausalChecks, Check5ChunkedPrefillWithoutEvictionEqualsOneShot) {
  const std::vector<Token> tokens = TestTokens(50);
  const auto model = LoadTiny(Tiny());
  std::vector<float> one_shot;
  for (const int32_t chunk : {64, 50, 17, 7, 1}) {
    const auto engine = MakeEngine(model, ExactEngine("counter-causal-fast", 64, chunk));
    const auto session = MakeSession(*engine);
    ASSERT_TRUE(session->Feed(tokens).ok());
    if (one_shot.empty()) one_shot = CopyLogits(*session);
    EXPECT_LT(LargestDifference(CopyLogits(*session), one_shot), 1e-4) << chunk;
  }
}

TEST_P(CounterCausalChecks, Check6ACutGathersEverythingAlike) {
  constexpr int32_t kBudget = 12, kChunk = 7;
  for (const char* policy : {"counter-causal", "counter-causal-fast", "random", "streaming"}) {
    for (const KvType type : {KvType::kF32, KvType::kF16}) {
      EngineOptions options = ExactEngine(policy, kBudget, kChunk);
      options.type_k = options.type_v = type;
      const auto engine = MakeEngine(LoadTiny(Tiny()), options);
      const auto session = MakeSession(*engine, Protected(2, 3));
      const int32_t n_set = session->n_set();
      const int32_t n_head = 3 * 2 / n_set;  // heads that share a set
      std::vector<std::map<int32_t, std::vector<float>>> before(n_set);
      std::vector<std::vector<int32_t>> kept(n_set);
      session->SetCutObserver([&](const CutEvent& event) {
        for (int32_t set = 0; set < n_set; ++set) {
          before[set] = Contents(*session, set, set * n_head, n_head);
          kept[set].clear();
          for (int32_t slot = 0; slot < event.n_before; ++slot) {
            const int32_t i = set * event.n_before + slot;
            if (event.kept[i]) kept[set].push_back(event.positions[i].value);
          }
          std::ranges::sort(kept[set]);
        }
      });
      for (int32_t seen = 0; seen < 6 * kChunk; seen += kChunk) {
        ASSERT_TRUE(session->Feed(TestTokens(kChunk, seen + 1)).ok());
        const int32_t now = seen + kChunk;
        if (now <= kBudget) continue;
        for (int32_t set = 0; set < n_set; ++set) {
          const auto after = Contents(*session, set, set * n_head, n_head);
          ASSERT_EQ(after.size(), size_t{kBudget});
          ASSERT_EQ(SortedPositions(*session, set), kept[set]);
          for (int32_t p : {0, 1, now - 3, now - 2, now - 1}) EXPECT_TRUE(after.contains(p)) << p;
          for (const auto& [position, row] : after) {
            EXPECT_TRUE(SameBits(row, before[set][position])) << policy << " " << position;
          }
        }
      }
    }
  }
}

TEST_P(CounterCausalChecks, Check7TheTokenOfASlotIsTheOneWhoseKeyIsThere) {
  const std::vector<Token> prompt = TestTokens(14), generated = TestTokens(16, 5);
  std::vector<Token> all = prompt;
  all.insert(all.end(), generated.begin(), generated.end());
  for (const char* policy : kPolicies) {
    for (const auto align : {Options::Align::kAligned, Options::Align::kPublished}) {
      EngineOptions options = ExactEngine(policy, 10, 4);
      options.policy.counter_causal.emplace().align = align;
      ScoredRun run(Tiny(), options);
      int32_t n_differing = 0;  // labels at cuts that are another slot's token, all of them
      run.session().SetCutObserver([&](const CutEvent& event) {
        for (int32_t slot = 0; slot < event.n_before; ++slot) {
          const int32_t p = event.positions[slot].value;
          const bool shifted = align == Options::Align::kPublished && p >= 14;
          EXPECT_EQ(event.tokens[slot], all[p + (shifted ? 1 : 0)]) << policy << " " << p;
          n_differing += shifted;
        }
      });
      run.Feed(prompt);
      run.Decode(generated);
      // Published, the successor of the last token is not known yet.
      for (size_t slot = 0; slot < run.session().positions().size(); ++slot) {
        const int32_t p = run.session().positions()[slot].value;
        const bool shifted = align == Options::Align::kPublished && p >= 14 && p + 1 < 30;
        EXPECT_EQ(run.session().tokens()[slot], all[p + (shifted ? 1 : 0)]) << policy << " " << p;
      }
      EXPECT_EQ(n_differing > 0, align == Options::Align::kPublished);
    }
  }
}

// Writes noise over K and V of the slots at or before `position`.
void Overwrite(Session& session, int32_t position) {
  const KvStore& store = *session.impl().engine.store;
  const KvLayout& layout = store.layout();
  float noise = 1.0f;
  for (size_t slot = 0; slot < session.positions().size(); ++slot) {
    if (session.positions()[slot].value > position) continue;
    for (int32_t layer = 0; layer < layout.n_layer; ++layer) {
      for (int32_t head = 0; head < layout.n_kv_head; ++head) {
        for (int32_t i = 0; i < layout.head_dim; ++i) {
          noise = std::fmod(noise * 1.7f + 0.3f, 5.0f) - 2.0f;
          const auto write = [&](ggml_tensor* t, int64_t at0, int64_t at1) {
            char* at =
                static_cast<char*>(t->data) + at0 * t->nb[0] + at1 * t->nb[1] + head * t->nb[2];
            std::memcpy(at, &noise, sizeof(noise));
          };
          const auto s = static_cast<int64_t>(slot);
          write(store.k(layer), i, s);
          layout.v_transposed ? write(store.v(layer), s, i) : write(store.v(layer), i, s);
        }
      }
    }
  }
}

TEST_P(CounterCausalChecks, Check8AScoreDoesNotReadKeysAndValuesAtOrBeforeItsSlot) {
  for (const char* policy : kPolicies) {
    for (const AttentionPath path :
         {AttentionPath::kFused, AttentionPath::kStock, AttentionPath::kFlash}) {
      EngineOptions engine = ExactEngine(policy, 12, 5);
      engine.attention = path;
      ScoredRun run(Tiny(), engine);
      run.Feed(TestTokens(23));
      const std::vector<int32_t> sorted = SortedPositions(run.session());
      const int32_t border = sorted[sorted.size() / 2];
      for (const Options& options : AllScoreOptions(run.fast())) {
        ScoredRun noisy(run.model(), engine);
        noisy.Feed(TestTokens(23));
        Overwrite(noisy.session(), border);
        const std::vector<float> clean = run.Scores(options), scores = noisy.Scores(options);
        int32_t n_changed = 0;
        for (size_t slot = 0; slot < scores.size(); ++slot) {
          if (std::isnan(clean[slot])) continue;
          const int32_t position = run.session().positions()[slot].value;
          if (position >= border) {
            EXPECT_EQ(scores[slot], clean[slot]) << Describe(options) << ", position " << position;
          } else {
            n_changed += scores[slot] != clean[slot];
          }
        }
        EXPECT_GT(n_changed, 0) << Describe(options);
      }
    }
  }
}

// Neither by Reset nor by a new session on the same row: keys, frequencies (pmi), labels and a
// cut that waits (published) all go.
TEST_P(CounterCausalChecks, Check9NoStateSurvives) {
  for (const char* policy : kPolicies) {
    EngineOptions options = ExactEngine(policy, 10, 4);
    options.policy.counter_causal.emplace().score = Options::Score::kPmi;
    options.policy.counter_causal->align = Options::Align::kPublished;
    const auto model = LoadTiny(Tiny());
    const auto run = [](Engine& engine, Session& session) {
      EXPECT_TRUE(session.Feed(TestTokens(15)).ok());
      std::vector<float> all;
      for (Token token : TestTokens(13, 2)) {
        EXPECT_TRUE(StepOne(engine, session, token).ok());
        const std::vector<float> row = CopyLogits(session);
        all.insert(all.end(), row.begin(), row.end());
      }
      return all;
    };
    const auto fresh_engine = MakeEngine(model, options);
    const auto fresh = MakeSession(*fresh_engine, Protected(0, 0));
    CutLog fresh_log(*fresh);
    const std::vector<float> expected = run(*fresh_engine, *fresh);

    const auto engine = MakeEngine(model, options);
    auto session = MakeSession(*engine, Protected(0, 0));
    ASSERT_TRUE(session->Feed(TestTokens(18, 7)).ok());
    ASSERT_TRUE(session->Pin({Position{17}, Position{18}}).ok());
    for (int i = 0; i < 2; ++i) ASSERT_TRUE(StepOne(*engine, *session, 100).ok());  // a cut waits
    ASSERT_TRUE(session->Reset().ok());
    EXPECT_EQ(session->stats().tokens_seen, 0);
    EXPECT_TRUE(session->logits().empty());
    CutLog reset_log(*session);
    EXPECT_TRUE(SameBits(run(*engine, *session), expected));
    EXPECT_EQ(reset_log.entries(), fresh_log.entries());

    session.reset();
    session = MakeSession(*engine, Protected(0, 0));
    CutLog again_log(*session);
    EXPECT_TRUE(SameBits(run(*engine, *session), expected));
    EXPECT_EQ(again_log.entries(), fresh_log.entries());
  }
}

}  // namespace
}  // namespace kvbound::testing
