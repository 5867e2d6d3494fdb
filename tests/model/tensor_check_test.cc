#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "kvbound/log.h"
#include "model/model_file.h"
#include "testing/expect_refused.h"
#include "testing/gguf_writer.h"
#include "testing/tiny_model.h"

namespace kvbound {
namespace {

using testing::ExpectRefused;
using testing::F32Tensor;
using testing::GgufSpec;
using testing::GgufTensorSpec;
using testing::MakeTinyModel;
using testing::TinyModelOptions;

GgufSpec TinySpec() { return MakeTinyModel().Spec(); }

Status Check(const GgufSpec& spec) {
  const testing::GgufBytes bytes = BuildGguf(spec);
  KVBOUND_ASSIGN_OR_RETURN(GgufFile file, GgufFile::FromMemory(bytes, "t.gguf"));
  return CheckModel(std::move(file)).status();
}

TinyModelOptions Options(Arch arch) {
  TinyModelOptions options;
  options.arch = arch;
  options.qkv_bias = arch == Arch::kQwen2;
  return options;
}

void SetFloat(GgufTensorSpec* tensor, size_t i, float value) {
  std::memcpy(tensor->data.data() + i * sizeof(value), &value, sizeof(value));
}

TEST(TensorCheckTest, AcceptsEveryArchitectureAndManyTypes) {
  for (const Arch arch : {Arch::kLlama, Arch::kQwen2, Arch::kQwen3}) {
    for (const bool tied : {false, true}) {
      TinyModelOptions options = Options(arch);
      options.tied = tied;
      EXPECT_TRUE(Check(MakeTinyModel(options).Spec()).ok())
          << Check(MakeTinyModel(options).Spec());
    }
  }
  for (const ggml_type type : {GGML_TYPE_F16, GGML_TYPE_BF16, GGML_TYPE_Q8_0, GGML_TYPE_Q4_0,
                               GGML_TYPE_Q4_1, GGML_TYPE_Q5_1}) {
    TinyModelOptions options;
    options.n_ff = 64;
    options.matrix_type = type;
    EXPECT_TRUE(Check(MakeTinyModel(options).Spec()).ok()) << ggml_type_name(type);
  }
}

TEST(TensorCheckTest, NamesEveryMissingTensor) {
  for (const Arch arch : {Arch::kLlama, Arch::kQwen3}) {
    const GgufSpec spec = MakeTinyModel(Options(arch)).Spec();
    for (const GgufTensorSpec& tensor : spec.tensors) {
      if (tensor.name == "output.weight") continue;  // then the head is tied
      ExpectRefused(Check(GgufSpec(spec).DropTensor(tensor.name)), {tensor.name, "missing"});
    }
  }
}

TEST(TensorCheckTest, ComparesBlockCountAndTensors) {
  ExpectRefused(Check(TinySpec().Set(testing::U32Key("llama.block_count", 3))),
                {"blk.2.attn_norm.weight", "llama.block_count", "3"});
  ExpectRefused(Check(TinySpec().Set(testing::U32Key("llama.block_count", 1))),
                {"blk.1.", "llama.block_count", "1"});
}

TEST(TensorCheckTest, NamesEveryWrongShape) {
  const GgufSpec spec = MakeTinyModel(Options(Arch::kQwen3)).Spec();
  for (const GgufTensorSpec& tensor : spec.tensors) {
    GgufSpec changed = spec;
    GgufTensorSpec& other = changed.Tensor(tensor.name);
    if (tensor.name == "token_embd.weight") continue;  // tells n_vocab
    if (other.dims.size() == 2 && other.dims[0] != other.dims[1]) {
      std::swap(other.dims[0], other.dims[1]);
    } else {
      other.dims[0] *= 2;
      other.data.resize(other.data.size() * 2);
    }
    ExpectRefused(Check(changed), {tensor.name, "shape", "found ["});
  }
  GgufSpec narrow = TinySpec();
  narrow.Tensor("token_embd.weight").dims = {16, 286};
  ExpectRefused(Check(narrow), {"token_embd.weight", "[32, 286]", "llama.embedding_length"});
  GgufSpec three = TinySpec();
  three.Tensor("blk.0.attn_k.weight").dims = {32, 8, 2};
  ExpectRefused(Check(three), {"blk.0.attn_k.weight", "[32, 16]", "[32, 8, 2]"});
}

TEST(TensorCheckTest, NamesTheKeyBehindAWrongShape) {
  ExpectRefused(Check(TinySpec().Set(testing::U32Key("llama.feed_forward_length", 47))),
                {"ffn_gate", "llama.feed_forward_length", "47"});
  ExpectRefused(Check(TinySpec().Set(testing::U32Key("llama.attention.head_count_kv", 4))),
                {"attn_k", "llama.attention.head_count_kv"});
}

TEST(TensorCheckTest, RefusesTypesThatCannotBeUsed) {
  GgufSpec spec = TinySpec();
  GgufTensorSpec& matrix = spec.Tensor("blk.1.ffn_up.weight");
  for (const ggml_type type : {GGML_TYPE_I32, GGML_TYPE_F64, GGML_TYPE_I8}) {
    matrix.type = type;
    matrix.data.resize(ggml_row_size(type, 32) * 48);
    ExpectRefused(Check(spec), {"blk.1.ffn_up.weight", ggml_type_name(type)});
  }
  spec = TinySpec();
  GgufTensorSpec& norm = spec.Tensor("blk.0.attn_norm.weight");
  norm.type = GGML_TYPE_F16;
  norm.data.resize(64);
  ExpectRefused(Check(spec), {"blk.0.attn_norm.weight", "f32", "f16"});
}

TEST(TensorCheckTest, ChecksOptionalTensors) {
  GgufSpec spec = MakeTinyModel(Options(Arch::kQwen2)).Spec();
  EXPECT_TRUE(Check(GgufSpec(spec).DropTensor("blk.1.attn_q.bias")).ok());
  spec.Tensor("blk.1.attn_v.bias").dims = {8};
  ExpectRefused(Check(spec), {"blk.1.attn_v.bias", "[16]", "[8]"});
}

TEST(TensorCheckTest, RefusesTensorsThatWouldBeIgnored) {
  for (const char* name :
       {"blk.0.attn_output.bias", "blk.1.ffn_up.bias", "blk.0.attn_qkv.weight",
        "blk.0.ffn_gate_inp.weight", "blk.9.attn_norm.weight", "output.bias",
        "position_embd.weight", "rope_factors_long.weight", "blk.0.attn_q_norm.weight"}) {
    GgufSpec spec = TinySpec();
    spec.tensors.push_back(F32Tensor(name, {2}, {1, 2}));
    ExpectRefused(Check(spec), {name, "found one"});
  }
  TinyModelOptions options = Options(Arch::kQwen3);
  options.qkv_bias = true;
  ExpectRefused(Check(MakeTinyModel(options).Spec()), {"attn_q.bias", "qwen3"});
}

TEST(TensorCheckTest, WarnsOfOtherTensors) {
  std::string lines;
  SetLogSink([&](LogLevel level, std::string_view line) {
    if (level == LogLevel::kWarning) lines += line;
  });
  GgufSpec spec = TinySpec();
  spec.tensors.push_back(F32Tensor("note.extra", {2}, {1, 2}));
  EXPECT_TRUE(Check(spec).ok()) << Check(spec);
  SetLogSink(nullptr);
  EXPECT_NE(lines.find("note.extra"), std::string::npos) << lines;
}

TEST(TensorCheckTest, ChecksRopeFactors) {
  const auto with = [](std::vector<float> factors) {
    TinyModelOptions options;
    options.rope_factors = std::move(factors);
    return Check(MakeTinyModel(options).Spec());
  };
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  EXPECT_TRUE(with({1, 2, 3, 4}).ok());
  ExpectRefused(with({1, 2, 3}), {"rope_freqs.weight", "[4]", "[3]"});
  ExpectRefused(with({1, 2, 3, 4, 5, 6, 7, 8}), {"rope_freqs.weight", "[4]", "[8]"});
  for (const float bad : {0.0f, -1.0f, kNan, kInfinity}) {
    ExpectRefused(with({1, 1, bad, 1}), {"rope_freqs.weight", "above 0", "element 2"});
  }
}

TEST(TensorCheckTest, FindsNonFiniteWeights) {
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
        -std::numeric_limits<float>::infinity()}) {
    for (const char* name : {"blk.0.ffn_down.weight", "output_norm.weight", "output.weight"}) {
      GgufSpec spec = TinySpec();
      SetFloat(&spec.Tensor(name), 17, bad);
      ExpectRefused(Check(spec), {name, "finite", "element 17"});
    }
  }
}

TEST(TensorCheckTest, FindsNonFiniteWeightsOfSmallTypes) {
  for (const ggml_type type : {GGML_TYPE_F16, GGML_TYPE_BF16, GGML_TYPE_Q8_0, GGML_TYPE_Q4_1}) {
    TinyModelOptions options;
    options.n_ff = 64;
    options.matrix_type = type;
    GgufSpec spec = MakeTinyModel(options).Spec();
    GgufTensorSpec& tensor = spec.Tensor("blk.1.ffn_up.weight");
    const uint16_t nan = type == GGML_TYPE_BF16 ? 0x7FC0 : 0x7E00;
    std::memcpy(tensor.data.data(), &nan, sizeof(nan));
    ExpectRefused(Check(spec), {"blk.1.ffn_up.weight", "finite", "element 0"});
  }
}

}  // namespace
}  // namespace kvbound
