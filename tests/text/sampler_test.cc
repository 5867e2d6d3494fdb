#include "kvbound/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "testing/alloc_counter.h"
#include "testing/tiny_model.h"

namespace kvbound {
namespace {

constexpr Token kA = 260, kEos = 2;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::shared_ptr<const Tokenizer> Vocabulary() {
  static const auto tokenizer = [] {
    auto loaded = Tokenizer::Load(testing::MakeSpellingModel({}).Write());
    EXPECT_TRUE(loaded.ok()) << loaded.status();
    return *loaded;
  }();
  return tokenizer;
}

Sampler Make(const SamplerOptions& options) {
  Result<Sampler> sampler = Sampler::Create(options, Vocabulary());
  EXPECT_TRUE(sampler.ok()) << sampler.status();
  return *std::move(sampler);
}

std::vector<float> Logits(const std::map<Token, float>& values = {}, float rest = 0.0f) {
  std::vector<float> logits(static_cast<size_t>(Vocabulary()->VocabSize()), rest);
  for (const auto& [token, value] : values) logits[static_cast<size_t>(token)] = value;
  return logits;
}

std::vector<float> RandomLogits(uint32_t seed) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal(0.0f, 3.0f);
  std::vector<float> logits = Logits();
  for (float& logit : logits) logit = normal(rng);
  return logits;
}

Token Sample(Sampler& sampler, const std::vector<float>& logits) {
  const Result<Token> token = sampler.Sample(logits);
  EXPECT_TRUE(token.ok()) << token.status();
  return token.ok() ? *token : -1;
}

SamplerOptions Greedy() {
  SamplerOptions options;
  options.temperature = 0.0f;
  return options;
}

// Everything off but temperature 1.
SamplerOptions Plain(int64_t seed = 7) {
  SamplerOptions options;
  options.temperature = 1.0f;
  options.top_k = 0;
  options.top_p = 1.0f;
  options.min_p = 0.0f;
  options.seed = seed;
  return options;
}

std::vector<Token> Draw(Sampler& sampler, int n) {
  std::vector<Token> tokens;
  for (int i = 0; i < n; ++i) {
    tokens.push_back(Sample(sampler, RandomLogits(static_cast<uint32_t>(i))));
    EXPECT_TRUE(sampler.Accept(tokens.back()).ok());
  }
  return tokens;
}

TEST(Sampler, GreedyTakesTheHighestAndTheLowestIdOfEquals) {
  Sampler sampler = Make(Greedy());
  EXPECT_EQ(Sample(sampler, Logits({{kA + 3, 2.0f}, {kA + 1, 2.0f}, {kA, 1.0f}})), kA + 1);
  SamplerOptions adjusted = Greedy();
  adjusted.logit_bias = {{kA + 5, 1.0f}};
  Sampler slow = Make(adjusted);
  EXPECT_EQ(Sample(slow, Logits({{kA + 3, 2.0f}, {kA + 1, 2.0f}, {kA + 5, 1.0f}})), kA + 1);
  EXPECT_EQ(Sample(slow, Logits({{kA + 9, 2.0f}, {kA + 5, 1.5f}})), kA + 5);
}

TEST(Sampler, GreedyAllocatesNothing) {
  if (!testing::AllocationCounterWorks()) GTEST_SKIP() << "operator new is not counted here";
  Sampler sampler = Make(Greedy());
  const std::vector<float> logits = RandomLogits(1);
  const int64_t before = testing::AllocationCount();
  const Result<Token> token = sampler.Sample(logits);
  EXPECT_EQ(testing::AllocationCount(), before);
  EXPECT_TRUE(token.ok());
}

TEST(Sampler, SameSeedSameText) {
  SamplerOptions options;
  options.seed = 42;
  Sampler a = Make(options), b = Make(options);
  EXPECT_EQ(a.seed(), 42u);
  const std::vector<Token> tokens = Draw(a, 50);
  EXPECT_EQ(tokens, Draw(b, 50));
  options.seed = 43;
  Sampler c = Make(options);
  EXPECT_NE(tokens, Draw(c, 50));
  a.Reset();
  EXPECT_EQ(tokens, Draw(a, 50));
}

TEST(Sampler, RandomSeedIsReportedAndRepeats) {
  SamplerOptions options;
  Sampler a = Make(options);
  options.seed = a.seed();
  Sampler b = Make(options);
  EXPECT_EQ(Draw(a, 30), Draw(b, 30));
}

TEST(Sampler, CloneGoesOnAlike) {
  SamplerOptions options = Plain();
  options.repeat_penalty = 1.3f;
  options.dry_multiplier = 0.5f;
  options.grammar = "root ::= [a-z]*";
  Sampler a = Make(options);
  Draw(a, 10);
  Sampler b = a.Clone();
  EXPECT_EQ(Draw(a, 20), Draw(b, 20));
}

TEST(Sampler, FrequenciesFollowTheProbabilities) {
  Sampler sampler = Make(Plain());
  const std::vector<float> logits =
      Logits({{kA, std::log(6.0f)}, {kA + 1, std::log(3.0f)}, {kA + 2, 0.0f}}, -kInfinity);
  std::map<Token, int> counts;
  constexpr int kDraws = 5000;
  for (int i = 0; i < kDraws; ++i) ++counts[Sample(sampler, logits)];
  EXPECT_EQ(counts.size(), 3u);
  EXPECT_NEAR(counts[kA], kDraws * 0.6, 150);
  EXPECT_NEAR(counts[kA + 1], kDraws * 0.3, 150);
}

// Each truncating option keeps exactly the tokens its definition names.
TEST(Sampler, TruncationKeepsWhatItShould) {
  const std::vector<float> logits = Logits({{kA, std::log(0.5f)},
                                            {kA + 1, std::log(0.3f)},
                                            {kA + 2, std::log(0.15f)},
                                            {kA + 3, std::log(0.05f)}},
                                           -kInfinity);
  const auto kept = [&](const SamplerOptions& options) {
    Sampler sampler = Make(options);
    Token last = 0;
    for (int i = 0; i < 300; ++i) last = std::max(last, Sample(sampler, logits));
    return last - kA + 1;
  };
  SamplerOptions top_k = Plain(), top_p = Plain(), min_p = Plain(), sigma = Plain(), xtc = Plain();
  EXPECT_EQ(kept(Plain()), 4);
  top_k.top_k = 2;
  EXPECT_EQ(kept(top_k), 2);
  top_p.top_p = 0.7f;
  EXPECT_EQ(kept(top_p), 2);
  top_p.min_keep = 3;
  EXPECT_EQ(kept(top_p), 3);
  min_p.min_p = 0.25f;
  EXPECT_EQ(kept(min_p), 3);
  sigma.top_n_sigma = 0.5f;
  EXPECT_LT(kept(sigma), 4);
  xtc.xtc_probability = 1.0f;
  xtc.xtc_threshold = 0.2f;
  Sampler sampler = Make(xtc);
  for (int i = 0; i < 50; ++i) EXPECT_NE(Sample(sampler, logits), kA);
}

TEST(Sampler, TypicalSurvivesVanishingProbabilities) {
  SamplerOptions options = Plain();
  options.typical_p = 0.9f;
  Sampler sampler = Make(options);
  const std::vector<float> logits = Logits({{kA, 300.0f}, {kA + 1, 299.0f}}, -300.0f);
  for (int i = 0; i < 20; ++i) {
    const Token token = Sample(sampler, logits);
    EXPECT_TRUE(token == kA || token == kA + 1);
  }
}

TEST(Sampler, PenaltiesCountTheLastTokens) {
  SamplerOptions options = Greedy();
  options.presence_penalty = 1.0f;
  options.repeat_last_n = 2;
  Sampler sampler = Make(options);
  const std::vector<float> logits = Logits({{kA, 2.0f}, {kA + 1, 1.5f}});
  EXPECT_EQ(Sample(sampler, logits), kA);
  ASSERT_TRUE(sampler.Accept(kA, /*is_generated=*/false).ok());
  EXPECT_EQ(Sample(sampler, logits), kA + 1);
  ASSERT_TRUE(sampler.Accept(kA + 5).ok());
  ASSERT_TRUE(sampler.Accept(kA + 6).ok());
  EXPECT_EQ(Sample(sampler, logits), kA);

  options = Greedy();
  options.repeat_penalty = 2.0f;
  Sampler repeat = Make(options);
  ASSERT_TRUE(repeat.Accept(kA).ok());
  EXPECT_EQ(Sample(repeat, logits), kA + 1);
  options = Greedy();
  options.frequency_penalty = 0.3f;
  Sampler frequency = Make(options);
  ASSERT_TRUE(frequency.Accept(kA).ok());
  EXPECT_EQ(Sample(frequency, logits), kA);
  ASSERT_TRUE(frequency.Accept(kA).ok());
  EXPECT_EQ(Sample(frequency, logits), kA + 1);
}

TEST(Sampler, DryBreaksALoop) {
  SamplerOptions options = Greedy();
  options.dry_multiplier = 5.0f;
  Sampler sampler = Make(options);
  for (const int letter : {0, 1, 2, 3, 0, 1, 2}) ASSERT_TRUE(sampler.Accept(kA + letter).ok());
  EXPECT_EQ(Sample(sampler, Logits({{kA + 3, 2.0f}, {kA + 9, 1.0f}})), kA + 9);
  options.dry_sequence_breakers = {"c"};
  Sampler broken = Make(options);
  for (const int letter : {0, 1, 2, 3, 0, 1, 2}) ASSERT_TRUE(broken.Accept(kA + letter).ok());
  EXPECT_EQ(Sample(broken, Logits({{kA + 3, 2.0f}, {kA + 9, 1.0f}})), kA + 3);
}

TEST(Sampler, MirostatDraws) {
  for (const int version : {1, 2}) {
    SamplerOptions options;
    options.mirostat = version;
    options.mirostat_tau = 2.0f;
    options.seed = 3;
    Sampler a = Make(options), b = Make(options);
    EXPECT_EQ(Draw(a, 40), Draw(b, 40));
    const std::vector<float> one = Logits({{kA, 1.0f}}, -kInfinity);
    EXPECT_EQ(Sample(a, one), kA);
  }
}

TEST(Sampler, LogitBiasForbidsAndForces) {
  SamplerOptions options = Greedy();
  options.logit_bias = {{kA, -kInfinity}, {kA + 7, 100.0f}};
  Sampler sampler = Make(options);
  EXPECT_EQ(Sample(sampler, Logits({{kA, 50.0f}})), kA + 7);
  EXPECT_EQ(Sample(sampler, Logits({{kA, 500.0f}})), kA + 7);

  options.logit_bias.clear();
  for (Token t = 0; t < Vocabulary()->VocabSize(); ++t)
    options.logit_bias.push_back({t, -kInfinity});
  Sampler nothing = Make(options);
  const Result<Token> token = nothing.Sample(Logits());
  ASSERT_FALSE(token.ok());
  EXPECT_EQ(token.status().code(), StatusCode::kUnsupported);
}

std::string Generate(Sampler& sampler, size_t limit = 50) {
  std::string text;
  for (size_t i = 0; i < limit; ++i) {
    const Token token = Sample(sampler, RandomLogits(static_cast<uint32_t>(i)));
    EXPECT_TRUE(sampler.Accept(token).ok());
    if (Vocabulary()->IsEog(token)) return text + "$";
    text += Vocabulary()->Piece(token);
  }
  return text;
}

TEST(Sampler, GrammarIsFollowedToItsEnd) {
  for (const float temperature : {0.0f, 1.0f}) {
    SamplerOptions options = Plain();
    options.temperature = temperature;
    options.grammar = "root ::= word \" \" [0-9]{3}\nword ::= \"yes\" | \"no\" # either\n";
    Sampler sampler = Make(options);
    const std::string text = Generate(sampler);
    ASSERT_TRUE(text.ends_with("$")) << text;
    EXPECT_TRUE(text.starts_with("yes ") || text.starts_with("no ")) << text;
    sampler.Reset();
    EXPECT_TRUE(Generate(sampler).ends_with("$"));
  }
}

TEST(Sampler, GrammarOverBytesOfACharacter) {
  SamplerOptions options = Greedy();
  options.grammar = "root ::= \"\xF0\x9F\x98\xB8\" \"!\"";
  Sampler sampler = Make(options);
  EXPECT_EQ(Generate(sampler), "\xF0\x9F\x98\xB8!$");
}

TEST(Sampler, ForbiddenTokensAreRefusedNotFatal) {
  SamplerOptions options = Greedy();
  options.grammar = "root ::= \"ab\"";
  Sampler sampler = Make(options);
  EXPECT_TRUE(sampler.Accept(kA + 9, /*is_generated=*/false).ok());
  const Status early = sampler.Accept(kEos);
  EXPECT_EQ(early.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(sampler.Accept(kA + 9).code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(sampler.Accept(kA).ok());
  EXPECT_TRUE(sampler.Accept(kA + 1).ok());
  EXPECT_EQ(Sample(sampler, Logits({{kA, 5.0f}})), kEos);
  EXPECT_FALSE(sampler.Accept(-1).ok());
  EXPECT_FALSE(sampler.Accept(1 << 20).ok());
  EXPECT_FALSE(sampler.Sample(std::vector<float>(3)).ok());
}

void ExpectRefused(const SamplerOptions& options, const std::string& field) {
  const Result<Sampler> sampler = Sampler::Create(options, Vocabulary());
  ASSERT_FALSE(sampler.ok()) << field;
  EXPECT_EQ(sampler.status().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(sampler.status().message().find(field), std::string::npos) << sampler.status();
}

TEST(SamplerOptions, RefusedByName) {
  const float nan = std::nanf("");
  const auto with = [](auto set) {
    SamplerOptions options;
    set(options);
    return options;
  };
  using O = SamplerOptions;
  ExpectRefused(with([&](O& o) { o.temperature = nan; }), "temperature");
  ExpectRefused(with([&](O& o) { o.temperature = kInfinity; }), "temperature");
  ExpectRefused(with([&](O& o) { o.top_p = 1.5f; }), "top_p");
  ExpectRefused(with([&](O& o) { o.top_p = nan; }), "top_p");
  ExpectRefused(with([&](O& o) { o.min_p = -0.1f; }), "min_p");
  ExpectRefused(with([&](O& o) { o.typical_p = 2.0f; }), "typical_p");
  ExpectRefused(with([&](O& o) { o.top_n_sigma = nan; }), "top_n_sigma");
  ExpectRefused(with([&](O& o) { o.xtc_probability = 1.1f; }), "xtc_probability");
  ExpectRefused(with([&](O& o) { o.min_keep = -1; }), "min_keep");
  ExpectRefused(with([&](O& o) { o.repeat_last_n = 1 << 30; }), "repeat_last_n");
  ExpectRefused(with([&](O& o) { o.repeat_penalty = 0.0f; }), "repeat_penalty");
  ExpectRefused(with([&](O& o) { o.presence_penalty = nan; }), "presence_penalty");
  ExpectRefused(with([&](O& o) { o.dry_base = 0.5f; }), "dry_base");
  ExpectRefused(with([&](O& o) { o.dry_multiplier = -1.0f; }), "dry_multiplier");
  ExpectRefused(with([&](O& o) { o.dry_sequence_breakers = {""}; }), "dry_sequence_breakers");
  ExpectRefused(with([&](O& o) { o.dry_sequence_breakers = {"\xFF"}; }), "dry_sequence_breakers");
  ExpectRefused(with([&](O& o) { o.mirostat = 3; }), "mirostat");
  ExpectRefused(with([&](O& o) { o.mirostat = 1, o.temperature = 0.0f; }), "mirostat");
  ExpectRefused(with([&](O& o) { o.mirostat = 2, o.typical_p = 0.5f; }), "typical_p");
  ExpectRefused(with([&](O& o) { o.mirostat_tau = 0.0f; }), "mirostat_tau");
  ExpectRefused(with([&](O& o) { o.seed = -2; }), "seed");
  ExpectRefused(with([&](O& o) { o.seed = int64_t{1} << 32; }), "seed");
  ExpectRefused(with([&](O& o) { o.logit_bias = {{kA, nan}}; }), "logit_bias");
  ExpectRefused(with([&](O& o) { o.logit_bias = {{286, 1.0f}}; }), "logit_bias");
  ExpectRefused(with([&](O& o) { o.logit_bias = {{-1, 1.0f}}; }), "logit_bias");
  ExpectRefused(with([&](O& o) { o.grammar = "rule ::= \"a\""; }), "grammar");
  ExpectRefused(with([&](O& o) { o.grammar = "root ::= root \"a\" | \"b\""; }), "left recursion");
}

}  // namespace
}  // namespace kvbound
