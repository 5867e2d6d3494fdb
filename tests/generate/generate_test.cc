#include "kvbound/generate.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "testing/tiny_model.h"

namespace kvbound {
namespace {

constexpr char kCat[] = "\xF0\x9F\x98\xB8";

class GenerateTest : public ::testing::Test {
 protected:
  void SetUp() override { Open(testing::MakeSpellingModel().Write()); }

  void Open(const std::string& path) {
    session_.reset();
    auto model = Model::Load(path, {});
    ASSERT_TRUE(model.ok()) << model.status();
    EngineOptions options;
    options.budget = 16;
    options.chunk = 4;
    options.n_threads = 1;
    options.policy.name = "window";
    auto engine = Engine::Create(*model, options);
    ASSERT_TRUE(engine.ok()) << engine.status();
    engine_ = *std::move(engine);
    auto session = engine_->NewSession({});
    ASSERT_TRUE(session.ok()) << session.status();
    session_ = *std::move(session);
    SamplerOptions greedy;
    greedy.temperature = 0;
    auto sampler = Sampler::Create(greedy, (*model)->shared_tokenizer());
    ASSERT_TRUE(sampler.ok()) << sampler.status();
    sampler_ = std::make_unique<Sampler>(*std::move(sampler));
  }

  void Feed(Token token) {
    const std::vector<Token> tokens = {token};
    ASSERT_TRUE(session_->Feed(tokens).ok());
  }

  Result<GenerateResult> Run(const GenerateOptions& options, size_t stop_after_chunks = 0) {
    chunks_.clear();
    return Generate(
        *engine_, *session_, *sampler_, options,
        [&](std::string_view chunk) {
          chunks_.emplace_back(chunk);
          return chunks_.size() != stop_after_chunks;
        },
        &last_token_);
  }

  std::string Text() const {
    std::string text;
    for (const std::string& chunk : chunks_) text += chunk;
    return text;
  }

  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Session> session_;
  std::unique_ptr<Sampler> sampler_;
  std::vector<std::string> chunks_;
  Token last_token_ = 0;
};

constexpr Token kA = 260;

TEST_F(GenerateTest, NeedsAPrompt) {
  EXPECT_EQ(Run({}).status().code(), StatusCode::kInvalidArgument);
  Feed(kA);
  GenerateOptions options;
  options.n_predict = -2;
  EXPECT_EQ(Run(options).status().code(), StatusCode::kInvalidArgument);
  options = {};
  options.stop = {""};
  EXPECT_EQ(Run(options).status().code(), StatusCode::kInvalidArgument);
}

TEST_F(GenerateTest, ACharacterOfFourTokensIsOneChunk) {
  Feed(kA);
  GenerateOptions options;
  options.n_predict = 30;
  const auto result = Run(options);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->n_tokens, 30);
  EXPECT_EQ(result->reason, FinishReason::kLength);
  ASSERT_EQ(chunks_.size(), 30u) << "one call a token";
  for (int i = 25; i < 28; ++i) EXPECT_EQ(chunks_[i], "");
  EXPECT_EQ(chunks_[28], kCat);
  EXPECT_EQ(chunks_[29], "\n");
}

TEST_F(GenerateTest, TheLastTokenIsNotFed) {
  Feed(kA);
  GenerateOptions options;
  options.n_predict = 3;
  ASSERT_TRUE(Run(options).ok());
  EXPECT_EQ(Text(), "bcd");
  EXPECT_EQ(last_token_, kA + 3);
  EXPECT_EQ(session_->stats().tokens_seen, 3);
  Feed(last_token_);
  ASSERT_TRUE(Run(options).ok());
  EXPECT_EQ(Text(), "efg");
}

TEST_F(GenerateTest, NothingToPredict) {
  Feed(kA);
  GenerateOptions options;
  options.n_predict = 0;
  const auto result = Run(options);
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->n_tokens, 0);
  EXPECT_EQ(last_token_, -1);
  EXPECT_TRUE(chunks_.empty());
}

TEST_F(GenerateTest, StopStringsAreNamedAndNotShown) {
  Feed(kA);
  GenerateOptions options;
  options.n_predict = 40;
  options.stop = {"klm", "jkl"};
  const auto result = Run(options);
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->reason, FinishReason::kStopString);
  EXPECT_EQ(result->stopping_string, "jkl");
  EXPECT_EQ(Text(), "bcdefghi");
}

TEST_F(GenerateTest, HeldTextComesOutAtTheEnd) {
  Feed(kA);
  GenerateOptions options;
  options.n_predict = 8;
  options.stop = {"hijk"};
  ASSERT_TRUE(Run(options).ok());
  EXPECT_EQ(Text(), "bcdefghi");
  EXPECT_EQ(chunks_.back(), "hi");
}

TEST_F(GenerateTest, TheCallerCanStop) {
  Feed(kA);
  const auto result = Run({}, 5);
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->reason, FinishReason::kCancelled);
  EXPECT_EQ(Text(), "bcdef");
  // Also where no text arrives: in the middle of a character.
  Feed(kA + 24);
  EXPECT_EQ(Run({}, 3)->reason, FinishReason::kCancelled);
  EXPECT_EQ(Text(), "z");
}

TEST_F(GenerateTest, EndTokens) {
  testing::SpellingOptions spelling;
  spelling.eos_after = kA + 12;
  Open(testing::MakeSpellingModel(spelling).Write());
  Feed(kA);
  const auto ended = Run({});
  ASSERT_TRUE(ended.ok());
  EXPECT_EQ(ended->reason, FinishReason::kStopToken);
  EXPECT_EQ(ended->n_tokens, 13) << "12 letters and the end";
  EXPECT_EQ(Text(), "bcdefghijklm");
  EXPECT_EQ(last_token_, 2);

  ASSERT_TRUE(session_->Reset().ok());
  sampler_->Reset();
  Feed(kA);
  GenerateOptions options;
  options.ignore_eos = true;
  options.n_predict = 20;
  const auto went_on = Run(options);
  ASSERT_TRUE(went_on.ok());
  EXPECT_EQ(went_on->n_tokens, 20);
  EXPECT_EQ(Text().substr(0, 12), "bcdefghijklm");
}

}  // namespace
}  // namespace kvbound
