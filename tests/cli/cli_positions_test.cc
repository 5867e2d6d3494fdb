#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/program.h"
#include "testing/gguf_writer.h"
#include "testing/tiny_model.h"

// Texts that go past the position limit, as a user sees them.
namespace kvbound::testing {
namespace {

using Json = nlohmann::json;

const std::string& Spell() {  // trained on 64 positions
  static const std::string path = MakeSpellingModel().Write();
  return path;
}

std::vector<std::string> Generate(std::vector<std::string> more) {
  std::vector<std::string> arguments = {"run", "-m",      Spell(),  "-p",       "a",
                                        "-n",  "200",     "--temp", "0",        "--budget",
                                        "16",  "--chunk", "8",      "--policy", "streaming"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

Json LastLine(const std::string& text) {
  const size_t end = text.find_last_not_of('\n');
  const size_t begin = text.rfind('\n', end);
  return Json::parse(text.substr(begin == std::string::npos ? 0 : begin + 1));
}

TEST(Positions, AutoGoesOnPastTheTrainedContextAndSaysSoOnce) {
  const ProgramResult result = RunProgram(Generate({"--stats", "-"}));
  ASSERT_EQ(result.exit_status, 0) << result.err;
  EXPECT_EQ(result.out.substr(0, 25), "bcdefghijklmnopqrstuvwxyz");
  const Json stats = LastLine(result.err);
  EXPECT_EQ(stats["tokens_seen"], 200);
  // 64 positions hold 16 kept slots and 6 chunks; the first time 8 chunks.
  EXPECT_EQ(stats["rebases"], 3);
  EXPECT_EQ(stats["run"]["positions"], "auto");
  EXPECT_EQ(stats["run"]["position_limit"], 64);
  const std::string said = "positions: the text has reached the limit of 64; what is kept moves";
  const size_t at = result.err.find(said);
  ASSERT_NE(at, std::string::npos) << result.err;
  EXPECT_EQ(result.err.find(said, at + 1), std::string::npos);
  EXPECT_EQ(result.err.find("trained on"), std::string::npos) << result.err;
  EXPECT_NE(result.err.find("auto, below 64, 3 rebases"), std::string::npos) << result.err;
}

TEST(Positions, OriginalWarnsPastTheTrainedContext) {
  const ProgramResult result = RunProgram(Generate({"--positions", "original", "--stats", "-"}));
  ASSERT_EQ(result.exit_status, 0) << result.err;
  const Json stats = LastLine(result.err);
  EXPECT_EQ(stats["rebases"], 0);
  EXPECT_EQ(stats["run"]["positions"], "original");
  EXPECT_NE(result.err.find("past the 64 positions that the model was trained on"),
            std::string::npos)
      << result.err;
  EXPECT_NE(result.err.find("original, without a limit"), std::string::npos);
}

TEST(Positions, ALimitBeyondTheTrainedContextWarns) {
  const ProgramResult result = RunProgram(Generate({"--position-limit", "100"}));
  ASSERT_EQ(result.exit_status, 0) << result.err;
  EXPECT_NE(result.err.find("past the 64 positions that the model was trained on"),
            std::string::npos)
      << result.err;
}

TEST(Positions, TheTraceSaysWhichCutsRebased) {
  const std::string path = WriteTemp(GgufBytes{}, "positions.jsonl");
  const ProgramResult result =
      RunProgram(Generate({"--position-limit", "32", "--trace", path, "-q"}));
  ASSERT_EQ(result.exit_status, 0) << result.err;
  std::ifstream in(path);
  std::vector<int64_t> rebased;
  for (std::string text; std::getline(in, text);) {
    const Json line = Json::parse(text);
    if (line["type"] == "header") {
      EXPECT_EQ(line["positions"], "auto");
      EXPECT_EQ(line["position_limit"], 32);
    }
    if (line["type"] == "cut" && line["rebased"]) rebased.push_back(line["tokens_seen"]);
  }
  ASSERT_GE(rebased.size(), 4u);
  // 16 slots and two chunks.
  EXPECT_EQ(std::vector(rebased.begin(), rebased.begin() + 3), (std::vector<int64_t>{32, 48, 64}));
  const ProgramResult page = RunProgram({"inspect", path, "-o", path + ".html"});
  EXPECT_EQ(page.exit_status, 0) << page.err;
  std::ifstream html(path + ".html");
  const std::string text(std::istreambuf_iterator<char>(html), {});
  EXPECT_NE(text.find("\"n_rebase\":" + std::to_string(rebased.size())), std::string::npos);
}

TEST(Positions, ContradictionsAreRefused) {
  EXPECT_REFUSED_BY_PROGRAM(
      RunProgram(Generate({"--positions", "original", "--position-limit", "64"})), 2,
      "--position-limit: contradicts --positions original");
  EXPECT_REFUSED_BY_PROGRAM(RunProgram(Generate({"--position-limit", "23"})), 2,
                            "--position-limit: expected at least J + h = 24, found 23");
  EXPECT_REFUSED_BY_PROGRAM(
      RunProgram({"run", "-m", Spell(), "-p", "a", "--policy", "none", "--position-limit", "900"}),
      2, "--position-limit: policy 'none' does not take it");
}

TEST(Positions, ThePlanNamesTheLimit) {
  const auto plan = [](std::vector<std::string> more) {
    std::vector<std::string> arguments = {"plan",     "-m", Spell(),   "--json",
                                          "--budget", "16", "--chunk", "8"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const ProgramResult result = RunProgram(arguments);
    EXPECT_EQ(result.exit_status, 0) << result.err;
    return Json::parse(result.out);
  };
  EXPECT_EQ(plan({})["positions"], "auto");
  EXPECT_EQ(plan({})["position_limit"], 64);
  EXPECT_EQ(plan({"--position-limit", "48"})["position_limit"], 48);
  EXPECT_EQ(plan({"--positions", "original"})["positions"], "original");
  EXPECT_EQ(plan({"--positions", "original"})["position_limit"], 0);
  const ProgramResult text = RunProgram({"plan", "-m", Spell(), "--budget", "16"});
  EXPECT_NE(text.out.find("positions auto, below 64\n"), std::string::npos) << text.out;
}

}  // namespace
}  // namespace kvbound::testing
