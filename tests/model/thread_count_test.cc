// Results do not depend on the number of threads, so it may change from pass to pass.

#include <gtest/gtest.h>

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "testing/tiny_engine.h"

namespace kvbound::testing {
namespace {

constexpr int32_t kPrompt = 120;
constexpr int32_t kDecoded = 20;

struct Rows {
  std::vector<float> after_prompt;
  std::vector<float> last;
};

Rows LogitsOf(const std::shared_ptr<const Model>& model, AttentionPath attention, KvType type,
              int32_t n_threads) {
  EngineOptions options = ExactEngine("counter-causal", 64, 32);
  options.attention = attention;
  options.type_k = options.type_v = type;
  options.n_threads = n_threads;
  const auto engine = MakeEngine(model, options);
  const auto session = MakeSession(*engine);
  const std::vector<Token> tokens = TestTokens(kPrompt + kDecoded);
  EXPECT_TRUE(session->Feed(std::span(tokens).first(kPrompt)).ok());
  Rows rows = {CopyLogits(*session), {}};
  for (int32_t i = kPrompt; i < kPrompt + kDecoded; ++i) {
    EXPECT_TRUE(StepOne(*engine, *session, tokens[i]).ok());
  }
  rows.last = CopyLogits(*session);
  return rows;
}

class ThreadCount : public ::testing::TestWithParam<ggml_type> {};

TEST_P(ThreadCount, GivesTheSameBits) {
  TinyModelOptions tiny;
  tiny.matrix_type = GetParam();
  tiny.n_embd = 64;
  tiny.n_ff = 96;
  tiny.head_dim = 16;
  const auto model = LoadTiny(MakeTinyModel(tiny));
  for (const AttentionPath attention :
       {AttentionPath::kFused, AttentionPath::kStock, AttentionPath::kFlash}) {
    for (const KvType type : {KvType::kF32, KvType::kF16}) {
      const Rows one = LogitsOf(model, attention, type, 1);
      for (const int32_t n_threads : {2, 3}) {
        const Rows many = LogitsOf(model, attention, type, n_threads);
        EXPECT_TRUE(SameBits(one.after_prompt, many.after_prompt)) << n_threads << " threads";
        EXPECT_TRUE(SameBits(one.last, many.last)) << n_threads << " threads";
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, ThreadCount,
                         ::testing::Values(GGML_TYPE_F32, GGML_TYPE_F16, GGML_TYPE_Q4_1,
                                           GGML_TYPE_Q8_0),
                         [](const auto& info) { return std::string(ggml_type_name(info.param)); });

}  // namespace
}  // namespace kvbound::testing
