// A key that is turned on stands where ggml's RoPE puts it.

#include "model/rope.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "ggml-cpu.h"
#include "kv/key_rotation.h"
#include "testing/tiny_model.h"

namespace kvbound::testing {
namespace {

std::unique_ptr<LoadedModel> Load(const GgufBytes& bytes) {
  Result<std::unique_ptr<LoadedModel>> model =
      LoadedModel::Make(WriteTemp(bytes, "rope.gguf"), {}, Weights::Mode::kLoad);
  EXPECT_TRUE(model.ok()) << model.status();
  return *std::move(model);
}

// ggml's RoPE of one row, as graphs call it.
std::vector<float> GgmlRope(const LoadedModel& model, const std::vector<float>& row, int32_t p) {
  const RopeParams& r = model.hparams().rope;
  std::vector<uint8_t> memory(1 << 20);
  ggml_context* ctx = ggml_init({memory.size(), memory.data(), false});
  ggml_tensor* x = ggml_new_tensor_3d(ctx, GGML_TYPE_F32, row.size(), 1, 1);
  std::copy(row.begin(), row.end(), static_cast<float*>(x->data));
  ggml_tensor* positions = ggml_new_tensor_1d(ctx, GGML_TYPE_I32, 1);
  *static_cast<int32_t*>(positions->data) = p;
  ggml_tensor* y =
      ggml_rope_ext(ctx, x, positions, model.weights().rope_freqs, r.n_rot,
                    r.neox ? GGML_ROPE_TYPE_NEOX : GGML_ROPE_TYPE_NORMAL, r.orig_ctx, r.freq_base,
                    r.freq_scale(), r.ext_factor, r.attn_factor, r.beta_fast, r.beta_slow);
  ggml_cgraph* graph = ggml_new_graph(ctx);
  ggml_build_forward_expand(graph, y);
  EXPECT_EQ(ggml_graph_compute_with_ctx(ctx, graph, 1), GGML_STATUS_SUCCESS);
  const float* out = static_cast<const float*>(y->data);
  std::vector<float> result(out, out + row.size());
  ggml_free(ctx);
  return result;
}

void ExpectTurnsLikeGgml(const LoadedModel& model) {
  const int32_t d = model.hparams().head_dim;
  std::mt19937 rng(3);
  std::normal_distribution<float> normal;
  std::vector<float> row(d);
  for (float& x : row) x = normal(rng);
  KeyTurner turner(RotationOf(model), GGML_TYPE_F32, d);
  EXPECT_EQ(turner.allocated_bytes(), KeyTurner::Bytes(d));
  for (const auto& [from, to] : {std::pair{0, 0}, {0, 1}, {7, 3}, {4095, 511}, {8191, 0}}) {
    std::vector<float> turned = GgmlRope(model, row, from);
    turner.SetDelta(to - from);
    turner.Turn(turned.data());
    const std::vector<float> wanted = GgmlRope(model, row, to);
    for (int32_t c = 0; c < d; ++c) {
      // ggml's own angle at 8,191 is off by a few thousandths: it is a product in float.
      EXPECT_NEAR(turned[c], wanted[c], 1e-5 + 2e-6 * from) << from << " to " << to << ", " << c;
    }
  }
}

TinyModelOptions Options(Arch arch) {
  TinyModelOptions options;
  options.arch = arch;
  options.n_ctx = 8192;
  options.head_dim = 16;
  return options;
}

TEST(Rope, TurnsBothPairings) {
  ExpectTurnsLikeGgml(*Load(MakeTinyModel(Options(Arch::kLlama)).Bytes()));
  ExpectTurnsLikeGgml(*Load(MakeTinyModel(Options(Arch::kQwen2)).Bytes()));
}

TEST(Rope, TurnsAPartOfAHead) {
  TinyModelOptions options = Options(Arch::kQwen3);
  options.n_rot = 10;
  ExpectTurnsLikeGgml(*Load(MakeTinyModel(options).Bytes()));
}

TEST(Rope, TakesTheFactorsOfTheFile) {
  TinyModelOptions options = Options(Arch::kLlama);
  options.rope_factors = {1, 1, 1.5, 2, 3, 5, 8, 8};
  options.freq_base = 500000.0f;
  ExpectTurnsLikeGgml(*Load(MakeTinyModel(options).Bytes()));
}

TEST(Rope, TakesLinearScaling) {
  TinyModelOptions options = Options(Arch::kLlama);
  options.rope_scale = 4.0f;
  ExpectTurnsLikeGgml(*Load(MakeTinyModel(options).Bytes()));
}

TEST(Rope, TakesYarn) {
  for (const Arch arch : {Arch::kLlama, Arch::kQwen2}) {
    GgufSpec spec = MakeTinyModel(Options(arch)).Spec();
    const std::string prefix = std::string(ArchName(arch)) + ".rope.scaling.";
    spec.Set(StringKey(prefix + "type", "yarn"))
        .Set(F32Key(prefix + "factor", 4.0f))
        .Set(U32Key(prefix + "original_context_length", 2048));
    ExpectTurnsLikeGgml(*Load(BuildGguf(spec)));
  }
}

}  // namespace
}  // namespace kvbound::testing
