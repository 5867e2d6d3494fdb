#ifndef KVBOUND_CLI_INSPECT_PAGE_H_
#define KVBOUND_CLI_INSPECT_PAGE_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "cli/trace_reader.h"

namespace kvbound::cli {

// Positions [first, end) of a run.
struct PositionRange {
  int64_t first = 0;
  int64_t end = 0;
};

// The last positions of a run for which a page stays below about 5 MB; all of them if they fit.
PositionRange LargestRange(const TraceFile& trace, const TracedRun& run);

// One HTML page with everything in it that shows `range` of trace.runs[n_run]. docs/inspect.md
// says what it shows. REQUIRES: a run with cuts, and a range inside it that is not empty.
std::string InspectPage(const TraceFile& trace, size_t n_run, PositionRange range);

// The parts of the page's data that are packed. The page's script has the inverse of each.

// Whole numbers from 0, in groups of three bits, the lowest first, in half bytes, the low half
// first; the fourth bit says that another group follows.
class NibbleWriter {
 public:
  void Append(uint32_t value);
  // The half of a last byte that is left is 0.
  const std::vector<uint8_t>& bytes() const { return bytes_; }

 private:
  std::vector<uint8_t> bytes_;
  bool half_ = false;
};

// RFC 4648, with padding.
std::string Base64(std::span<const uint8_t> bytes);

}  // namespace kvbound::cli

#endif  // KVBOUND_CLI_INSPECT_PAGE_H_
