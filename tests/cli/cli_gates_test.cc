#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "cli/program.h"
#include "kvbound/gates.h"
#include "kvbound/model.h"
#include "testing/gguf_writer.h"
#include "testing/random_gates.h"
#include "testing/tiny_model.h"

namespace kvbound::testing {
namespace {

using Json = nlohmann::json;

std::string SaveGates(const RandomGatesOptions& options) {
  const std::string path = MakeTempDir() + "/gates.gguf";
  EXPECT_TRUE((*Gates::Make(RandomGateParts(options)))->Save(path).ok());
  return path;
}

TEST(GatesShow, PrintsWhatIsInTheFile) {
  RandomGatesOptions options;
  options.base.norm_hash = 0xabc;
  const ProgramResult result = RunProgram({"gates", "show", SaveGates(options)});
  EXPECT_EQ(result.exit_status, 0) << result.err;
  EXPECT_EQ(result.err, "");
  for (const char* text :
       {"tiny (llama), 2 layers, width 32, 2 KV heads, vocabulary 286", "0000000000000abc",
        "32 -> 64 -> 2 in each layer, silu", "4,484, f32, ", "local, full",
        "170,000 tokens in 166 steps", "60 %", "0.146 nats", "a.txt, 100 bytes"}) {
    EXPECT_NE(result.out.find(text), std::string::npos) << "no '" << text << "' in\n" << result.out;
  }
}

TEST(GatesShow, PrintsJson) {
  RandomGatesOptions options;
  options.hidden = {64, 32};
  options.tied_output = true;
  options.type = GateType::kQ8_0;
  const std::string path = SaveGates(options);
  const ProgramResult result = RunProgram({"gates", "show", path, "--json"});
  ASSERT_EQ(result.exit_status, 0) << result.err;
  const Json json = Json::parse(result.out);
  EXPECT_EQ(json["path"], path);
  EXPECT_EQ(json["base"]["n_layer"], 2);
  EXPECT_EQ(json["base"]["norm_hash"], nullptr);
  EXPECT_EQ(json["hidden"], Json({64, 32}));
  EXPECT_EQ(json["tied_output"], true);
  EXPECT_EQ(json["type"], "q8_0");
  EXPECT_EQ(json["training"]["memory"], 128);
}

TEST(GatesShow, RefusesWhatIsNoGateFile) {
  const std::string model = MakeSpellingModel().Write();
  EXPECT_REFUSED_BY_PROGRAM(RunProgram({"gates", "show", model}), 1, "this is a model");
  EXPECT_REFUSED_BY_PROGRAM(RunProgram({"gates", "show", "none.gguf"}), 1, "no such file");
  EXPECT_REFUSED_BY_PROGRAM(RunProgram({"gates", "show"}), 2, "file is required");
  EXPECT_REFUSED_BY_PROGRAM(RunProgram({"gates"}), 2, "expected a subcommand");
}

// ---- The importer, from a checkpoint to a run

TinyModelOptions Qwen3Options() {
  TinyModelOptions options;
  options.arch = Arch::kQwen3;
  options.name = "tiny-qwen3";
  return options;
}

// A checkpoint in the authors' names, of the same weights as `parts`.
std::string WriteCheckpoint(const Gates::Parts& parts) {
  const std::string dir = MakeTempDir();
  Json header = Json::object();
  std::string data;
  const auto add = [&](int layer, const std::string& part, const std::vector<float>& values,
                       const std::vector<int64_t>& shape) {
    const size_t begin = data.size();
    data.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
    header["model.layers." + std::to_string(layer) + ".self_attn.retention_gate." + part] = {
        {"dtype", "F32"}, {"shape", shape}, {"data_offsets", {begin, data.size()}}};
  };
  for (int l = 0; l < parts.base.n_layer; ++l) {
    const GateLayer& layer = parts.layers[l];
    const GateMatrix& first = layer.hidden[0].weight;
    add(l, "linear1.weight", first.ToFloats(), {first.n_row, first.n_col});
    add(l, "linear1.bias", layer.hidden[0].bias, {first.n_row});
    const GateMatrix& output = layer.output.weight;
    add(l, "linear2.weight", output.ToFloats(), {output.n_row, output.n_col});
    add(l, "bias", layer.output.bias, {output.n_row});
  }
  const std::string text = header.dump();
  std::ofstream(dir + "/model.safetensors", std::ios::binary)
      << Bytes64(text.size()) << text << data;
  const TinyModelOptions model = Qwen3Options();
  std::ofstream(dir + "/config.json") << Json({{"model_type", "qwen3"},
                                               {"hidden_act", "silu"},
                                               {"num_hidden_layers", model.n_layer},
                                               {"hidden_size", model.n_embd},
                                               {"num_attention_heads", model.n_head},
                                               {"num_key_value_heads", model.n_kv_head},
                                               {"vocab_size", parts.base.n_vocab}});
  return dir;
}

bool Shell(const std::string& command) { return std::system(command.c_str()) == 0; }

TEST(ImportGates, CheckpointRunsWithItsModel) {
  if (!Shell("python3 -c 'import sys; sys.exit(sys.version_info < (3, 8))'")) {
    GTEST_SKIP() << "no python3 of version 3.8 or later";
  }
  const std::string model_path = MakeTinyModel(Qwen3Options()).Write();
  const auto model = *Model::Load(model_path, ModelOptions());
  RandomGatesOptions options;
  options.base = DescribeBase(*model);
  const Gates::Parts parts = RandomGateParts(options);
  const std::string dir = WriteCheckpoint(parts);
  const std::string path = dir + "/gates.gguf";
  ASSERT_TRUE(Shell("python3 '" KVBOUND_SOURCE_DIR "/scripts/import_gates.py' '" + dir + "' -o '" +
                    path + "' --type f32 > '" + dir + "/log' 2>&1"));

  const auto gates = Gates::Load(path);
  ASSERT_TRUE(gates.ok()) << gates.status();
  EXPECT_TRUE((*gates)->CheckBase(*model).ok()) << (*gates)->CheckBase(*model);
  for (size_t l = 0; l < parts.layers.size(); ++l) {
    const GateLayer& found = (*gates)->parts().layers[l];
    EXPECT_EQ(found.hidden[0].weight.data, parts.layers[l].hidden[0].weight.data);
    EXPECT_EQ(found.hidden[0].bias, parts.layers[l].hidden[0].bias);
    EXPECT_EQ(found.output.weight.data, parts.layers[l].output.weight.data);
    EXPECT_EQ(found.output.bias, parts.layers[l].output.bias);
  }

  const ProgramResult result =
      RunProgram({"run", "-m", model_path, "--gates", path, "--policy", "retention", "--budget",
                  "16", "--chunk", "4", "-p", "abcdefghijklmnopqrstuvwxyz abcdefghijklm", "-n",
                  "16", "--stats", dir + "/stats.json"});
  EXPECT_EQ(result.exit_status, 0) << result.err;
  const Json stats = Json::parse(std::ifstream(dir + "/stats.json"));
  EXPECT_EQ(stats["run"]["policy"]["name"], "retention");
  EXPECT_LE(stats["peak_slots"], 20);
  EXPECT_GT(stats["tokens_evicted"], 0);
}

TEST(ImportGates, GatesOfAnotherModelAreRefused) {
  RandomGatesOptions options;
  options.base.n_layer = 3;
  const std::string gates = SaveGates(options);
  const std::string model = MakeTinyModel().Write();
  const ProgramResult result = RunProgram(
      {"run", "-m", model, "--gates", gates, "--policy", "retention", "-p", "abc", "-n", "4"});
  EXPECT_EQ(result.exit_status, 1);
  EXPECT_EQ(result.out, "");
  EXPECT_NE(result.err.find("layers: expected 3, found 2"), std::string::npos) << result.err;
}

}  // namespace
}  // namespace kvbound::testing
