#ifndef KVBOUND_CLI_REPORT_H_
#define KVBOUND_CLI_REPORT_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "cli/terminal.h"
#include "kvbound/generate.h"
#include "kvbound/session.h"

namespace kvbound::cli {

// What the program itself measures of a run.
struct RunCounters {
  double prompt_seconds = 0;    // wall time of all Feed calls, scoring included
  double generate_seconds = 0;  // wall time of all generations: passes, sampling, scoring, output
  int64_t n_generated = 0;      // tokens sampled
  uint32_t seed = 0;
  int n_turns = 0;
  FinishReason finish = FinishReason::kLength;
  std::string threads_reason;
};

// "stop token", "stop string", "length", "cancelled".
std::string FinishName(FinishReason reason);

// Model, policy, options and shapes of a run.
nlohmann::ordered_json RunRecord(const Engine& engine, const Session& session);

// The statistics at the end of a run, with RunRecord's fields under "run".
nlohmann::ordered_json StatsRecord(const Engine& engine, const Session& session,
                                   const RunCounters& counters);

// The same for people.
Table StatsTable(const Engine& engine, const Session& session, const RunCounters& counters);

// "auto, below 8,192" or "original, without a limit".
std::string PositionsText(PositionMode mode, int32_t limit);

// One line of JSON; bytes that are no UTF-8 become U+FFFD.
std::string Dump(const nlohmann::ordered_json& json);

}  // namespace kvbound::cli

#endif  // KVBOUND_CLI_REPORT_H_
