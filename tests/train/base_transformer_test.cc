// The model in torch against the engine.

#include "train/base_transformer.h"

#include <gtest/gtest.h>

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "testing/tiny_engine.h"
#include "train/attention.h"
#include "train/engine_logits.h"

namespace kvbound::train {
namespace {

using testing::TinyModel;
using testing::TinyModelOptions;

struct Variant {
  std::string name;
  std::function<void(TinyModelOptions*)> change;
};

std::vector<Variant> Variants() {
  return {
      {"llama", [](TinyModelOptions*) {}},
      {"tied", [](TinyModelOptions* o) { o->tied = true; }},
      {"wide_heads", [](TinyModelOptions* o) { o->head_dim = 16; }},
      {"multi_query", [](TinyModelOptions* o) { o->n_kv_head = 1; }},
      {"no_groups", [](TinyModelOptions* o) { o->n_kv_head = 4; }},
      {"rope_factors",
       [](TinyModelOptions* o) {
         o->rope_factors = {1, 2, 4, 8};
       }},
      {"partial_rotary",
       [](TinyModelOptions* o) {
         o->head_dim = 16;
         o->n_rot = 8;
       }},
      {"linear_scaling", [](TinyModelOptions* o) { o->rope_scale = 4.0f; }},
      {"freq_base", [](TinyModelOptions* o) { o->freq_base = 500000.0f; }},
      {"q8_0", [](TinyModelOptions* o) { o->matrix_type = GGML_TYPE_Q8_0; }},
      {"qwen2",
       [](TinyModelOptions* o) {
         o->arch = Arch::kQwen2;
         o->qkv_bias = true;
       }},
      {"qwen3", [](TinyModelOptions* o) { o->arch = Arch::kQwen3; }},
      {"qwen3_wide_heads",
       [](TinyModelOptions* o) {
         o->arch = Arch::kQwen3;
         o->head_dim = 16;
         o->n_kv_head = 1;
       }},
  };
}

class BaseTransformerTest : public ::testing::TestWithParam<Variant> {};

INSTANTIATE_TEST_SUITE_P(Models, BaseTransformerTest, ::testing::ValuesIn(Variants()),
                         [](const auto& info) { return info.param.name; });

TEST_P(BaseTransformerTest, HasTheLogitsOfTheEngine) {
  TinyModelOptions options;
  if (GetParam().name == "q8_0") {
    options.n_ff = 64;
  }
  GetParam().change(&options);
  const std::string path = testing::MakeTinyModel(options).Write();
  EXPECT_LT(DistanceToEngine(path, testing::TestTokens(40)), 1e-4);
}

// YaRN, with the extrapolating mixture and with its own magnitude.
TEST(BaseTransformerYarnTest, HasTheLogitsOfTheEngine) {
  TinyModelOptions options;
  options.n_ctx = 32;
  options.freq_base = 100.0f;
  const TinyModel tiny = testing::MakeTinyModel(options);
  for (const float attn_factor : {1.0f, 1.3f}) {
    testing::GgufSpec spec = tiny.Spec();
    spec.Set(testing::StringKey("llama.rope.scaling.type", "yarn"))
        .Set(testing::F32Key("llama.rope.scaling.factor", 4.0f))
        .Set(testing::F32Key("llama.rope.scaling.yarn_beta_fast", 8.0f))
        .Set(testing::F32Key("llama.rope.scaling.attn_factor", attn_factor));
    const std::string path = testing::WriteTemp(testing::BuildGguf(spec));
    EXPECT_LT(DistanceToEngine(path, testing::TestTokens(40)), 1e-4);
  }
}

TEST(BaseTransformerTypeTest, RefusesHalfPrecision) {
  const std::string path = testing::MakeTinyModel().Write();
  const auto base = BaseTransformer::Load(path, torch::kBFloat16);
  ASSERT_FALSE(base.ok());
  EXPECT_EQ(base.status().code(), StatusCode::kUnsupported);
}

TEST(BaseTransformerTypeTest, NamesAFileThatIsNotThere) {
  const auto base = BaseTransformer::Load("/nowhere/model.gguf", torch::kFloat);
  ASSERT_FALSE(base.ok());
  EXPECT_NE(base.status().message().find("/nowhere/model.gguf"), std::string::npos);
}

}  // namespace
}  // namespace kvbound::train
