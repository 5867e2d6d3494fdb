#ifndef KVBOUND_BASE_LOG_H_
#define KVBOUND_BASE_LOG_H_

#include <string_view>

#include "kvbound/log.h"

namespace kvbound {

// Hands `line` to the process's sink (kvbound/log.h). Thread-safe.
void Log(LogLevel level, std::string_view line);

}  // namespace kvbound

#endif  // KVBOUND_BASE_LOG_H_
