#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "cli/program.h"
#include "testing/tiny_model.h"

namespace kvbound::testing {
namespace {

std::string Spell() { return MakeSpellingModel().Write(); }

std::vector<std::string> Endless(const std::string& model) {
  return {"run", "-m", model, "-p", "a", "--temp", "0", "--budget", "16", "--chunk", "4"};
}

bool HasText(const ProgramResult& result) { return result.out.size() > 100; }

TEST(Signals, AnInterruptEndsWithTheStatistics) {
  for (const int signal : {SIGINT, SIGTERM}) {
    Program program(Endless(Spell()));
    program.ReadUntil(HasText);
    kill(program.pid(), signal);
    const ProgramResult result = program.Wait();
    EXPECT_EQ(result.exit_status, 130) << result.err;
    EXPECT_NE(result.err.find("tokens seen"), std::string::npos);
    EXPECT_NE(result.err.find("cancelled"), std::string::npos);
    EXPECT_EQ(result.out.rfind("bcdefghijklmnopqrstuvwxyz", 0), 0u);
  }
}

TEST(Signals, AClosedReaderEndsQuietly) {
  Program program(Endless(Spell()));
  program.ReadUntil(HasText);
  program.CloseOutput();
  const ProgramResult result = program.Wait();
  EXPECT_EQ(result.exit_status, 0);
  EXPECT_EQ(result.err.find("error"), std::string::npos) << result.err;
}

TEST(Signals, AModelThatIsReplacedOrRemovedChangesNothing) {
  const std::string model = Spell();
  Program program(Endless(model));
  program.ReadUntil(HasText);
  std::filesystem::remove(model);
  program.ReadUntil([](const ProgramResult& r) { return r.out.size() > 2000; });
  kill(program.pid(), SIGINT);
  EXPECT_EQ(program.Wait().exit_status, 130);
}

// Reading weights that are no longer there must never give zeros or a core dump.
TEST(Signals, AModelThatIsCutShortIsNamed) {
  SpellingOptions options;
  options.n_embd = 512;  // more than the pages that the kernel reads ahead and keeps
  const std::string model = MakeSpellingModel(options).Write();
  std::vector<std::string> arguments = Endless(model);
  arguments.push_back("--no-repack");
  Program program(arguments);
  program.ReadUntil(HasText);
  std::filesystem::resize_file(model, 4096);
  const ProgramResult result = program.Wait();
  EXPECT_EQ(result.exit_status, 1) << result.signal;
  EXPECT_NE(result.err.find(model + " changed while in use"), std::string::npos) << result.err;
}

TEST(Signals, AModelReadIntoMemoryMayBeCutShort) {
  const std::string model = Spell();
  std::vector<std::string> arguments = Endless(model);
  arguments.push_back("--no-mmap");
  Program program(arguments);
  program.ReadUntil(HasText);
  std::filesystem::resize_file(model, 4096);
  program.ReadUntil([](const ProgramResult& r) { return r.out.size() > 2000; });
  kill(program.pid(), SIGINT);
  EXPECT_EQ(program.Wait().exit_status, 130);
}

}  // namespace
}  // namespace kvbound::testing
