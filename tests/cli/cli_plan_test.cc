#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/program.h"
#include "testing/tiny_model.h"

namespace kvbound::testing {
namespace {

using Json = nlohmann::json;

const std::string& Spell() {
  static const std::string path = MakeSpellingModel().Write();
  return path;
}

Json PlanJson(std::vector<std::string> options) {
  options.insert(options.begin(), {"plan", "--json", "-m", Spell()});
  const ProgramResult result = RunProgram(std::move(options));
  EXPECT_EQ(result.exit_status, 0) << result.err;
  return result.exit_status == 0 ? Json::parse(result.out) : Json();
}

TEST(Plan, PartsAddUp) {
  const Json plan = PlanJson({"--budget", "64", "--chunk", "16"});
  EXPECT_EQ(plan["budget"], 64);
  EXPECT_EQ(plan["chunk"], 16);
  EXPECT_EQ(plan["max_slots"], 80);
  uint64_t sum = 0;
  uint64_t weights = 0;
  for (const Json& part : plan["parts"]) {
    sum += part["bytes"].get<uint64_t>();
    if (part["name"] == "weights") weights = part["bytes"];
    EXPECT_NE(part["formula"], "");
  }
  EXPECT_GT(weights, 0u);
  EXPECT_EQ(plan["total_bytes"], sum);
  EXPECT_EQ(plan["total_without_weights_bytes"], sum - weights);
}

TEST(Plan, ChunkIsAQuarterOfTheBudgetUnlessGiven) {
  EXPECT_EQ(PlanJson({})["budget"], 512);
  EXPECT_EQ(PlanJson({})["chunk"], 128);
  EXPECT_EQ(PlanJson({"--budget", "100"})["chunk"], 25);
  EXPECT_EQ(PlanJson({"--budget", "3"})["chunk"], 1);
}

TEST(Plan, BudgetFromBytesIsTheLargestThatFits) {
  const uint64_t limit = 4u << 20;
  const Json plan = PlanJson({"--budget-bytes", "4MiB"});
  const int budget = plan["budget"];
  EXPECT_LE(plan["total_without_weights_bytes"].get<uint64_t>(), limit);
  EXPECT_EQ(plan["chunk"], std::max(budget / 4, 1));
  const Json more = PlanJson({"--budget", std::to_string(budget + 1), "--chunk",
                              std::to_string(std::max((budget + 1) / 4, 1))});
  EXPECT_GT(more["total_without_weights_bytes"].get<uint64_t>(), limit);
  EXPECT_EQ(PlanJson({"--budget-bytes", "4MiB", "--chunk", "8"})["chunk"], 8);
  EXPECT_REFUSED_BY_PROGRAM(RunProgram({"plan", "-m", Spell(), "--budget-bytes", "1KiB"}), 1, "");
}

TEST(Plan, SequencesAndTable) {
  EXPECT_EQ(PlanJson({"-np", "3"})["n_seq"], 3);
  const ProgramResult table = RunProgram({"plan", "-m", Spell()});
  EXPECT_EQ(table.exit_status, 0);
  for (const char* word : {"formula", "weights", "total without weights"}) {
    EXPECT_NE(table.out.find(word), std::string::npos) << table.out;
  }
}

// Every pair of types on head sizes that blocks divide and do not divide.
TEST(Plan, EveryPairOfTypesWorksOrIsRefusedByName) {
  const std::vector<std::string> types = {"f32", "f16", "bf16", "q8_0", "q4_0"};
  TinyModelOptions head_8;
  TinyModelOptions head_16;
  head_16.name = "head16";
  head_16.head_dim = 16;
  SpellingOptions head_64;
  head_64.n_embd = 128;
  const struct {
    int head_dim;
    std::string path;
    bool spells;
  } models[] = {{8, MakeTinyModel(head_8).Write(), false},
                {16, MakeTinyModel(head_16).Write(), false},
                {32, Spell(), true},
                {64, MakeSpellingModel(head_64).Write(), true}};
  for (const auto& model : models) {
    for (const std::string& k : types) {
      for (const std::string& v : types) {
        const bool blocks = k[0] == 'q' || v[0] == 'q';
        const std::vector<std::string> options = {"-m", model.path, "--budget", "32",   "--chunk",
                                                  "16", "-ctk",     k,          "-ctv", v};
        std::vector<std::string> plan = options;
        plan.insert(plan.begin(), {"plan", "--json"});
        const ProgramResult planned = RunProgram(plan);
        if (blocks && model.head_dim % 32 != 0) {
          const std::string refused_type = k[0] == 'q' ? k : v;
          EXPECT_REFUSED_BY_PROGRAM(planned, 1, refused_type);
          EXPECT_NE(planned.err.find(std::to_string(model.head_dim)), std::string::npos);
          EXPECT_NE(planned.err.find("32"), std::string::npos);
          continue;
        }
        EXPECT_EQ(planned.exit_status, 0) << k << "/" << v << ": " << planned.err;
        if (!model.spells) continue;
        std::vector<std::string> run = options;
        run.insert(run.begin(),
                   {"run", "-q", "-p", "a", "-n", "60", "--temp", "0", "--stats", "-"});
        const ProgramResult ran = RunProgram(run);
        ASSERT_EQ(ran.exit_status, 0) << k << "/" << v << ": " << ran.err;
        EXPECT_EQ(ran.out.substr(0, 31), "bcdefghijklmnopqrstuvwxyz\xF0\x9F\x98\xB8\na") << k << v;
        const Json stats = Json::parse(ran.err);
        EXPECT_EQ(stats["total_bytes"], stats["total_bytes_planned"]) << k << "/" << v;
        EXPECT_GT(stats["tokens_evicted"], 0);
      }
    }
  }
}

TEST(Plan, RefusesWhatARunWouldRefuse) {
  EXPECT_REFUSED_BY_PROGRAM(RunProgram({"plan", "-m", "/nowhere/m.gguf"}), 1, "/nowhere/m.gguf");
  EXPECT_REFUSED_BY_PROGRAM(RunProgram({"plan", "-m", Spell(), "--budget", "2147483647"}), 1, "");
  EXPECT_REFUSED_BY_PROGRAM(RunProgram({"plan", "-m", Spell(), "-np", "0"}), 2, "--parallel");
}

}  // namespace
}  // namespace kvbound::testing
