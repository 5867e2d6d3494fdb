#include "scoring/gate_file.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "kvbound/model.h"
#include "testing/expect_refused.h"
#include "testing/gguf_writer.h"
#include "testing/random_gates.h"
#include "testing/tiny_model.h"

namespace kvbound {
namespace {

using testing::BoolKey;
using testing::BuildGguf;
using testing::ExpectRefused;
using testing::F32Tensor;
using testing::GgufKey;
using testing::GgufSpec;
using testing::MakeTempDir;
using testing::NumberKey;
using testing::NumbersKey;
using testing::RandomGateParts;
using testing::RandomGatesOptions;
using testing::StringKey;
using testing::U32Key;
using testing::WriteTemp;

void ExpectEqual(const GateLinear& a, const GateLinear& b) {
  EXPECT_EQ(a.weight.type, b.weight.type);
  EXPECT_EQ(a.weight.n_row, b.weight.n_row);
  EXPECT_EQ(a.weight.n_col, b.weight.n_col);
  EXPECT_EQ(a.weight.data, b.weight.data);
  EXPECT_EQ(a.bias, b.bias);
}

void ExpectEqual(const Gates::Parts& a, const Gates::Parts& b) {
  EXPECT_EQ(a.base.architecture, b.base.architecture);
  EXPECT_EQ(a.base.name, b.base.name);
  EXPECT_EQ(a.base.n_layer, b.base.n_layer);
  EXPECT_EQ(a.base.n_embd, b.base.n_embd);
  EXPECT_EQ(a.base.n_kv_head, b.base.n_kv_head);
  EXPECT_EQ(a.base.n_vocab, b.base.n_vocab);
  EXPECT_EQ(a.base.norm_hash, b.base.norm_hash);
  EXPECT_EQ(a.activation, b.activation);
  EXPECT_EQ(a.tied_output, b.tied_output);
  EXPECT_EQ(a.training.method, b.training.method);
  EXPECT_EQ(a.training.texts, b.training.texts);
  EXPECT_EQ(a.training.tokens, b.training.tokens);
  EXPECT_EQ(a.training.steps, b.training.steps);
  EXPECT_EQ(a.training.seq_len, b.training.seq_len);
  EXPECT_EQ(a.training.memory, b.training.memory);
  EXPECT_EQ(a.training.seed, b.training.seed);
  EXPECT_EQ(a.training.fact_share, b.training.fact_share);
  EXPECT_EQ(a.training.loss, b.training.loss);
  EXPECT_EQ(a.training.capacity_loss, b.training.capacity_loss);
  EXPECT_EQ(a.training.eviction_kl, b.training.eviction_kl);
  ASSERT_EQ(a.layers.size(), b.layers.size());
  for (size_t l = 0; l < a.layers.size(); ++l) {
    ASSERT_EQ(a.layers[l].hidden.size(), b.layers[l].hidden.size());
    for (size_t k = 0; k < a.layers[l].hidden.size(); ++k) {
      ExpectEqual(a.layers[l].hidden[k], b.layers[l].hidden[k]);
    }
    ExpectEqual(a.layers[l].output, b.layers[l].output);
  }
}

TEST(GateFileTest, RoundTripKeepsEverything) {
  for (const GateType type : {GateType::kF32, GateType::kF16, GateType::kQ8_0}) {
    for (const bool tied : {false, true}) {
      for (const std::vector<int64_t>& hidden : {std::vector<int64_t>{64}, {64, 32}}) {
        RandomGatesOptions options;
        options.type = type;
        options.tied_output = tied;
        options.hidden = hidden;
        options.activation = tied ? GateActivation::kGelu : GateActivation::kSilu;
        options.base.norm_hash = 0xfedcba9876543210u;
        const auto gates = *Gates::Make(RandomGateParts(options));
        const std::string path = MakeTempDir() + "/gates.gguf";
        const Status saved = gates->Save(path);
        ASSERT_TRUE(saved.ok()) << saved;
        const auto loaded = Gates::Load(path);
        ASSERT_TRUE(loaded.ok()) << loaded.status();
        EXPECT_EQ((*loaded)->path(), path);
        ExpectEqual((*loaded)->parts(), gates->parts());
      }
    }
  }
}

TEST(GateFileTest, RoundTripOfAnEmptyRecord) {
  Gates::Parts parts = RandomGateParts();
  parts.training = GateTraining();
  parts.base.name.clear();
  const std::string path = MakeTempDir() + "/gates.gguf";
  ASSERT_TRUE((*Gates::Make(parts))->Save(path).ok());
  ExpectEqual((*Gates::Load(path))->parts(), parts);
}

TEST(GateFileTest, TiedOutputIsStoredOnce) {
  RandomGatesOptions options;
  options.tied_output = true;
  const std::string path = MakeTempDir() + "/gates.gguf";
  ASSERT_TRUE((*Gates::Make(RandomGateParts(options)))->Save(path).ok());
  const GgufFile file = *GgufFile::Open(path);
  EXPECT_EQ(file.tensors().size(), 2u * 2 + 2);
  EXPECT_NE(file.FindTensor("gate.output.weight"), nullptr);
  EXPECT_EQ(file.FindTensor("blk.0.gate.output.weight"), nullptr);
}

std::string Prefixed(const std::string& name) { return "kvbound-gates." + name; }

// A file of one layer, 32 -> 64 -> 2, whose fields can be made wrong one by one.
GgufSpec SmallSpec() {
  GgufSpec spec;
  spec.Set(StringKey("general.architecture", "kvbound-gates"))
      .Set(U32Key(Prefixed("version"), 1))
      .Set(StringKey(Prefixed("base.architecture"), "llama"))
      .Set(U32Key(Prefixed("base.block_count"), 1))
      .Set(U32Key(Prefixed("base.embedding_length"), 32))
      .Set(U32Key(Prefixed("base.head_count_kv"), 2))
      .Set(U32Key(Prefixed("base.vocab_size"), 0))
      .Set(StringKey(Prefixed("activation"), "silu"))
      .Set(NumbersKey(Prefixed("hidden_lengths"), GgufType::kU32, {64}));
  const auto values = [](int64_t n) { return std::vector<float>(static_cast<size_t>(n), 0.25f); };
  spec.tensors = {F32Tensor("blk.0.gate.linear1.weight", {32, 64}, values(32 * 64)),
                  F32Tensor("blk.0.gate.linear1.bias", {64}, values(64)),
                  F32Tensor("blk.0.gate.output.weight", {64, 2}, values(64 * 2)),
                  F32Tensor("blk.0.gate.output.bias", {2}, values(2))};
  return spec;
}

TEST(GateFileTest, ReadsAFileWithTheRequiredKeysAlone) {
  const auto gates = Gates::Load(WriteTemp(BuildGguf(SmallSpec()), "g.gguf"));
  ASSERT_TRUE(gates.ok()) << gates.status();
  EXPECT_EQ((*gates)->n_parameter(), 32 * 64 + 64 + 64 * 2 + 2);
  EXPECT_FALSE((*gates)->parts().tied_output);
  EXPECT_EQ((*gates)->parts().training.method, "");
}

template <typename Change>
void ExpectFileRefused(Change change, std::vector<std::string> words) {
  GgufSpec spec = SmallSpec();
  change(&spec);
  words.push_back("g.gguf");
  ExpectRefused(Gates::Load(WriteTemp(BuildGguf(spec), "g.gguf")).status(), words);
}

TEST(GateFileTest, RefusesWrongKeys) {
  const auto set = [](GgufKey key, std::vector<std::string> words) {
    words.push_back("'" + key.name + "'");
    ExpectFileRefused([&](GgufSpec* spec) { spec->Set(key); }, words);
  };
  set(StringKey("general.architecture", "qwen2"), {"'kvbound-gates'", "'qwen2'", "a model"});
  set(U32Key(Prefixed("version"), 2), {"expected 1, found 2"});
  set(U32Key(Prefixed("base.block_count"), 0), {"1..1024", "found 0"});
  set(U32Key(Prefixed("base.block_count"), 4000000000u), {"1..1024", "found 4000000000"});
  set(U32Key(Prefixed("base.head_count_kv"), 33), {"1..32", "found 33"});
  set(StringKey(Prefixed("base.vocab_size"), "many"), {"an integer", "string"});
  set(StringKey(Prefixed("activation"), "tanh"), {"silu, gelu or relu", "'tanh'"});
  set(U32Key(Prefixed("hidden_lengths"), 64), {"array of numbers", "u32"});
  set(NumbersKey(Prefixed("hidden_lengths"), GgufType::kU32, {}), {"1..8", "found 0"});
  set(NumbersKey(Prefixed("hidden_lengths"), GgufType::kI32, {-64}), {"1..", "found -64"});
  set(NumberKey(Prefixed("training.loss"), GgufType::kF64, std::numeric_limits<double>::infinity()),
      {"finite", "inf"});
  set(NumberKey(Prefixed("training.steps"), GgufType::kI32, -1), {"found -1"});
  for (const GgufKey& key : SmallSpec().keys) {
    ExpectFileRefused([&](GgufSpec* spec) { spec->Drop(key.name); }, {key.name, "missing"});
  }
}

TEST(GateFileTest, RefusesWrongTensors) {
  for (const auto& tensor : SmallSpec().tensors) {
    ExpectFileRefused([&](GgufSpec* spec) { spec->DropTensor(tensor.name); },
                      {"'" + tensor.name + "'", "1 layers", "missing"});
    ExpectFileRefused([&](GgufSpec* spec) { spec->Tensor(tensor.name).dims.back() -= 1; },
                      {"'" + tensor.name + "'", "shape"});
  }
  const std::string weight = "blk.0.gate.linear1.weight";
  ExpectFileRefused(
      [&](GgufSpec* s) {
        s->Tensor(weight).dims = {64, 32};
      },
      {weight, "[32, 64], columns first", "found [64, 32]"});
  ExpectFileRefused([&](GgufSpec* s) { s->Tensor(weight).type = GGML_TYPE_BF16; },
                    {weight, "f32, f16 or q8_0", "bf16"});
  ExpectFileRefused([&](GgufSpec* s) { s->Tensor("blk.0.gate.linear1.bias").type = GGML_TYPE_F16; },
                    {"blk.0.gate.linear1.bias", "type f32", "f16"});
  ExpectFileRefused(
      [&](GgufSpec* s) {
        s->tensors.push_back(F32Tensor("blk.1.gate.output.bias", {2}, {1, 2}));
      },
      {"blk.1.gate.output.bias", "no tensors beyond those of 1 layers"});
  ExpectFileRefused([&](GgufSpec* s) { s->Set(BoolKey(Prefixed("tied_output"), true)); },
                    {"'gate.output.weight'", "a shared output", "missing"});
  ExpectFileRefused([&](GgufSpec* s) { s->Set(U32Key(Prefixed("base.block_count"), 2)); },
                    {"'blk.1.gate.linear1.weight'", "2 layers", "missing"});
}

TEST(GateFileTest, RefusesWeightsThatAreNotFinite) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  ExpectFileRefused(
      [&](GgufSpec* s) {
        std::memcpy(s->Tensor("blk.0.gate.linear1.weight").data.data() + 4 * 33, &nan, 4);
      },
      {"blk.0.gate.linear1.weight", "finite", "nan at row 1, column 1"});
}

TEST(GateFileTest, RefusesWhatIsNoGateFile) {
  const std::string model = testing::MakeTinyModel().Write();
  ExpectRefused(Gates::Load(model).status(),
                {model, "general.architecture", "kvbound-gates", "'llama': this is a model"});
  ExpectRefused(Gates::Load(MakeTempDir() + "/none.gguf").status(), {"none.gguf", "no such file"});
  ExpectRefused(Gates::Load(MakeTempDir()).status(), {"a directory"});
  ExpectRefused(Gates::Load(WriteTemp({'a', 'b', 'c', 'd', 'e'}, "g.txt")).status(),
                {"g.txt", "magic"});
}

TEST(GateFileTest, IsRefusedAsAModel) {
  const std::string path = WriteTemp(BuildGguf(SmallSpec()), "g.gguf");
  ExpectRefused(Model::Load(path, ModelOptions()).status(),
                {path, "general.architecture", "llama, qwen2, qwen3", "kvbound-gates"});
}

TEST(GateFileTest, FailureToSaveNamesThePath) {
  const auto gates = *Gates::Make(RandomGateParts());
  const std::string dir = MakeTempDir();
  ExpectRefused(gates->Save(dir), {dir, "a directory"});
  ExpectRefused(gates->Save(dir + "/no/g.gguf"), {dir + "/no/g.gguf", "No such file"});
}

}  // namespace
}  // namespace kvbound
