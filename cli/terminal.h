#ifndef KVBOUND_CLI_TERMINAL_H_
#define KVBOUND_CLI_TERMINAL_H_

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kvbound/status.h"

// What goes in and out of the program besides files.
namespace kvbound::cli {

// Writes generated text to standard output, whole chunks at once.
class TextOutput {
 public:
  // False once nothing more can be written; later calls do nothing.
  bool Write(std::string_view text);

  // The reader went away (a pipe was closed): no error.
  bool closed() const { return closed_; }
  const Status& status() const { return status_; }
  bool ends_with_newline() const { return last_ == '\n'; }

 private:
  bool closed_ = false;
  char last_ = '\n';
  Status status_;
};

// The bar that shows on a terminal how far a long prompt has been read.
class ProgressBar {
 public:
  // Draws nothing unless `enabled` and standard error is a terminal.
  explicit ProgressBar(bool enabled);
  ~ProgressBar();

  void Update(int64_t done, int64_t total);

 private:
  bool enabled_;
  bool drawn_ = false;
  std::chrono::steady_clock::time_point start_;
};

// Lines of standard input. Unlike std::getline it returns when a signal arrives.
class LineReader {
 public:
  // The next line without its end ("\n" or "\r\n"); nullopt at the end of the input or when
  // Interrupted().
  std::optional<std::string> Next();

 private:
  std::string buffer_;
  bool at_end_ = false;
};

// Rows of name and value, aligned, on standard error.
using Table = std::vector<std::pair<std::string, std::string>>;
void PrintTable(const Table& table);

}  // namespace kvbound::cli

#endif  // KVBOUND_CLI_TERMINAL_H_
