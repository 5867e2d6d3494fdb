#ifndef KVBOUND_CLI_TRACE_READER_H_
#define KVBOUND_CLI_TRACE_READER_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "kvbound/policy.h"
#include "kvbound/status.h"

namespace kvbound::cli {

// One conversation of a trace: what came, and when each set dropped it. Without a reset a trace
// has one.
struct TracedRun {
  std::vector<int32_t> tokens;             // [n_token]
  std::vector<nlohmann::json> texts;       // [n_token]: a string, an array of bytes, or null
  std::vector<int64_t> tokens_seen;        // [n_cut], ascending
  std::vector<int32_t> n_kept;             // [n_cut]
  int32_t n_rebase = 0;                    // cuts that moved the cache back to the first positions
  std::vector<std::vector<int32_t>> gone;  // [n_set][n_token]: cut that dropped it, or kHeld
  // [n_layer * n_kv_head][n_token]; NaN where no cut has told it. Empty without gates.
  std::vector<std::vector<float>> log_beta;

  static constexpr int32_t kHeld = INT32_MAX;  // until the end

  int64_t n_token() const { return static_cast<int64_t>(tokens.size()); }
  int32_t n_cut() const { return static_cast<int32_t>(tokens_seen.size()); }
};

// A trace as `kvbound run --trace` writes it (docs/trace.md), formats 1 to 3.
struct TraceFile {
  nlohmann::ordered_json header;
  Granularity granularity = Granularity::kShared;
  int32_t n_layer = 0;
  int32_t n_kv_head = 0;
  int32_t n_set = 0;
  bool ended = false;           // has the last line of a finished run
  std::vector<TracedRun> runs;  // at least one

  // The set that decides for a head.
  int32_t SetOf(int32_t layer, int32_t kv_head) const;
};

// Reads a whole trace, line by line. Io when it cannot be read; Corrupt, with the line's number,
// when it is no trace, has a line that is cut off, or contradicts itself. A trace whose run goes
// on or was killed has no last line and is no error.
Result<TraceFile> ReadTrace(const std::string& path);

}  // namespace kvbound::cli

#endif  // KVBOUND_CLI_TRACE_READER_H_
