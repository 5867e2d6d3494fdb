#include "cli/terminal.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "cli/signals.h"
#include "cli/values.h"

namespace kvbound::cli {

bool TextOutput::Write(std::string_view text) {
  if (closed_ || !status_.ok()) return false;
  if (!text.empty()) last_ = text.back();
  while (!text.empty()) {
    const ssize_t written = write(STDOUT_FILENO, text.data(), text.size());
    if (written >= 0) {
      text.remove_prefix(static_cast<size_t>(written));
    } else if (errno == EPIPE) {
      closed_ = true;
      return false;
    } else if (errno != EINTR) {
      status_ = IoError(std::string("standard output: ") + std::strerror(errno));
      return false;
    }
  }
  return true;
}

ProgressBar::ProgressBar(bool enabled)
    : enabled_(enabled && isatty(STDERR_FILENO)), start_(std::chrono::steady_clock::now()) {}

ProgressBar::~ProgressBar() {
  if (drawn_) std::fputs("\r\x1b[K", stderr);
}

void ProgressBar::Update(int64_t done, int64_t total) {
  if (!enabled_ || total <= 0) return;
  constexpr int kWidth = 30;
  const int filled = static_cast<int>(done * kWidth / total);
  const std::string bar = std::string(filled, '=') + std::string(kWidth - filled, ' ');
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start_;
  std::fprintf(stderr, "\rreading [%s] %s of %s tokens, %.0f tokens/s\x1b[K", bar.c_str(),
               Grouped(done).c_str(), Grouped(total).c_str(),
               static_cast<double>(done) / std::max(elapsed.count(), 1e-9));
  std::fflush(stderr);
  drawn_ = true;
}

std::optional<std::string> LineReader::Next() {
  while (!Interrupted()) {
    if (const size_t end = buffer_.find('\n'); end != std::string::npos) {
      std::string line = buffer_.substr(0, end);
      buffer_.erase(0, end + 1);
      if (!line.empty() && line.back() == '\r') line.pop_back();
      return line;
    }
    if (at_end_) {
      if (buffer_.empty()) return std::nullopt;
      return std::exchange(buffer_, {});
    }
    char block[4096];
    const ssize_t n = read(STDIN_FILENO, block, sizeof(block));
    if (n > 0) buffer_.append(block, static_cast<size_t>(n));
    if (n == 0 || (n < 0 && errno != EINTR)) at_end_ = true;
  }
  return std::nullopt;
}

void PrintTable(const Table& table) {
  size_t width = 0;
  for (const auto& row : table) width = std::max(width, row.first.size());
  for (const auto& [name, value] : table) {
    std::fprintf(stderr, "  %-*s  %s\n", static_cast<int>(width), name.c_str(), value.c_str());
  }
}

}  // namespace kvbound::cli
