#ifndef KVBOUND_LOG_H_
#define KVBOUND_LOG_H_

#include <functional>
#include <string_view>

namespace kvbound {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

// Receives one line without a final newline. Called from any thread, one call at a time.
using LogSink = std::function<void(LogLevel, std::string_view line)>;

// The library never prints: what it has to say (and what ggml and llama say, at kDebug) goes to
// the one sink of the process. The default sink drops everything. Thread-safe.
void SetLogSink(LogSink sink);

}  // namespace kvbound

#endif  // KVBOUND_LOG_H_
