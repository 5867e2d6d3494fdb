#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "cli/program.h"
#include "testing/tiny_model.h"

// The command line alone: every option acts or is refused by name.
namespace kvbound::testing {
namespace {

const std::string& Model() {
  static const std::string path = MakeSpellingModel().Write();
  return path;
}

ProgramResult RunWith(std::vector<std::string> options) {
  options.insert(options.begin(), {"run", "-m", Model(), "-p", "a", "-n", "1", "--temp", "0"});
  return RunProgram(std::move(options));
}

TEST(Options, BadValuesNameOptionExpectedAndFound) {
  EXPECT_EQ(RunWith({"--budget", "1"}).err,
            "kvbound: --budget: expected a number of slots >= 2, found '1'\n");
  const std::vector<std::vector<std::string>> bad = {
      {"--budget", "many"},
      {"--chunk", "0"},
      {"--budget-bytes", "64 potatoes"},
      {"--policy", "lru"},
      {"--cache-type-k", "q5_0"},
      {"--cache-type-v", "f64"},
      {"--attention", "yes"},
      {"--threads", "0"},
      {"--top-p", "2"},
      {"--min-p", "-1"},
      {"--mirostat", "3"},
      {"--logit-bias", "5"},
      {"--seed", "-2"},
      {"--sinks", "-1"},
      {"--recent", "x"},
      {"--reading", "E"},
      {"--preset", "paper"},
      {"--repeat-penalty", "-1"},
      {"--logits-top", "0"},
      {"--stop", ""},
      {"--min-gap", "-1"},
      {"--retention-score", "max"},
      {"--age", "old"},
      {"--cadence", "1"},
      {"--horizon", "0"},
      {"--positions", "packed"},
      {"--position-limit", "1"},
      {"--position-limit", "639"},  // budget 512 + chunk 128
  };
  for (const auto& options : bad) {
    EXPECT_REFUSED_BY_PROGRAM(RunWith(options), 2, options[0] + ": ");
  }
}

TEST(Options, RepeatedUnknownOrMissing) {
  EXPECT_REFUSED_BY_PROGRAM(RunWith({"--budget", "8", "--budget", "9"}), 2, "--budget");
  EXPECT_REFUSED_BY_PROGRAM(RunWith({"--bugdet", "8"}), 2, "--bugdet");
  EXPECT_REFUSED_BY_PROGRAM(RunWith({"--budget"}), 2, "--budget");
  EXPECT_REFUSED_BY_PROGRAM(RunProgram({}), 2, "subcommand");
  EXPECT_REFUSED_BY_PROGRAM(RunProgram({"dance"}), 2, "dance");
  EXPECT_REFUSED_BY_PROGRAM(RunProgram({"run", "-p", "a"}), 2, "--model");
  EXPECT_REFUSED_BY_PROGRAM(RunProgram({"plan"}), 2, "--model");
  EXPECT_REFUSED_BY_PROGRAM(RunProgram({"run", "-m", Model()}), 2, "--prompt");
}

TEST(Options, WhatAPolicyDoesNotTake) {
  const std::vector<std::vector<std::string>> refused = {
      {"--reading", "A", "--policy", "counter-causal-fast"},
      {"--neutral", "bos", "--policy", "counter-causal", "--reading", "A"},
      {"--ffn", "--policy", "counter-causal"},
      {"--align", "published", "--policy", "window"},
      {"--score", "pmi", "--policy", "streaming"},
      {"--min-gap", "1", "--policy", "random"},
      {"--policy-seed", "1", "--policy", "window"},
      {"--granularity", "per_head", "--policy", "counter-causal"},
      {"--preset", "published", "--policy", "random"},
      {"--sinks", "1", "--policy", "none"},
      {"--recent", "1", "--policy", "none"},
      {"--pin-prompt", "--policy", "none"},
      {"--gates", "g.gguf", "--policy", "window"},
      {"--retention-score", "future", "--policy", "window"},
      {"--horizon", "9", "--policy", "retention"},
      {"--age", "code", "--policy", "random"},
      {"--cadence", "full", "--policy", "counter-causal"},
      {"--score", "pmi", "--policy", "retention"},
  };
  for (const auto& options : refused) {
    EXPECT_REFUSED_BY_PROGRAM(RunWith(options), 2, options[0] + ": ");
  }
}

TEST(Options, Contradictions) {
  const std::vector<std::vector<std::string>> refused = {
      {"--budget-bytes", "8MiB", "--budget", "8"},
      {"--sinks", "4", "--preset", "published"},
      {"--align", "aligned", "--preset", "published"},
      {"--ffn", "--preset", "published"},
      {"--age", "next", "--preset", "published", "--policy", "retention", "--gates", "g"},
      {"--cadence", "chunk", "--preset", "published", "--policy", "retention", "--gates", "g"},
      {"--retention-score", "future", "--preset", "published", "--policy", "retention", "--gates",
       "g"},
      {"--budget", "8", "--sinks", "4", "--recent", "4"},
      {
          "--file",
          "x",
      },
      {"--prompt-ids", "1"},
      {"--system-prompt", "x"},
      {"--chat-template", "chatml"},
      {"--prompt", "--chat"},
      {"--top-k", "5", "--mirostat", "2"},
      {"--mirostat-lr", "0.2"},
      {"--dry-base", "2"},
      {"--xtc-threshold", "0.2"},
      {"--quiet", "--verbose"},
      {"--logits-top", "3"},
  };
  for (auto options : refused) {
    const std::string named = options[0];
    if (named == "--prompt") options.erase(options.begin());
    EXPECT_REFUSED_BY_PROGRAM(RunWith(options), 2, named + ": ");
  }
}

TEST(Options, ValuesThatLookLikeOptionsOrLists) {
  const std::vector<std::string> start = {"run", "-q", "-m", Model(), "--temp", "0", "-n", "3"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), start.begin(), start.end());
    return RunProgram(std::move(more));
  };
  EXPECT_EQ(with({"-p", "-fa"}).out, "bcd") << "a prompt, not an option";
  EXPECT_EQ(with({"-p", "[a,a]a"}).out, "bcd");
  EXPECT_EQ(with({"-p", "a", "--stop", "[c,d]"}).out, "bcd") << "one stop string, not two";
  EXPECT_EQ(with({"-p", "a", "-r", "d", "-r", "c"}).out, "b");
  EXPECT_EQ(with({"-p", "x\\x61", "-e"}).out, "bcd");
  EXPECT_EQ(with({"-p", "a", "-ctk", "f32", "-ctv", "bf16", "-fa", "flash"}).out, "bcd");
}

TEST(Options, HelpAndLists) {
  const ProgramResult help = RunProgram({"--help"});
  EXPECT_EQ(help.exit_status, 0);
  for (const char* word : {"run", "plan", "policies", "--version"}) {
    EXPECT_NE(help.out.find(word), std::string::npos) << word;
  }
  const ProgramResult run_help = RunProgram({"run", "--help"});
  EXPECT_EQ(run_help.exit_status, 0);
  for (const char* word : {"--budget", "--trace", "Sampling:", "Protection", "-ctk", "Examples:"}) {
    EXPECT_NE(run_help.out.find(word), std::string::npos) << word;
  }
  EXPECT_EQ(RunProgram({"--version"}).out.rfind("kvbound ", 0), 0u);
  const ProgramResult policies = RunProgram({"policies"});
  EXPECT_EQ(policies.exit_status, 0);
  EXPECT_NE(policies.out.find("counter-causal-fast  arXiv 2607.27600"), std::string::npos);
  EXPECT_NE(RunProgram({"run", "--list-devices"}).out.find("cpu"), std::string::npos);
}

}  // namespace
}  // namespace kvbound::testing
