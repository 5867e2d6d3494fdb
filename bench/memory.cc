// Resident memory while reading a long text, beyond the weights, against the plan made before.
#include <cstdio>
#include <string>
#include <vector>

#include "machine_common.h"
#include "model/loaded_model.h"
#include "ours_common.h"
#include "report_common.h"

namespace kvbound::bench {
namespace {

constexpr double kMiB = 1 << 20;
constexpr double kMarginMiB = 32;
constexpr double kMarginShare = 0.10;

void Run(int argc, char** argv) {
  const Arguments arguments(
      argc, argv, {"model", "text", "threads", "budget", "chunk", "policy", "tokens", "quick"});
  const int n_tokens = arguments.Int("tokens", arguments.Has("quick") ? 4000 : 30000);
  if (n_tokens < 1) Fail("--tokens: at least 1");
  const std::string path = ModelPath(arguments);
  const EngineOptions options =
      EngineFor(arguments.Text("policy", "counter-causal-fast"), arguments.Int("budget", 512),
                arguments.Int("chunk", 128), arguments.Int("threads", 0));
  const MemoryPlan plan = Must(PlanMemory(path, ModelOptions{}, options));
  const auto model = LoadModel(path);
  Ours ours(model, options);
  PrintMachine(argc, argv, ours.n_threads(), /*with_bandwidth=*/false);
  ours.Feed(TextTokens(*model, TextPath(arguments), n_tokens));

  const Resident resident = MeasureResident(path);
  // Weights that were rearranged or read are anonymous memory.
  const double mapped = resident.of_file / kMiB;
  double unmapped_weights = 0;
  for (const WeightBuffer& buffer : model->loaded().weights().buffers()) {
    if (buffer.name != "mapped") unmapped_weights += buffer.bytes / kMiB;
  }
  const double beyond = resident.peak / kMiB - mapped - unmapped_weights;
  const double planned = plan.total_without_weights_bytes() / kMiB;
  std::printf("%d tokens read, %s\n\n", n_tokens, ours.name().c_str());
  Table table({"MiB", ""});
  table.Add({"peak resident", Number(resident.peak / kMiB)});
  table.Add({"of these, mapped pages of the model file", Number(mapped)});
  table.Add({"of these, weights held in memory", Number(unmapped_weights)});
  table.Add({"left", Number(beyond)});
  table.Add({"plan without weights", Number(planned)});
  table.Print();
  PrintTarget("peak beyond the weights minus the plan, MiB", beyond - planned,
              kMarginShare * planned + kMarginMiB, /*at_most=*/true);
}

}  // namespace
}  // namespace kvbound::bench

int main(int argc, char** argv) { kvbound::bench::Run(argc, argv); }
