#ifndef KVBOUND_CLI_SIGNALS_H_
#define KVBOUND_CLI_SIGNALS_H_

#include <string>

namespace kvbound::cli {

// SIGINT and SIGTERM: the first one sets the flag that Interrupted() reads, the second one ends the
// process. SIGPIPE is ignored, so that writes report EPIPE. SIGBUS, which a mapped file raises when
// it is cut short: one message that names `model_path`, and exit status 1.
void InstallSignalHandlers(const std::string& model_path);

bool Interrupted();

}  // namespace kvbound::cli

#endif  // KVBOUND_CLI_SIGNALS_H_
