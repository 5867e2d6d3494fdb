#ifndef KVBOUND_CLI_COMMANDS_H_
#define KVBOUND_CLI_COMMANDS_H_

#include <CLI/App.hpp>
#include <functional>

// One file per subcommand. Each declares its options on a subcommand of `app` and returns what
// runs it after parsing, which returns the exit status.
namespace kvbound::cli {

inline constexpr int kExitOk = 0;
inline constexpr int kExitFailure = 1;        // model, file or run
inline constexpr int kExitUsage = 2;          // the command line
inline constexpr int kExitInterrupted = 130;  // SIGINT or SIGTERM

struct Command {
  CLI::App* app = nullptr;
  std::function<int()> run;
};

Command AddRun(CLI::App* app);
Command AddPlan(CLI::App* app);
Command AddPolicies(CLI::App* app);
Command AddGates(CLI::App* app);
Command AddInspect(CLI::App* app);

// The whole program: `kvbound ARGUMENTS`.
int Main(int argc, char** argv);

}  // namespace kvbound::cli

#endif  // KVBOUND_CLI_COMMANDS_H_
