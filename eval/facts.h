#ifndef KVBOUND_EVAL_FACTS_H_
#define KVBOUND_EVAL_FACTS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "eval/contender.h"
#include "eval/fact_items.h"
#include "kvbound/status.h"

namespace kvbound::eval {

struct FactOptions {
  int32_t chunk = 64;
  int32_t n_predict = 16;  // tokens of an answer, or fewer if the model ends it
  int32_t n_threads = 0;   // 0: as EngineOptions
};

// One cache's answers, in the order of the items.
struct FactResult {
  std::string label;
  std::vector<std::string> texts;
  std::vector<uint8_t> right;  // 1: the text holds the answer
  double seconds = 0;

  int64_t n_right() const;
};

// Whether `text` holds `answer` as a word of its own, capitals and small letters alike (ASCII).
bool HoldsAnswer(std::string_view text, std::string_view answer);

// Prompts read so far by all engines, and in all; false stops the measurement.
using FactProgress = std::function<bool(int64_t done, int64_t total)>;

// Asks every item of the uncut cache (first result, "uncut") and of every policy's: reads the
// prompt in chunks with a cut after each, then decodes greedily. Deterministic for a given number
// of threads. InvalidArgument: no items; else the errors of Engine::Create with the policy's label.
// Cancelled by `progress`.
Result<std::vector<FactResult>> MeasureFacts(std::shared_ptr<const Model> model,
                                             const std::vector<FactItem>& items,
                                             const std::vector<FidelityPolicy>& policies,
                                             const FactOptions& options,
                                             const FactProgress& progress = nullptr);

}  // namespace kvbound::eval

#endif  // KVBOUND_EVAL_FACTS_H_
