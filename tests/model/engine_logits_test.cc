// The engine's logits against a forward pass in plain loops, and against the llama library.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "base/strings.h"
#include "llama.h"
#include "testing/llama_peer.h"
#include "testing/tiny_engine.h"
#include "testing/tiny_reference.h"

namespace kvbound::testing {
namespace {

constexpr int32_t kPrompt = 23;
constexpr int32_t kDecoded = 6;

// Logits after the prompt, fed in chunks, and after each decoded token.
std::vector<std::vector<float>> EngineLogits(const std::string& path, const ModelOptions& weights,
                                             const EngineOptions& options) {
  auto model = Model::Load(path, weights);
  EXPECT_TRUE(model.ok()) << model.status();
  if (!model.ok()) return {};
  const auto engine = MakeEngine(*model, options);
  const auto session = MakeSession(*engine);
  const std::vector<Token> tokens = TestTokens(kPrompt + kDecoded);
  EXPECT_TRUE(session->Feed(std::span(tokens).first(kPrompt)).ok());
  std::vector<std::vector<float>> rows = {CopyLogits(*session)};
  for (int32_t i = kPrompt; i < kPrompt + kDecoded; ++i) {
    EXPECT_TRUE(StepOne(*engine, *session, tokens[i]).ok());
    rows.push_back(CopyLogits(*session));
  }
  return rows;
}

std::vector<std::vector<double>> TrueLogits(const TinyModel& model) {
  const std::vector<std::vector<double>> all =
      ReferenceForward(model, TestTokens(kPrompt + kDecoded)).logits;
  return {all.begin() + kPrompt - 1, all.end()};
}

template <typename Rows>
double Largest(const std::vector<std::vector<float>>& a, const Rows& b) {
  double largest = a.size() == b.size() ? 0.0 : 1e30;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    largest = std::max(largest, LargestDifference(a[i], b[i]));
  }
  return largest;
}

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
      {"one_layer", [](TinyModelOptions* o) { o->n_layer = 1; }},
      {"qwen2",
       [](TinyModelOptions* o) {
         o->arch = Arch::kQwen2;
         o->qkv_bias = true;
       }},
      {"qwen2_tied",
       [](TinyModelOptions* o) {
         o->arch = Arch::kQwen2;
         o->qkv_bias = o->tied = true;
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

class EngineLogitsTest : public ::testing::TestWithParam<Variant> {
 protected:
  TinyModel Tiny() const {
    TinyModelOptions options;
    GetParam().change(&options);
    return MakeTinyModel(options);
  }
};

INSTANTIATE_TEST_SUITE_P(Models, EngineLogitsTest, ::testing::ValuesIn(Variants()),
                         [](const auto& info) { return info.param.name; });

TEST_P(EngineLogitsTest, MatchesPlainLoops) {
  const TinyModel tiny = Tiny();
  const std::string path = tiny.Write();
  const auto expected = TrueLogits(tiny);
  for (const AttentionPath path_of_attention :
       {AttentionPath::kFused, AttentionPath::kStock, AttentionPath::kFlash}) {
    for (const int32_t n_threads : {1, 2}) {
      for (const bool mmap : {true, false}) {
        EngineOptions options = ExactEngine("none", 40, 9);
        options.attention = path_of_attention;
        options.n_threads = n_threads;
        ModelOptions weights;
        weights.mmap = mmap;
        EXPECT_LT(Largest(EngineLogits(path, weights, options), expected), 1e-3)
            << AttentionPathName(path_of_attention) << ", " << n_threads << " threads, mmap "
            << mmap;
      }
    }
  }
}

std::vector<std::vector<float>> PeerLogits(
    const std::string& path, const std::function<void(llama_context_params&)>& adjust = nullptr) {
  LlamaPeer peer(path, 64, KvType::kF32, 1, adjust);
  const std::vector<Token> tokens = TestTokens(kPrompt + kDecoded);
  std::vector<std::vector<float>> rows = {peer.Feed(std::span(tokens).first(kPrompt))};
  for (int32_t i = kPrompt; i < kPrompt + kDecoded; ++i) {
    rows.push_back(peer.Feed(std::span(tokens).subspan(i, 1)));
  }
  return rows;
}

TEST_P(EngineLogitsTest, MatchesLlama) {
  if (GetParam().name == "partial_rotary") GTEST_SKIP() << "llama has it for other architectures";
  const std::string path = Tiny().Write();
  EXPECT_LT(Largest(EngineLogits(path, {}, ExactEngine("none", 40, 9)), PeerLogits(path)), 1e-3);
}

// Stretched contexts by YaRN, which the plain loops do not have. The llama library reads some of
// the keys for other architectures only; there it gets their values as parameters.
struct YarnCase {
  std::string name;
  std::vector<GgufKey> keys;
  std::function<void(llama_context_params&)> adjust;
};

std::vector<YarnCase> YarnCases() {
  const auto key = [](const char* name, float value) {
    return F32Key(StrCat("llama.rope.scaling.", name), value);
  };
  return {{"factor", {key("factor", 4.0f)}, nullptr},
          {"original_context",
           {key("factor", 2.5f), U32Key("llama.rope.scaling.original_context_length", 16)},
           nullptr},
          {"attn_factor", {key("factor", 8.0f), key("attn_factor", 0.7f)}, nullptr},
          {"betas",
           {key("factor", 4.0f), key("yarn_beta_fast", 8.0f), key("yarn_beta_slow", 0.5f)},
           [](llama_context_params& params) {
             params.yarn_beta_fast = 8.0f;
             params.yarn_beta_slow = 0.5f;
           }},
          {"interpolation_alone",
           {key("factor", 4.0f), key("yarn_ext_factor", 0.0f), key("yarn_attn_factor", 1.3f)},
           [](llama_context_params& params) {
             params.yarn_ext_factor = 0.0f;
             params.yarn_attn_factor = 1.3f;
           }}};
}

class YarnTest : public ::testing::TestWithParam<YarnCase> {};

INSTANTIATE_TEST_SUITE_P(Keys, YarnTest, ::testing::ValuesIn(YarnCases()),
                         [](const auto& info) { return info.param.name; });

TEST_P(YarnTest, MatchesLlama) {
  TinyModelOptions options;
  options.head_dim = 16;
  GgufSpec spec = MakeTinyModel(options).Spec();
  const std::string plain = WriteTemp(BuildGguf(spec));
  spec.Set(StringKey("llama.rope.scaling.type", "yarn"));
  for (const GgufKey& key : GetParam().keys) spec.Set(key);
  const std::string path = WriteTemp(BuildGguf(spec));
  const auto logits = EngineLogits(path, {}, ExactEngine("none", 40, 9));
  EXPECT_LT(Largest(logits, PeerLogits(path, GetParam().adjust)), 1e-3);
  EXPECT_GT(Largest(logits, PeerLogits(plain)), 1e-2) << "the keys had no effect";
}

// Weights of every kind of type: exact when held as f32, near otherwise (the products quantise
// activations too).
class WeightTypeTest : public ::testing::TestWithParam<ggml_type> {};

INSTANTIATE_TEST_SUITE_P(Types, WeightTypeTest,
                         ::testing::Values(GGML_TYPE_F16, GGML_TYPE_BF16, GGML_TYPE_Q8_0,
                                           GGML_TYPE_Q4_0, GGML_TYPE_Q4_1, GGML_TYPE_Q5_0,
                                           GGML_TYPE_Q5_1, GGML_TYPE_Q4_K, GGML_TYPE_Q5_K,
                                           GGML_TYPE_Q6_K, GGML_TYPE_IQ4_NL),
                         [](const auto& info) { return std::string(ggml_type_name(info.param)); });

TEST_P(WeightTypeTest, MatchesTheMeaningOfTheBytes) {
  TinyModelOptions tiny_options;
  const int64_t block = ggml_blck_size(GetParam());
  if (block > 32) {
    tiny_options.n_embd = tiny_options.n_ff = 256;
    tiny_options.n_head = 8;
    tiny_options.n_kv_head = 2;
    tiny_options.head_dim = 32;
  } else {
    tiny_options.n_ff = 64;
  }
  tiny_options.matrix_type = GetParam();
  const TinyModel tiny = MakeTinyModel(tiny_options);
  const std::string path = tiny.Write();
  const auto expected = TrueLogits(tiny);
  double range = 0.0;
  for (const double z : expected[0]) range = std::max(range, std::fabs(z));
  ModelOptions exact;
  exact.dequantize_f32 = true;
  EXPECT_LT(Largest(EngineLogits(path, exact, ExactEngine("none", 40, 9)), expected), 2e-4 * range);
  const auto peer = PeerLogits(path);
  for (const bool repack : {true, false}) {
    ModelOptions weights;
    weights.repack = repack;
    const auto logits = EngineLogits(path, weights, ExactEngine("none", 40, 9));
    EXPECT_LT(Largest(logits, expected), 0.3 * range) << "repack " << repack;
    EXPECT_LT(Largest(logits, peer), 0.02 * range) << "repack " << repack;
  }
}

}  // namespace
}  // namespace kvbound::testing
