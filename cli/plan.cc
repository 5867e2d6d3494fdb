#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "cli/args.h"
#include "cli/commands.h"
#include "cli/logging.h"
#include "cli/options.h"
#include "cli/report.h"
#include "kvbound/memory.h"

namespace kvbound::cli {
namespace {

struct PlanArgs {
  ModelArgs model;
  CacheArgs cache;
  int32_t n_seq = 1;
  bool json = false;
};

nlohmann::ordered_json PlanRecord(const PlanArgs& args, const EngineOptions& engine,
                                  const MemoryPlan& plan) {
  nlohmann::ordered_json parts = nlohmann::ordered_json::array();
  for (const MemoryPart& part : plan.parts) {
    parts.push_back({{"name", part.name}, {"formula", part.formula}, {"bytes", part.bytes}});
  }
  return {{"model", args.model.path},
          {"policy", engine.policy.name},
          {"budget", engine.budget},
          {"chunk", engine.chunk},
          {"max_slots", int64_t{engine.budget} + engine.chunk},
          {"n_seq", engine.n_seq},
          {"type_k", KvTypeName(engine.type_k)},
          {"type_v", KvTypeName(engine.type_v)},
          {"positions", PositionModeName(engine.positions)},
          {"position_limit", plan.position_limit},
          {"parts", parts},
          {"total_bytes", plan.total_bytes()},
          {"total_without_weights_bytes", plan.total_without_weights_bytes()}};
}

void PrintRow(size_t width, const std::string& name, uint64_t bytes, const std::string& formula) {
  const std::string exact = Grouped(static_cast<int64_t>(bytes));
  std::printf("  %-*s %12s %18s  %s\n", static_cast<int>(width), name.c_str(),
              HumanBytes(bytes).c_str(), exact.c_str(), formula.c_str());
}

void PrintPlan(const EngineOptions& engine, const MemoryPlan& plan) {
  std::printf("policy %s, budget %d, chunk %d, %d %s: at most %s slots per kv_head\n",
              engine.policy.name.c_str(), engine.budget, engine.chunk, engine.n_seq,
              engine.n_seq == 1 ? "sequence" : "sequences",
              Grouped(int64_t{engine.budget} + engine.chunk).c_str());
  std::printf("positions %s\n\n", PositionsText(engine.positions, plan.position_limit).c_str());
  const std::string total = "total without weights";
  size_t width = total.size();
  for (const MemoryPart& part : plan.parts) width = std::max(width, part.name.size());
  std::printf("  %-*s %12s %18s  formula\n", static_cast<int>(width), "part", "size", "bytes");
  for (const MemoryPart& part : plan.parts) PrintRow(width, part.name, part.bytes, part.formula);
  PrintRow(width, "total", plan.total_bytes(), "");
  PrintRow(width, total, plan.total_without_weights_bytes(), "");
}

int Fail(const Status& status, int exit_status) {
  PrintError(status.message());
  return exit_status;
}

int Plan(const PlanArgs& args) {
  StartLogging(LogLevel::kWarning);
  if (args.model.path.empty()) {
    return Fail(InvalidArgument("--model: expected a file, found none"), kExitUsage);
  }
  Result<CacheSetup> setup = ResolveCache(args.cache);
  if (!setup.ok()) return Fail(setup.status(), kExitUsage);
  setup->engine.n_seq = args.n_seq;
  if (Status fitted = Complete(args.model, &*setup); !fitted.ok())
    return Fail(fitted, kExitFailure);
  const Result<MemoryPlan> plan = PlanMemory(args.model.path, args.model.options, setup->engine);
  if (!plan.ok()) return Fail(plan.status(), kExitFailure);
  if (args.json) {
    std::printf("%s\n", Dump(PlanRecord(args, setup->engine, *plan)).c_str());
  } else {
    PrintPlan(setup->engine, *plan);
  }
  return std::fflush(stdout) == 0 ? kExitOk : Fail(IoError("standard output"), kExitFailure);
}

}  // namespace

Command AddPlan(CLI::App* app) {
  CLI::App* plan = app->add_subcommand("plan", "Every byte of a run, before a weight is loaded");
  auto args = std::make_shared<PlanArgs>();
  AddModelOptions(plan, &args->model);
  AddCacheOptions(plan, &args->cache);
  AddInt(plan, "--parallel", &args->n_seq, {"a number of sequences", 1, 4096},
         "-np: sequences, each with a budget of its own (default 1)");
  plan->add_flag("--json", args->json, "Print one JSON object");
  GroupNewOptions(plan, "Plan");
  return {plan, [args] { return Plan(*args); }};
}

}  // namespace kvbound::cli
