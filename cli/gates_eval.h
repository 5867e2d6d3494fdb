#ifndef KVBOUND_CLI_GATES_EVAL_H_
#define KVBOUND_CLI_GATES_EVAL_H_

#include <CLI/App.hpp>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "cli/args.h"
#include "cli/commands.h"
#include "eval/fact_items.h"
#include "eval/facts.h"
#include "eval/fidelity.h"
#include "kvbound/gates.h"

// `kvbound gates eval`: what bounded caches lose against the uncut one, with gates and without.
namespace kvbound::cli {

struct GatesEvalArgs {
  ModelArgs model;
  std::vector<std::string> gates;  // files
  std::vector<std::string> texts;  // files
  std::vector<int32_t> budgets = {128};
  std::vector<std::string> compare = {"streaming", "random"};
  RetentionOptions retention;
  std::optional<Granularity> granularity;  // of the gates' policy
  ProtectionOptions protection = {.sinks = 4, .recent = 0, .pin_prompt = false};
  int32_t chunk = 64;
  int32_t n_threads = 0;

  int32_t n_text = 24;
  int32_t length = 2048;
  int32_t skip = 512;
  bool facts = false;
  int32_t n_item = 32;
  int32_t item_length = 1500;
  uint64_t seed = 1;

  bool show = false;
  std::string json;
  bool no_progress = false;
};

// One probe's items and what each cache answered: uncut first, then as `policies`.
struct FactsReport {
  eval::FactProbe probe;
  std::vector<eval::FactItem> items;
  std::vector<eval::FactResult> results;
};

// All that was measured. `policies` are by budget, within it the gates' first; `fidelity` has one
// result for each, or none if no texts were asked for.
struct GatesEvalReport {
  ModelInfo model;
  std::vector<std::shared_ptr<const Gates>> gates;
  std::vector<eval::FidelityPolicy> policies;
  std::vector<eval::FidelityResult> fidelity;
  std::vector<FactsReport> facts;
};

Command AddGatesEval(CLI::App* gates);

// For people.
std::string GatesEvalText(const GatesEvalArgs& args, const GatesEvalReport& report);

// For programs: every figure of the text, and those of each text and item.
nlohmann::ordered_json GatesEvalRecord(const GatesEvalArgs& args, const GatesEvalReport& report);

}  // namespace kvbound::cli

#endif  // KVBOUND_CLI_GATES_EVAL_H_
