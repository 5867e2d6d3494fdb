// Products of many columns with types that ggml multiplies row by row go through an f32 copy.

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kvbound/memory.h"
#include "testing/tiny_engine.h"

namespace kvbound::testing {
namespace {

constexpr int32_t kTokens = 96;

TinyModel QuantisedModel(ggml_type type) {
  TinyModelOptions options;
  options.matrix_type = type;
  options.n_embd = 64;
  options.n_ff = 96;
  options.n_head = 4;
  options.head_dim = 16;
  return MakeTinyModel(options);
}

// Logits of a run whose prompt was read in chunks of `chunk`, and the tokens after it one by one.
std::vector<float> LogitsAfter(const TinyModel& model, bool exact_weights, int32_t chunk) {
  ModelOptions options;
  options.dequantize_f32 = exact_weights;
  const auto engine = MakeEngine(LoadTiny(model, options), ExactEngine("window", 256, chunk));
  const auto session = MakeSession(*engine);
  const std::vector<Token> tokens = TestTokens(kTokens + 4);
  EXPECT_TRUE(session->Feed(std::span(tokens).first(kTokens)).ok());
  for (int32_t i = kTokens; i < kTokens + 4; ++i) {
    EXPECT_TRUE(StepOne(*engine, *session, tokens[i]).ok());
  }
  return CopyLogits(*session);
}

double Spread(const std::vector<float>& row) {
  const auto [low, high] = std::minmax_element(row.begin(), row.end());
  return *high - *low;
}

class WideProduct : public ::testing::TestWithParam<ggml_type> {};

TEST_P(WideProduct, GivesWhatTheFilesBytesMean) {
  const TinyModel model = QuantisedModel(GetParam());
  const std::vector<float> exact = LogitsAfter(model, true, kTokens);
  // Narrow products round x to 8 bits; in the wide run only those of the last four tokens do.
  const double spread = Spread(exact);
  EXPECT_LT(LargestDifference(exact, LogitsAfter(model, false, kTokens)), 0.03 * spread) << "wide";
  EXPECT_LT(LargestDifference(exact, LogitsAfter(model, false, 32)), 0.06 * spread) << "narrow";
}

TEST_P(WideProduct, CopiesArePlanned) {
  const std::string path = QuantisedModel(GetParam()).Write();
  // V turned row-major outgrows first one copy, then the other.
  for (const int32_t budget : {64, 256, 1024, 2048}) {
    const EngineOptions options = ExactEngine("window", budget, kTokens);
    const auto plan = PlanMemory(path, {}, options);
    ASSERT_TRUE(plan.ok()) << plan.status();
    const auto engine = MakeEngine(*Model::Load(path, {}), options);
    EXPECT_EQ(plan->total_bytes(), engine->Allocated().total_bytes());
    const auto session = MakeSession(*engine);
    for (int32_t fed = 0; fed < budget + kTokens; fed += kTokens) {
      const Status status = session->Feed(TestTokens(kTokens));
      ASSERT_TRUE(status.ok()) << "budget " << budget << " after " << fed << ": " << status;
    }
    EXPECT_EQ(plan->total_bytes(), engine->Allocated().total_bytes());
  }
}

INSTANTIATE_TEST_SUITE_P(Types, WideProduct, ::testing::Values(GGML_TYPE_Q4_1, GGML_TYPE_Q5_1),
                         [](const auto& type) { return std::string(ggml_type_name(type.param)); });

}  // namespace
}  // namespace kvbound::testing
