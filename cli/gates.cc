#include "cli/gates.h"

#include <vector>

#include "cli/gates_eval.h"
#include "cli/logging.h"

namespace kvbound::cli {

Command AddGates(CLI::App* app) {
  CLI::App* gates =
      app->add_subcommand("gates", "Retention gates: train them, look at them, measure them");
  const std::vector<Command> commands = {AddGatesShow(gates), AddGatesEval(gates),
                                         AddGatesTrain(gates)};
  return {gates, [commands] {
            for (const Command& command : commands) {
              if (command.app->parsed()) return command.run();
            }
            PrintError("gates: expected a subcommand, found none; see kvbound gates --help");
            return kExitUsage;
          }};
}

}  // namespace kvbound::cli
