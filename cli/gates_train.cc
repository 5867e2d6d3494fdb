#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <vector>

#include "cli/gates.h"
#include "cli/logging.h"
#include "cli/math_environment.h"
#include "src/base/strings.h"

namespace kvbound::cli {
namespace {

constexpr const char* kProgram = "kvbound-train";

// Training needs libtorch, which nothing else here does: it is a program of its own beside this
// one.
int StartTrainer(const std::vector<std::string>& arguments) {
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  const std::string program = (self.parent_path() / kProgram).string();
  if (error || access(program.c_str(), X_OK) != 0) {
    PrintError(StrCat("gates train: ", program,
                      " is missing: libtorch was not found when kvbound was built (Debian: "
                      "libtorch-dev)"));
    return kExitFailure;
  }
  std::vector<char*> argv = {const_cast<char*>(kProgram)};
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  SetMathEnvironment();  // else it would start twice
  execv(program.c_str(), argv.data());
  PrintError(StrCat(program, ": cannot be started: ", std::strerror(errno)));
  return kExitFailure;
}

}  // namespace

Command AddGatesTrain(CLI::App* gates) {
  CLI::App* train = gates->add_subcommand("train", "Train gates for a model on text");
  train->set_help_flag();  // the trainer's own help
  train->prefix_command();
  return {train, [train] { return StartTrainer(train->remaining()); }};
}

}  // namespace kvbound::cli
