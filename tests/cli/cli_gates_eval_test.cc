#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "cli/program.h"
#include "testing/random_gates.h"
#include "testing/tiny_engine.h"

namespace kvbound::testing {
namespace {

using Json = nlohmann::json;

const std::string& ModelPath() {
  static const std::string path = MakeTinyModel().Write();
  return path;
}

const std::string& GatesPath() {
  static const std::string path = [] {
    const std::string file = ::testing::TempDir() + "eval_gates.gguf";
    const auto model = Model::Load(ModelPath(), {});
    EXPECT_TRUE(MakeRandomGates(**model)->Save(file).ok());
    return file;
  }();
  return path;
}

std::string Write(const std::string& name, const std::string& text) {
  const std::string path = ::testing::TempDir() + name;
  std::ofstream(path, std::ios::binary) << text;
  return path;
}

const std::string& Book() {
  static const std::string path = [] {
    std::string text;
    for (int i = 0; i < 400; ++i) text += "Wave " + std::to_string(i * 7 % 100) + " came in. ";
    return Write("eval_book.txt", text);
  }();
  return path;
}

ProgramResult Eval(std::vector<std::string> options) {
  options.insert(options.begin(), {"gates", "eval", "-m", ModelPath()});
  return RunProgram(std::move(options));
}

ProgramResult SmallEval(std::vector<std::string> options) {
  options.insert(options.begin(), {"--text", Book(), "--texts", "3", "--length", "96", "--skip",
                                   "32", "--chunk", "8", "--sinks", "2", "-t", "1"});
  return Eval(std::move(options));
}

Json ReadJson(const std::string& path) {
  std::ifstream in(path);
  return Json::parse(in);
}

TEST(GatesEval, MeasuresGatesBesideOtherPolicies) {
  const std::string json_path = ::testing::TempDir() + "eval.json";
  const ProgramResult result =
      SmallEval({"--gates", GatesPath(), "--budget", "16,40", "--json", json_path});
  ASSERT_EQ(result.exit_status, 0) << result.err;
  EXPECT_EQ(result.err, "");
  for (const char* text :
       {"uncut NLL ", "budget 16\n", "budget 40\n", "eval_gates.gguf", "streaming", "random",
        "KL / streaming's", "bytes of log beta per token"}) {
    EXPECT_NE(result.out.find(text), std::string::npos) << text << "\n" << result.out;
  }
  const Json json = ReadJson(json_path);
  EXPECT_EQ(json["kv_bytes_per_token"], 2 * 2 * 2 * 2 * 8);  // K, V; f16; layers; heads; head size
  EXPECT_EQ(json["log_beta_bytes_per_token"], 4 * 2 * 2);
  ASSERT_EQ(json["fidelity"].size(), 6u);
  for (const Json& row : json["fidelity"]) {
    EXPECT_EQ(row["kept"], row["budget"]);
    EXPECT_EQ(row["texts"].size(), 3u);
    EXPECT_GT(row["kl"], 0.0);
    EXPECT_EQ(row["compared_with"], "streaming");
    EXPECT_LE(row["kl_ratio_95"][0], row["kl_ratio"]);
    EXPECT_GE(row["kl_ratio_95"][1], row["kl_ratio"]);
    EXPECT_EQ(row["texts"][0]["tokens"], 96 - 1 - 32);
    if (row["label"] == "streaming") {
      EXPECT_EQ(row["kl_ratio"], 1.0);
    }
  }
}

TEST(GatesEval, NothingIsLostWithRoomForAll) {
  const std::string json_path = ::testing::TempDir() + "eval_all.json";
  ASSERT_EQ(SmallEval({"--budget", "96", "--compare", "window", "--json", json_path}).exit_status,
            0);
  const Json row = ReadJson(json_path)["fidelity"][0];
  EXPECT_EQ(row["kl"], 0.0);
  EXPECT_EQ(row["top1"], 1.0);
}

TEST(GatesEval, AsksForFacts) {
  const std::string json_path = ::testing::TempDir() + "eval_facts.json";
  const ProgramResult result =
      Eval({"--text", Book(), "--texts", "0", "--facts", "--items", "3", "--item-length", "700",
            "--budget", "32", "--compare", "random", "--show", "-t", "1", "--json", json_path});
  ASSERT_EQ(result.exit_status, 0) << result.err;
  for (const char* text : {"facts mentioned once, pass key: 3 prompts of 700 tokens",
                           "facts mentioned once, invented names", " of 3   ",
                           "asked:    What is the "
                           "pass key?",
                           "expected: "}) {
    EXPECT_NE(result.out.find(text), std::string::npos) << text << "\n" << result.out;
  }
  const Json json = ReadJson(json_path);
  EXPECT_TRUE(json["fidelity"].empty());
  ASSERT_EQ(json["facts"].size(), 2u);
  for (const Json& probe : json["facts"]) {
    ASSERT_EQ(probe["results"].size(), 2u);
    EXPECT_EQ(probe["results"][0]["label"], "uncut");
    EXPECT_EQ(probe["results"][1]["budget"], 32);
    EXPECT_EQ(probe["items"].size(), 3u);
    EXPECT_EQ(probe["items"][0]["tokens"], 700);
  }
}

TEST(GatesEval, RefusesWhatTheCommandLineGetsWrong) {
  EXPECT_REFUSED_BY_PROGRAM(Eval({}), 2, "--text: expected at least one file, found none");
  EXPECT_REFUSED_BY_PROGRAM(SmallEval({"--compare", "none"}), 2, "--gates: expected a file");
  EXPECT_REFUSED_BY_PROGRAM(SmallEval({"--compare", "streaming,best"}), 2, "'best'");
  EXPECT_REFUSED_BY_PROGRAM(SmallEval({"--compare", "none,random"}), 2, "'none'");
  EXPECT_REFUSED_BY_PROGRAM(SmallEval({"--budget", "64,,128"}), 2, "--budget: expected");
  EXPECT_REFUSED_BY_PROGRAM(SmallEval({"--budget", "64,2"}), 2,
                            "expected more than the 2 slots that --sinks and --recent protect");
  EXPECT_REFUSED_BY_PROGRAM(Eval({"--text", Book(), "--texts", "0"}), 2,
                            "--texts: expected 0 with --facts only");
  EXPECT_REFUSED_BY_PROGRAM(Eval({"--text", Book(), "--length", "96", "--skip", "95"}), 2,
                            "--length: expected at least");
  EXPECT_REFUSED_BY_PROGRAM(SmallEval({"--horizon", "5"}), 2, "--horizon");
  EXPECT_REFUSED_BY_PROGRAM(SmallEval({"--json", Book()}), 2, "which is read");
}

TEST(GatesEval, RefusesBadFiles) {
  EXPECT_REFUSED_BY_PROGRAM(Eval({"--text", "/no/such.txt"}), 1, "/no/such.txt");
  EXPECT_REFUSED_BY_PROGRAM(Eval({"--text", Write("eval_short.txt", "Too short.")}), 1,
                            "eval_short.txt: expected at least 49");
  EXPECT_REFUSED_BY_PROGRAM(SmallEval({"--gates", "/no/such.gguf"}), 1, "/no/such.gguf");
  EXPECT_REFUSED_BY_PROGRAM(SmallEval({"--json", "/no/such/dir/out.json"}), 1,
                            "--json: /no/such/dir/out.json");
  TinyModelOptions other;
  other.n_embd = 64;
  other.name = "other";
  const auto model = LoadTiny(MakeTinyModel(other));
  const std::string gates = ::testing::TempDir() + "eval_other_gates.gguf";
  ASSERT_TRUE(MakeRandomGates(*model)->Save(gates).ok());
  EXPECT_REFUSED_BY_PROGRAM(SmallEval({"--gates", gates}), 1, "eval_other_gates.gguf");
}

}  // namespace
}  // namespace kvbound::testing
