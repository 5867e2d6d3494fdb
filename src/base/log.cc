#include "base/log.h"

#include <mutex>
#include <utility>

namespace kvbound {
namespace {

struct SinkHolder {
  std::mutex mutex;
  LogSink sink;
};

SinkHolder& Holder() {
  static SinkHolder* holder = new SinkHolder;  // never destroyed: loggers outlive static objects
  return *holder;
}

}  // namespace

void SetLogSink(LogSink sink) {
  std::lock_guard lock(Holder().mutex);
  Holder().sink = std::move(sink);
}

void Log(LogLevel level, std::string_view line) {
  std::lock_guard lock(Holder().mutex);
  if (Holder().sink) Holder().sink(level, line);
}

}  // namespace kvbound
