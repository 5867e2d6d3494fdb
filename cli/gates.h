#ifndef KVBOUND_CLI_GATES_H_
#define KVBOUND_CLI_GATES_H_

#include <CLI/App.hpp>

#include "cli/commands.h"

// The subcommands of `kvbound gates`, one file each, as in commands.h.
namespace kvbound::cli {

Command AddGatesShow(CLI::App* gates);
Command AddGatesTrain(CLI::App* gates);

}  // namespace kvbound::cli

#endif  // KVBOUND_CLI_GATES_H_
