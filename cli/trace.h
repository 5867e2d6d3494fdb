#ifndef KVBOUND_CLI_TRACE_H_
#define KVBOUND_CLI_TRACE_H_

#include <cstdint>
#include <fstream>
#include <memory>
#include <span>
#include <string>

#include "kvbound/session.h"
#include "kvbound/status.h"
#include "kvbound/tokenizer.h"

namespace kvbound::cli {

// The format that Trace writes. 2 added `new_texts` and `log_beta`, 3 `rebased`.
inline constexpr int kTraceFormat = 3;

// Writes what every cut kept and dropped, one JSON object a line. docs/trace.md has the format.
class Trace {
 public:
  // Creates or empties the file, before anything else runs.
  static Result<std::unique_ptr<Trace>> Open(const std::string& path);

  // The first line: everything needed to read the others.
  void WriteHeader(const Engine& engine, const Session& session);
  // REQUIRES: WriteHeader.
  void WriteCut(const CutEvent& event);
  // The conversation was cleared: positions start again at 0.
  void WriteReset();
  // The last line: what the cache holds now.
  void WriteEnd(const Session& session, int32_t n_kv_head);

  // The first write that failed, if any.
  const Status& status() const { return status_; }

 private:
  explicit Trace(std::string path) : path_(std::move(path)) {}
  void WriteLine(std::string line);
  // The ids and texts of the tokens at `slots`, which no line has told yet.
  void AppendNewTokens(std::span<const int32_t> slots, std::span<const Token> tokens,
                       std::string& line) const;

  std::string path_;
  std::ofstream out_;
  Status status_;
  std::shared_ptr<const Tokenizer> tokenizer_;  // since WriteHeader
  int64_t n_cuts_ = 0;
  int64_t n_written_ = 0;  // positions whose token has been written
};

}  // namespace kvbound::cli

#endif  // KVBOUND_CLI_TRACE_H_
