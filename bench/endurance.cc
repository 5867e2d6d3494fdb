// One long generation: neither speed nor memory may depend on how much was generated before.
#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "machine_common.h"
#include "ours_common.h"
#include "report_common.h"

namespace kvbound::bench {
namespace {

constexpr int kWindow = 1000;
constexpr double kMiB = 1 << 20;

void Run(int argc, char** argv) {
  const Arguments arguments(
      argc, argv, {"model", "text", "threads", "budget", "chunk", "policy", "tokens", "quick"});
  const int n_windows = arguments.Int("tokens", arguments.Has("quick") ? 4000 : 50000) / kWindow;
  if (n_windows < 3) Fail("--tokens: at least 3000");
  const std::string path = ModelPath(arguments);
  const auto model = LoadModel(path);
  Ours ours(model,
            EngineFor(arguments.Text("policy", "counter-causal-fast"), arguments.Int("budget", 512),
                      arguments.Int("chunk", 128), arguments.Int("threads", 0)));
  PrintMachine(argc, argv, ours.n_threads());
  const std::vector<Token> text = TextTokens(*model, TextPath(arguments), 64);
  ours.Feed(text);
  if (!ResetPeak()) std::printf("peak memory includes the measurement of the bandwidth\n");

  std::vector<double> speeds;
  double peak_early = 0;
  for (int w = 0; w < n_windows; ++w) {
    const double start = Now();
    for (int i = 0; i < kWindow; ++i) ours.Step();
    speeds.push_back(kWindow / (Now() - start));
    if (w == 1) peak_early = MeasureResident(path).peak / kMiB;
  }
  const double peak = MeasureResident(path).peak / kMiB;
  std::printf("%d tokens generated, %s\n\n", n_windows * kWindow, ours.name().c_str());
  Table table({"tokens", "tokens/s"});
  const int step = std::max(1, n_windows / 10);
  for (int w = 1; w < n_windows; w += step) {
    table.Add(
        {std::to_string(w * kWindow) + "-" + std::to_string((w + 1) * kWindow), Number(speeds[w])});
  }
  table.Add({"last 1000", Number(speeds.back())});
  table.Print();
  std::printf("peak resident memory: %.1f MiB after 2000 tokens, %.1f MiB at the end\n", peak_early,
              peak);
  PrintTarget("last 1000 / tokens 1000..2000", speeds.back() / speeds[1], 0.95);
  PrintTarget("peak at the end / peak after 2000", peak / peak_early, 1.01, /*at_most=*/true);
}

}  // namespace
}  // namespace kvbound::bench

int main(int argc, char** argv) { kvbound::bench::Run(argc, argv); }
