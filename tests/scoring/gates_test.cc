#include "kvbound/gates.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <tuple>
#include <vector>

#include "kvbound/model.h"
#include "testing/expect_refused.h"
#include "testing/gguf_writer.h"
#include "testing/random_gates.h"
#include "testing/tiny_model.h"

namespace kvbound {
namespace {

using testing::ExpectRefused;
using testing::RandomGateParts;
using testing::RandomGatesOptions;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

void SetElement(GateMatrix* matrix, size_t i, float value) {
  std::vector<float> values = matrix->ToFloats();
  values[i] = value;
  *matrix = GateMatrix::FromFloats(matrix->type, matrix->n_row, matrix->n_col, values);
}

TEST(GateMatrixTest, KeepsValuesAsTypeAllows) {
  std::vector<float> values;
  for (int i = 0; i < 3 * 64; ++i) values.push_back(std::sin(0.37f * static_cast<float>(i)));
  const struct {
    GateType type;
    float tolerance;
    size_t n_bytes;
  } kCases[] = {{GateType::kF32, 0.0f, 3 * 64 * 4},
                {GateType::kF16, 5e-4f, 3 * 64 * 2},
                {GateType::kQ8_0, 4.5e-3f, 3 * 2 * 34}};
  for (const auto& c : kCases) {
    const GateMatrix matrix = GateMatrix::FromFloats(c.type, 3, 64, values);
    EXPECT_EQ(matrix.data.size(), c.n_bytes);
    const std::vector<float> back = matrix.ToFloats();
    ASSERT_EQ(back.size(), values.size());
    for (size_t i = 0; i < values.size(); ++i) {
      EXPECT_NEAR(back[i], values[i], c.tolerance) << GateTypeName(c.type) << " " << i;
    }
  }
}

TEST(GateTypeTest, NamesAreParsed) {
  for (const GateType type : {GateType::kF32, GateType::kF16, GateType::kQ8_0}) {
    EXPECT_EQ(*ParseGateType(GateTypeName(type)), type);
  }
  ExpectRefused(ParseGateType("q4_0").status(), {"f32, f16 or q8_0", "'q4_0'"});
}

TEST(GatesTest, CountsParametersAndBytes) {
  RandomGatesOptions options;
  options.hidden = {64, 32};
  const auto gates = *Gates::Make(RandomGateParts(options));
  const int64_t hidden = 32 * 64 + 64 + 64 * 32 + 32;
  const int64_t output = 32 * 2 + 2;
  EXPECT_EQ(gates->n_layer(), 2);
  EXPECT_EQ(gates->n_parameter(), 2 * (hidden + output));
  EXPECT_EQ(gates->weight_bytes(), 2u * (hidden + output) * 4);

  options.tied_output = true;
  const auto tied = *Gates::Make(RandomGateParts(options));
  EXPECT_EQ(tied->n_parameter(), 2 * hidden + output);
  EXPECT_EQ(tied->weight_bytes(), 2u * (hidden + output) * 4);
}

TEST(GatesTest, RefusesPartsThatDoNotFit) {
  const auto refused = [](auto&& change, const std::vector<std::string>& words) {
    RandomGatesOptions options;
    options.hidden = {64, 32};
    Gates::Parts parts = RandomGateParts(options);
    change(&parts);
    ExpectRefused(Gates::Make(std::move(parts)).status(), words);
  };
  using Parts = Gates::Parts;
  refused([](Parts* p) { p->layers.pop_back(); }, {"expected 2 layers", "found 1"});
  refused([](Parts* p) { p->base.n_layer = 0; }, {"layers: expected 1..", "found 0"});
  refused([](Parts* p) { p->base.n_kv_head = 33; }, {"n_kv_head", "1..32", "found 33"});
  refused([](Parts* p) { p->layers[1].hidden.clear(); }, {"layer 1", "hidden linears", "found 0"});
  refused([](Parts* p) { p->layers[1].hidden.pop_back(); }, {"layer 1", "expected 2", "found 1"});
  refused([](Parts* p) { p->base.n_embd = 64; },
          {"blk.0.gate.linear1.weight", "[64, 64]", "found [64, 32]"});
  refused([](Parts* p) { p->base.n_kv_head = 3; },
          {"blk.0.gate.output.weight", "[3, 32]", "found [2, 32]"});
  refused([](Parts* p) { p->layers[1].hidden[1].bias.pop_back(); },
          {"blk.1.gate.linear2.bias", "32 values", "found 31"});
  refused([](Parts* p) { p->layers[0].hidden[0].weight.data.pop_back(); },
          {"blk.0.gate.linear1.weight", "8192 bytes", "8191"});
  refused([](Parts* p) { p->tied_output = true; },
          {"gate.output.weight", "tied", "another one in layer 1"});
}

TEST(GatesTest, RefusesWeightsThatAreNotFinite) {
  Gates::Parts parts = RandomGateParts();
  SetElement(&parts.layers[1].hidden[0].weight, 3 * 32 + 5, kNan);
  ExpectRefused(Gates::Make(parts).status(),
                {"blk.1.gate.linear1.weight", "finite", "nan at row 3, column 5"});
  parts = RandomGateParts();
  parts.layers[0].output.bias[1] = -std::numeric_limits<float>::infinity();
  ExpectRefused(Gates::Make(parts).status(), {"blk.0.gate.output.bias", "-inf at element 1"});
}

TEST(GatesTest, ConvertsTypes) {
  const auto gates = *Gates::Make(RandomGateParts());
  for (const GateType type : {GateType::kF16, GateType::kQ8_0, GateType::kF32}) {
    const auto converted = *gates->ConvertTo(type);
    EXPECT_EQ(converted->type(), type);
    EXPECT_EQ(converted->parts().layers[1].output.weight.type, type);
    EXPECT_EQ(converted->parts().layers[1].output.bias, gates->parts().layers[1].output.bias);
    EXPECT_EQ(converted->parts().training.texts, gates->parts().training.texts);
    const std::vector<float> before = gates->parts().layers[0].hidden[0].weight.ToFloats();
    const std::vector<float> after = converted->parts().layers[0].hidden[0].weight.ToFloats();
    for (size_t i = 0; i < before.size(); ++i) EXPECT_NEAR(after[i], before[i], 2.5e-3f);
  }
  RandomGatesOptions odd;
  odd.hidden = {48};
  ExpectRefused((*Gates::Make(RandomGateParts(odd)))->ConvertTo(GateType::kQ8_0).status(),
                {"q8_0", "divisible by 32", "found 48"});
}

TEST(GatesTest, RefusesConversionBeyondTheType) {
  Gates::Parts parts = RandomGateParts();
  SetElement(&parts.layers[0].hidden[0].weight, 0, 1e6f);
  ExpectRefused((*Gates::Make(parts))->ConvertTo(GateType::kF16).status(),
                {"blk.0.gate.linear1.weight", "finite", "inf at row 0, column 0"});
}

std::shared_ptr<const Model> LoadTiny(const testing::TinyModelOptions& options) {
  return *Model::Load(testing::MakeTinyModel(options).Write(), ModelOptions());
}

TEST(GatesTest, KnowsItsModel) {
  testing::TinyModelOptions options;
  const auto model = LoadTiny(options);
  const BaseModel base = DescribeBase(*model);
  EXPECT_EQ(base.architecture, "llama");
  EXPECT_EQ(base.name, "tiny");
  EXPECT_EQ(std::tie(base.n_layer, base.n_embd, base.n_kv_head), std::make_tuple(2, 32, 2));
  EXPECT_EQ(base.n_vocab, 286);
  EXPECT_NE(base.norm_hash, 0u);

  RandomGatesOptions gate_options;
  gate_options.base = base;
  EXPECT_TRUE((*Gates::Make(RandomGateParts(gate_options)))->CheckBase(*model).ok());
  const auto refused = [&](auto&& change, const std::vector<std::string>& words) {
    RandomGatesOptions changed = gate_options;
    change(&changed.base);
    ExpectRefused((*Gates::Make(RandomGateParts(changed)))->CheckBase(*model), words);
  };
  refused([](BaseModel* b) { b->architecture = "qwen3"; },
          {"architecture: expected qwen3, found llama", "'tiny'"});
  refused([](BaseModel* b) { b->n_layer = 3; }, {"layers: expected 3, found 2"});
  refused([](BaseModel* b) { b->n_embd = 64; }, {"n_embd: expected 64, found 32"});
  refused([](BaseModel* b) { b->n_kv_head = 4; }, {"KV heads per layer: expected 4, found 2"});
  refused([](BaseModel* b) { b->n_vocab = 300; }, {"vocabulary: expected 300, found 286"});
  refused([](BaseModel* b) { b->norm_hash = 0xabc; },
          {"hash of norms and biases", "expected 0000000000000abc"});

  gate_options.base.norm_hash = 0;
  gate_options.base.n_vocab = 0;
  EXPECT_TRUE((*Gates::Make(RandomGateParts(gate_options)))->CheckBase(*model).ok());
}

TEST(GatesTest, NormHashIsThatOfTheModelNotOfItsQuantisation) {
  testing::TinyModelOptions options;
  options.n_ff = 64;
  const uint64_t hash = DescribeBase(*LoadTiny(options)).norm_hash;
  testing::TinyModelOptions quantised = options;
  quantised.matrix_type = GGML_TYPE_Q8_0;
  EXPECT_EQ(DescribeBase(*LoadTiny(quantised)).norm_hash, hash);
  testing::TinyModelOptions other = options;
  other.seed = 2;
  EXPECT_NE(DescribeBase(*LoadTiny(other)).norm_hash, hash);
}

}  // namespace
}  // namespace kvbound
