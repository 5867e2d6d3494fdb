#ifndef KVBOUND_CLI_CHAT_H_
#define KVBOUND_CLI_CHAT_H_

#include "cli/run_args.h"
#include "cli/runner.h"
#include "kvbound/status.h"

namespace kvbound::cli {

// Converses until the input ends, /quit or an interrupt: each line of standard input is a message,
// each reply is streamed. All turns share the runner's bounded cache.
Status Chat(Runner& runner, const RunArgs& args);

}  // namespace kvbound::cli

#endif  // KVBOUND_CLI_CHAT_H_
