#ifndef KVBOUND_CLI_LOGGING_H_
#define KVBOUND_CLI_LOGGING_H_

#include <string_view>

#include "kvbound/log.h"
#include "kvbound/status.h"

namespace kvbound::cli {

// Sends log lines of the library and the program at `least` and above to standard error.
void StartLogging(LogLevel least);

// A line of the program itself.
void Say(LogLevel level, std::string_view line);

// "kvbound: MESSAGE" on standard error, whatever the log level.
void PrintError(std::string_view message);

}  // namespace kvbound::cli

#endif  // KVBOUND_CLI_LOGGING_H_
