#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "cli/program.h"
#include "kvbound/gates.h"
#include "testing/tiny_model.h"

namespace kvbound::train {
namespace {

namespace fs = std::filesystem;
using testing::Program;
using testing::ProgramResult;
using testing::RunProgram;

std::string ReadAll(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

class TrainProgramTest : public ::testing::Test {
 protected:
  TrainProgramTest() {
    const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
    folder_ = fs::path(::testing::TempDir()) / ("train_program_" + std::string(info->name()));
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    std::ofstream text(folder_ / "text.txt");
    for (int i = 0; i < 400; ++i) text << "some words about number " << i << ". ";
    model_ = testing::MakeTinyModel().Write();
  }
  ~TrainProgramTest() override { fs::remove_all(folder_); }

  std::vector<std::string> Arguments(const std::string& output,
                                     std::vector<std::string> more = {}) const {
    std::vector<std::string> all = {"-m",        model_,
                                    "--text",    (folder_ / "text.txt").string(),
                                    "-o",        (folder_ / output).string(),
                                    "--hidden",  "8",
                                    "--memory",  "8",
                                    "--seq-len", "64",
                                    "--type",    "f32",
                                    "-t",        "1"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }

  void WaitFor(const fs::path& file) const {
    for (int i = 0; i < 6000 && !fs::exists(file); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    ASSERT_TRUE(fs::exists(file));
  }

  fs::path folder_;
  std::string model_;
};

TEST_F(TrainProgramTest, KilledAndResumedGivesTheSameFile) {
  const std::vector<std::string> run = {"--tokens", "20k", "--checkpoint-every", "7"};
  ASSERT_EQ(RunProgram(Arguments("whole.gguf", run)).exit_status, 0);
  {
    Program killed(Arguments("out.gguf", run));
    WaitFor(folder_ / "out.gguf.ckpt");
    const int more = static_cast<int>(std::random_device()() % 100);
    std::this_thread::sleep_for(std::chrono::milliseconds(more));
  }  // killed here
  if (!fs::exists(folder_ / "out.gguf.ckpt"))
    GTEST_SKIP() << "skipped: it was faster than the kill";
  EXPECT_FALSE(fs::exists(folder_ / "out.gguf"));
  auto resume = run;
  resume.push_back("--resume");
  const ProgramResult result = RunProgram(Arguments("out.gguf", resume));
  ASSERT_EQ(result.exit_status, 0) << result.err;
  EXPECT_NE(result.err.find("resumed at step "), std::string::npos) << result.err;
  EXPECT_EQ(ReadAll(folder_ / "out.gguf"), ReadAll(folder_ / "whole.gguf"));
}

TEST_F(TrainProgramTest, InterruptWritesACheckpoint) {
  Program program(Arguments("out.gguf", {"--tokens", "100M"}));
  program.ReadUntil(
      [](const ProgramResult& r) { return r.err.find("step 1/") != std::string::npos; });
  kill(program.pid(), SIGINT);
  const ProgramResult result = program.Wait();
  EXPECT_EQ(result.exit_status, 130) << result.err;
  EXPECT_NE(result.err.find("--resume"), std::string::npos) << result.err;
  EXPECT_TRUE(fs::exists(folder_ / "out.gguf.ckpt"));
}

TEST_F(TrainProgramTest, WrongCommandLinesAreRefused) {
  EXPECT_REFUSED_BY_PROGRAM(RunProgram({}), 2, "--model");
  EXPECT_REFUSED_BY_PROGRAM(RunProgram({"-m", model_}), 2, "--text");
  EXPECT_REFUSED_BY_PROGRAM(RunProgram({"-m", model_, "--text", "x"}), 2, "--output");
  EXPECT_REFUSED_BY_PROGRAM(RunProgram(Arguments("o.gguf", {"--tokens", "many"})), 2,
                            "a number of tokens (500000, 500k, 2M)");
  EXPECT_REFUSED_BY_PROGRAM(RunProgram(Arguments("o.gguf", {"--init", "g.gguf"})), 2, "--hidden");
  EXPECT_REFUSED_BY_PROGRAM(RunProgram(Arguments("o.gguf", {"--rank", "1"})), 2, "--distributed");
  EXPECT_REFUSED_BY_PROGRAM(
      RunProgram({"-m", "absent.gguf", "--text", "x", "-o", (folder_ / "o.gguf").string()}), 1,
      "absent.gguf");
}

TEST_F(TrainProgramTest, TwoProcessesEqualOneWithTwiceTheAccumulation) {
  const std::vector<std::string> run = {"--tokens", "2560"};
  auto alone = run;
  alone.insert(alone.end(), {"--accumulate", "2"});
  ASSERT_EQ(RunProgram(Arguments("alone.gguf", alone)).exit_status, 0);
  const auto ranked = [&](const std::string& rank) {
    auto all = run;
    all.insert(all.end(), {"--distributed", "gloo", "--rank", rank, "--world-size", "2",
                           "--init-method", "file://" + (folder_ / "meet").string()});
    return Arguments("both.gguf", all);
  };
  Program second(ranked("1"));
  const ProgramResult first = RunProgram(ranked("0"));
  const ProgramResult other = second.Wait();
  if (first.err.find("has no Gloo") != std::string::npos) GTEST_SKIP() << "skipped: " << first.err;
  ASSERT_EQ(first.exit_status, 0) << first.err;
  ASSERT_EQ(other.exit_status, 0) << other.err;
  const auto a = Gates::Load((folder_ / "alone.gguf").string());
  const auto b = Gates::Load((folder_ / "both.gguf").string());
  ASSERT_TRUE(a.ok() && b.ok());
  EXPECT_EQ((*a)->parts().training.steps, (*b)->parts().training.steps);
  EXPECT_EQ((*a)->parts().training.tokens, (*b)->parts().training.tokens);
  for (int32_t layer = 0; layer < (*a)->n_layer(); ++layer) {
    const auto values = [&](const Gates& gates) {
      return gates.parts().layers[layer].hidden[0].weight.ToFloats();
    };
    const auto x = values(**a), y = values(**b);
    for (size_t i = 0; i < x.size(); ++i) ASSERT_NEAR(x[i], y[i], 1e-6f) << layer << " " << i;
  }
}

TEST_F(TrainProgramTest, ProcessesWithOtherOptionsAreRefused) {
  const auto ranked = [&](const std::string& rank, const std::string& seed) {
    return Arguments("both.gguf",
                     {"--distributed", "gloo", "--rank", rank, "--world-size", "2", "--seed", seed,
                      "--init-method", "file://" + (folder_ / "meet").string()});
  };
  Program second(ranked("1", "9"));
  const ProgramResult first = RunProgram(ranked("0", "10"));
  second.Wait();
  if (first.err.find("has no Gloo") != std::string::npos) GTEST_SKIP() << "skipped: " << first.err;
  EXPECT_EQ(first.exit_status, 1);
  EXPECT_NE(first.err.find("different options"), std::string::npos) << first.err;
}

}  // namespace
}  // namespace kvbound::train
