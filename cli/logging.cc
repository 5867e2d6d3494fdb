#include "cli/logging.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <cstdio>

namespace kvbound::cli {
namespace {

spdlog::level::level_enum SpdlogLevel(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarning:
      return spdlog::level::warn;
    case LogLevel::kError:
      return spdlog::level::err;
  }
  return spdlog::level::err;
}

}  // namespace

void StartLogging(LogLevel least) {
  auto logger = spdlog::stderr_color_mt("kvbound");
  logger->set_pattern("%n: %^%l%$: %v");
  logger->set_level(SpdlogLevel(least));
  spdlog::set_default_logger(logger);
  SetLogSink([logger](LogLevel level, std::string_view line) {
    logger->log(SpdlogLevel(level), "{}", line);
  });
}

void Say(LogLevel level, std::string_view line) {
  spdlog::default_logger()->log(SpdlogLevel(level), "{}", line);
}

void PrintError(std::string_view message) {
  std::fprintf(stderr, "kvbound: %.*s\n", static_cast<int>(message.size()), message.data());
}

}  // namespace kvbound::cli
