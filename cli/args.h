#ifndef KVBOUND_CLI_ARGS_H_
#define KVBOUND_CLI_ARGS_H_

#include <CLI/App.hpp>
#include <cstdint>
#include <optional>
#include <string>

#include "kvbound/options.h"
#include "kvbound/policy.h"
#include "kvbound/status.h"

// The options that `run` and `plan` share, declared once.
namespace kvbound::cli {

struct ModelArgs {
  std::string path;
  ModelOptions options;
};

// As typed: what was not given stays open.
struct CacheArgs {
  std::optional<int32_t> budget;
  std::optional<uint64_t> budget_bytes;
  std::optional<int32_t> chunk;
  KvType type_k = KvType::kF16;
  KvType type_v = KvType::kF16;
  AttentionPath attention = AttentionPath::kAuto;
  PositionMode positions = PositionMode::kAuto;
  std::optional<int32_t> position_limit;
  int32_t n_threads = 0;

  std::string policy = PolicyOptions().name;
  std::optional<std::string> preset;
  std::optional<uint64_t> policy_seed;
  std::optional<Granularity> granularity;
  std::optional<CounterCausalOptions::Reading> reading;
  std::optional<CounterCausalOptions::Neutral> neutral;
  std::optional<CounterCausalOptions::Align> align;
  std::optional<CounterCausalOptions::Score> score;
  std::optional<int32_t> min_gap;
  bool ffn = false;
  std::string gates;
  std::optional<RetentionOptions::Score> retention_score;
  std::optional<int64_t> horizon;
  std::optional<RetentionOptions::Age> age;
  std::optional<RetentionOptions::Cadence> cadence;

  ProtectionOptions protection;
};

// The same with defaults filled in and contradictions refused.
struct CacheSetup {
  EngineOptions engine;
  SessionOptions session;
  std::optional<uint64_t> budget_bytes;  // engine.budget follows from it (Complete)
  std::string gates;                     // file of engine.gates (Complete)
  bool fixed_chunk = false;
};

void AddModelOptions(CLI::App* app, ModelArgs* args);
void AddCacheOptions(CLI::App* app, CacheArgs* args);

// InvalidArgument, naming the option: one that the policy does not take, two that contradict.
Result<CacheSetup> ResolveCache(const CacheArgs& args);

// What takes files: loads the gates, and replaces the budget and chunk by what fits
// setup->budget_bytes, each if asked for.
Status Complete(const ModelArgs& model, CacheSetup* setup);

}  // namespace kvbound::cli

#endif  // KVBOUND_CLI_ARGS_H_
