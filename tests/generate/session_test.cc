#include "kvbound/session.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "testing/expect_refused.h"
#include "testing/tiny_engine.h"

namespace kvbound::testing {
namespace {

const std::shared_ptr<const Model>& TheModel() {
  static const auto model = LoadTiny(MakeTinyModel());
  return model;
}

TEST(SessionTest, RowsOfAFeedAreTheLogitsOfEachToken) {
  EngineOptions options = ExactEngine("window", 20, 8);
  options.max_logit_rows = 6;
  const auto engine = MakeEngine(TheModel(), options);
  const auto session = MakeSession(*engine);
  const std::vector<Token> tokens = TestTokens(12);
  ASSERT_TRUE(session->FeedWithLogits(std::span(tokens).first(5)).ok());
  ASSERT_EQ(session->AllLogits().size(), 5u * 286);
  std::vector<std::vector<float>> rows;
  for (int i = 0; i < 5; ++i) {
    const auto row = session->AllLogits().subspan(i * 286, 286);
    rows.emplace_back(row.begin(), row.end());
  }
  EXPECT_TRUE(SameBits(CopyLogits(*session), rows[4]));
  // Three are left in the chunk.
  ExpectRefused(session->FeedWithLogits(std::span(tokens).subspan(5, 4)), {"1..3", "4"});
  ExpectRefused(session->FeedWithLogits({}), {"0"});
  ASSERT_TRUE(session->FeedWithLogits(std::span(tokens).subspan(5, 3)).ok());
  ASSERT_TRUE(session->Reset().ok());
  for (int i = 0; i < 5; ++i) {
    ASSERT_TRUE(StepOne(*engine, *session, tokens[i]).ok());
    EXPECT_LT(LargestDifference(CopyLogits(*session), rows[i]), 1e-4) << i;
  }
}

// Keeps the last tokens and checks the attention that slots have got.
class MassWatcher : public EvictionPolicy {
 public:
  explicit MassWatcher(std::vector<double>* sums) : sums_(sums) {}

  PolicyInfo Info() const override {
    PolicyInfo info;
    info.name = "mass-watcher";
    info.needs_attention_mass = true;
    return info;
  }
  Status Score(const CacheView& view, ScoreTable& scores) override {
    for (int32_t layer = 0; layer < view.n_layer(); ++layer) {
      for (int32_t head = 0; head < view.n_kv_head(); ++head) {
        const std::span<const float> mass = view.attention_mass(layer, head);
        sums_->push_back(std::accumulate(mass.begin(), mass.end(), 0.0));
      }
    }
    const std::span<const Position> positions = view.positions(0);
    for (int32_t slot = 0; slot < view.n_slot(); ++slot) {
      scores.Row(0)[slot] = static_cast<float>(positions[slot].value);
    }
    return Status::Ok();
  }

 private:
  std::vector<double>* sums_;
};

// Each query gives 1 to the slots of each layer and head, in chunks and in single steps alike, also
// where a pass computes no logits.
TEST(SessionTest, SlotsGetAllAttentionOfAllQueries) {
  std::vector<double> sums;
  EngineOptions options = ExactEngine("window", 20, 8);
  options.own_policy = [&] { return std::make_unique<MassWatcher>(&sums); };
  const auto engine = MakeEngine(TheModel(), options);
  const auto session = MakeSession(*engine);
  ASSERT_TRUE(session->Feed(TestTokens(19)).ok());
  for (Token token : TestTokens(5)) ASSERT_TRUE(StepOne(*engine, *session, token).ok());
  const ModelInfo& hp = TheModel()->info();
  ASSERT_EQ(sums.size(), size_t(hp.n_layer) * hp.n_kv_head) << "one cut, at 24";
  for (double sum : sums) EXPECT_NEAR(sum, 24.0 * hp.n_head / hp.n_kv_head, 1e-3);
}

TEST(SessionTest, AttentionMassIsRefusedWhereItIsNotComputed) {
  for (const AttentionPath path : {AttentionPath::kStock, AttentionPath::kFlash}) {
    EngineOptions options = ExactEngine("h2o", 20, 8);
    options.attention = path;
    const Status status = Engine::Create(TheModel(), options).status();
    EXPECT_EQ(status.code(), StatusCode::kUnsupported);
    ExpectRefused(status, {"h2o", "fused", std::string(AttentionPathName(path))});
  }
  const auto engine = MakeEngine(TheModel(), ExactEngine("window", 20, 8));
  SessionOptions h2o;
  h2o.policy.emplace().name = "h2o";
  h2o.policy->granularity = Granularity::kShared;
  ExpectRefused(engine->NewSession(h2o).status(), {"h2o", "attention mass", "window"});
}

// A budget that is no multiple of the chunk, in prompts, in rows and in decode.
TEST(SessionTest, APolicyThatCutsWhenFullNeverPassesBudgetPlusChunk) {
  EngineOptions options = ExactEngine("retention", 13, 8);
  options.policy.retention.emplace().cadence = RetentionOptions::Cadence::kFull;
  options.max_logit_rows = 8;
  const auto engine = MakeEngine(TheModel(), options);
  const auto session = MakeSession(*engine);
  CutLog log(*session);
  ASSERT_TRUE(session->Feed(TestTokens(50)).ok());
  EXPECT_EQ(session->stats().tokens_kept, 13 + (50 - 13) % 8);
  ExpectRefused(session->FeedWithLogits(TestTokens(4)), {"1..3", "4"});
  ASSERT_TRUE(session->FeedWithLogits(TestTokens(3)).ok());
  for (Token token : TestTokens(20)) ASSERT_TRUE(StepOne(*engine, *session, token).ok());
  ASSERT_FALSE(log.entries().empty());
  for (size_t i = 0; i < log.entries().size(); ++i) {
    EXPECT_EQ(log.entries()[i].n_before, 21);
    EXPECT_EQ(log.entries()[i].tokens_seen, 21 + 8 * static_cast<int64_t>(i));
  }
  EXPECT_EQ(session->stats().peak_slots, 21);
}

TEST(SessionTest, ProgressSeesEveryChunkAndMayStop) {
  const auto engine = MakeEngine(TheModel(), ExactEngine("window", 20, 8));
  const auto session = MakeSession(*engine);
  std::vector<int64_t> seen;
  ASSERT_TRUE(session
                  ->Feed(TestTokens(19),
                         [&](int64_t done, int64_t total) {
                           EXPECT_EQ(total, 19);
                           seen.push_back(done);
                           return true;
                         })
                  .ok());
  EXPECT_EQ(seen, (std::vector<int64_t>{8, 16, 19}));
  const Status stopped =
      session->Feed(TestTokens(19, 2), [](int64_t done, int64_t) { return done < 13; });
  EXPECT_EQ(stopped.code(), StatusCode::kCancelled);
  ExpectRefused(stopped, {"13", "19"});
  EXPECT_EQ(session->stats().tokens_seen, 32);
  EXPECT_EQ(session->stats().prompt_tokens, 32);
  EXPECT_TRUE(StepOne(*engine, *session, 4).ok());
  EXPECT_EQ(session->stats().decoded_tokens, 1);
}

TEST(SessionTest, ThePinnedPromptStays) {
  const auto engine = MakeEngine(TheModel(), ExactEngine("window", 10, 4));
  SessionOptions options = Protected(0, 0);
  options.protection.pin_prompt = true;
  const auto session = MakeSession(*engine, options);
  ExpectRefused(session->Feed(TestTokens(10)), {"10", "pinned"});
  EXPECT_EQ(session->stats().tokens_seen, 0);
  ASSERT_TRUE(session->Feed(TestTokens(6)).ok());
  ASSERT_TRUE(session->Feed(TestTokens(20, 2)).ok()) << "only the first prompt is pinned";
  EXPECT_EQ(SortedPositions(*session), (std::vector<int32_t>{0, 1, 2, 3, 4, 5, 22, 23, 24, 25}));
  ASSERT_TRUE(session->Reset().ok());
  ASSERT_TRUE(session->Feed(TestTokens(3)).ok());
  ASSERT_TRUE(session->Feed(TestTokens(20, 2)).ok());
  EXPECT_EQ(SortedPositions(*session), (std::vector<int32_t>{0, 1, 2, 16, 17, 18, 19, 20, 21, 22}));
}

TEST(SessionTest, WhatHasLeftCannotBePinned) {
  const auto engine = MakeEngine(TheModel(), ExactEngine("window", 10, 4));
  const auto session = MakeSession(*engine);
  ASSERT_TRUE(session->Feed(TestTokens(24)).ok());
  ExpectRefused(session->Pin({Position{13}, Position{15}}), {"13..14", "evicted"});
  ExpectRefused(session->Pin({Position{20}, Position{25}}), {"24"});
  ExpectRefused(session->Pin({Position{-1}, Position{2}}), {"-1"});
  ExpectRefused(session->Pin({Position{16}, Position{16}}), {"16"});
  ASSERT_TRUE(session->Pin({Position{14}, Position{15}}).ok());
  ASSERT_TRUE(session->Feed(TestTokens(40)).ok());
  EXPECT_EQ(SortedPositions(*session)[0], 14);
}

TEST(SessionTest, RowsAreGivenBack) {
  EngineOptions options = ExactEngine("window", 10, 4);
  options.n_seq = 2;
  const auto engine = MakeEngine(TheModel(), options);
  auto a = MakeSession(*engine);
  const auto b = MakeSession(*engine);
  ASSERT_TRUE(a->Feed(TestTokens(9)).ok());
  ASSERT_TRUE(b->Feed(TestTokens(9)).ok());
  const std::vector<float> logits = CopyLogits(*b);
  EXPECT_EQ(engine->NewSession({}).status().code(), StatusCode::kOutOfBudget);
  a.reset();
  a = MakeSession(*engine);
  EXPECT_TRUE(a->logits().empty());
  EXPECT_TRUE(a->positions().empty());
  ASSERT_TRUE(a->Feed(TestTokens(9)).ok());
  EXPECT_TRUE(SameBits(CopyLogits(*a), logits));
  EXPECT_TRUE(SameBits(CopyLogits(*b), logits));
}

// Fails at its second cut, once.
class Failing : public EvictionPolicy {
 public:
  explicit Failing(int* n_cut) : n_cut_(n_cut) {}
  PolicyInfo Info() const override {
    PolicyInfo info;
    info.name = "failing";
    return info;
  }
  Status Score(const CacheView& view, ScoreTable& scores) override {
    ++*n_cut_;
    for (float& score : scores.Row(0)) score = 0.0f;
    for (int32_t slot = 0; slot < view.n_slot(); ++slot) {
      scores.Row(0)[slot] = static_cast<float>(view.positions(0)[slot].value);
    }
    if (*n_cut_ == 2) scores.Row(0)[3] = std::numeric_limits<float>::quiet_NaN();
    return Status::Ok();
  }

 private:
  int* n_cut_;
};

// A policy that fails harms neither its own sequence nor those that share the batch.
TEST(SessionTest, AFailedCutIsTriedAgain) {
  EngineOptions options = ExactEngine("window", 6, 3);
  options.n_seq = 3;
  const auto engine = MakeEngine(TheModel(), options);
  int n_cut = 0;
  SessionOptions failing = Protected(0, 0);
  failing.own_policy = [&] { return std::make_unique<Failing>(&n_cut); };
  const auto a = MakeSession(*engine, failing);
  const auto b = MakeSession(*engine, Protected(0, 0));
  const std::vector<Token> prompt = TestTokens(9);
  const auto twin_engine = MakeEngine(TheModel(), options);
  const auto twin_a = MakeSession(*twin_engine, Protected(0, 0));
  const auto twin_b = MakeSession(*twin_engine, Protected(0, 0));
  for (Session* session : {a.get(), b.get(), twin_a.get(), twin_b.get()}) {
    ASSERT_TRUE(session->Feed(prompt).ok());
  }
  ASSERT_EQ(n_cut, 1);
  std::vector<Session*> batch = {a.get(), b.get()}, twins = {twin_a.get(), twin_b.get()};
  for (int step = 0; step < 9; ++step) {
    const std::vector<Token> tokens = TestTokens(2, step);
    const Status status = engine->Step(batch, tokens);
    ASSERT_TRUE(twin_engine->Step(twins, tokens).ok());
    if (step == 2) {  // 12 tokens seen
      ExpectRefused(status, {"slot 3"});
    } else {
      ASSERT_TRUE(status.ok()) << step << ": " << status;
    }
    EXPECT_EQ(b->stats().tokens_seen, 10 + step);
    EXPECT_EQ(a->stats().tokens_seen, 10 + step);
    EXPECT_TRUE(SameBits(CopyLogits(*a), CopyLogits(*twin_a))) << step;
    EXPECT_TRUE(SameBits(CopyLogits(*b), CopyLogits(*twin_b))) << step;
    EXPECT_EQ(SortedPositions(*b), SortedPositions(*twin_b));
  }
  EXPECT_EQ(SortedPositions(*a), SortedPositions(*twin_a));
  EXPECT_EQ(a->stats().cuts, twin_a->stats().cuts);
}

TEST(SessionTest, AFailedCutOfAPromptIsTriedAgain) {
  const auto engine = MakeEngine(TheModel(), ExactEngine("window", 6, 3));
  int n_cut = 0;
  SessionOptions options = Protected(0, 0);
  options.own_policy = [&] { return std::make_unique<Failing>(&n_cut); };
  const auto session = MakeSession(*engine, options);
  const std::vector<Token> tokens = TestTokens(18);
  ExpectRefused(session->Feed(tokens), {"slot 3"});
  EXPECT_EQ(session->stats().tokens_seen, 12);
  EXPECT_EQ(session->stats().tokens_kept, 9);
  ASSERT_TRUE(session->Feed(std::span(tokens).subspan(12)).ok());
  EXPECT_EQ(SortedPositions(*session), (std::vector<int32_t>{12, 13, 14, 15, 16, 17}));
  EXPECT_EQ(session->stats().peak_slots, 9);
}

TEST(SessionTest, FactoriesThatMakeNothingAreRefused) {
  EngineOptions options = ExactEngine("window", 6, 3);
  options.own_policy = [] { return std::unique_ptr<EvictionPolicy>(); };
  ExpectRefused(Engine::Create(TheModel(), options).status(), {"own_policy"});
  const auto engine = MakeEngine(TheModel(), ExactEngine("window", 6, 3));
  SessionOptions session;
  session.own_policy = options.own_policy;
  ExpectRefused(engine->NewSession(session).status(), {"own_policy"});
}

}  // namespace
}  // namespace kvbound::testing
