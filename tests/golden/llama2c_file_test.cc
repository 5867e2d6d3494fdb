#include "golden/llama2c_file.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "golden/run_cases.h"
#include "testing/golden_case_writer.h"
#include "testing/paths.h"
#include "testing/tiny_model.h"

namespace kvbound::golden {
namespace {

using testing::GgufBytes;
using testing::GoldenCase;
using testing::TinyModel;
using testing::TinyModelOptions;

template <typename T>
void Append(const std::vector<T>& values, GgufBytes* bytes) {
  const auto* first = reinterpret_cast<const uint8_t*>(values.data());
  bytes->insert(bytes->end(), first, first + values.size() * sizeof(T));
}

// The model as llama2.c writes it.
GgufBytes AsLlama2c(const TinyModel& model) {
  const TinyModelOptions& o = model.options;
  GgufBytes bytes;
  Append<int32_t>({o.n_embd, o.n_ff, o.n_layer, o.n_head, o.n_kv_head,
                   o.tied ? model.n_vocab() : -model.n_vocab(), o.n_ctx},
                  &bytes);
  const auto layers = [&](const std::string& tensor) {
    for (int layer = 0; layer < o.n_layer; ++layer) {
      Append(model.Values("blk." + std::to_string(layer) + "." + tensor + ".weight"), &bytes);
    }
  };
  Append(model.Values("token_embd.weight"), &bytes);
  for (const char* tensor : {"attn_norm", "attn_q", "attn_k", "attn_v", "attn_output", "ffn_norm",
                             "ffn_gate", "ffn_down", "ffn_up"}) {
    layers(tensor);
  }
  Append(model.Values("output_norm.weight"), &bytes);
  Append(std::vector<float>(static_cast<size_t>(o.n_ctx * o.head_dim)), &bytes);
  if (!o.tied) Append(model.Values("output.weight"), &bytes);
  return bytes;
}

class Llama2cFile : public ::testing::TestWithParam<bool> {};

TEST_P(Llama2cFile, GivesTheModelsLogits) {
  TinyModelOptions options;
  options.tied = GetParam();
  const TinyModel model = testing::MakeTinyModel(options);
  const std::string folder = testing::MakeTempDir();
  std::vector<int32_t> ids;
  for (int i = 0; i < 20; ++i) ids.push_back(3 + 11 * i);
  testing::MakeLogitsCase(model, "tiny", ids, 5).Write(folder, "case");
  RunRequest request{folder, {{"tiny", testing::WriteTemp(AsLlama2c(model), "tiny.bin")}}, {}, {}};
  request.options.n_threads = 1;
  const auto summary = RunCases(request, [](const CaseResult& result) {
    EXPECT_EQ(result.outcome, Outcome::kPass) << result.reason;
  });
  ASSERT_TRUE(summary.ok()) << summary.status();
  EXPECT_EQ(summary->n_pass, 1);
}

INSTANTIATE_TEST_SUITE_P(Head, Llama2cFile, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "Tied" : "Untied"; });

TEST(Llama2cFile, RefusesWhatContradictsItself) {
  const GgufBytes good = AsLlama2c(testing::MakeTinyModel());
  ASSERT_TRUE(Llama2cToGguf(good, "good.bin").ok());
  const auto refuse = [&](const GgufBytes& bytes, const std::string& expected) {
    const auto result = Llama2cToGguf(bytes, "bad.bin");
    ASSERT_FALSE(result.ok()) << expected;
    EXPECT_NE(result.status().message().find("bad.bin: " + expected), std::string::npos)
        << result.status();
  };
  refuse({}, "expected 7 int32, found 0 bytes");
  GgufBytes bytes = good;
  bytes.pop_back();
  refuse(bytes, "tensor 'output.weight'");
  bytes.resize(5000);
  refuse(bytes, "tensor 'token_embd.weight'");
  bytes = good;
  bytes.push_back(0);
  refuse(bytes, "expected ");
  const char* names[] = {"dim", "hidden", "layers", "heads", "kv heads", "vocab", "seq"};
  for (size_t field = 0; field < 7; ++field) {
    for (const int32_t value : {0, INT32_MIN, INT32_MAX}) {
      bytes = good;
      std::memcpy(bytes.data() + field * sizeof(value), &value, sizeof(value));
      refuse(bytes, std::string("field '") + names[field] + "'");
    }
  }
}

TEST(Llama2cFile, SharedCheckpointMatchesGolden) {
  const auto shared = testing::SharedDir() / "data";
  const auto model = shared / "models/stories260k/stories260K.bin";
  KVBOUND_SKIP_WITHOUT(model);
  KVBOUND_SKIP_WITHOUT(shared / "golden/logits/stories260k-t0.json");
  RunRequest request{shared / "golden", {{"stories260k", model.string()}}, {"stories260k-t0"}, {}};
  request.options.n_threads = 1;
  const auto summary = RunCases(request, [](const CaseResult& result) {
    EXPECT_EQ(result.outcome, Outcome::kPass) << result.reason;
  });
  ASSERT_TRUE(summary.ok()) << summary.status();
  EXPECT_TRUE(summary->ok());
}

}  // namespace
}  // namespace kvbound::golden
