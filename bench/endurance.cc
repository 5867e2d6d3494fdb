// One long generation: neither speed nor memory may depend on how much was generated before; and
// an old cache beside a fresh one, in turn.
#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "generate/engine_impl.h"
#include "kvbound/gates.h"
#include "machine_common.h"
#include "ours_common.h"
#include "report_common.h"

namespace kvbound::bench {
namespace {

constexpr int kWindow = 1000;
constexpr double kMiB = 1 << 20;

// Decodes with a cache that has read `n_seen` tokens and one that has just been filled, in turn,
// 1,000 tokens each in slices; then times rebases.
void OldAgainstFresh(const std::shared_ptr<const Model>& model, EngineOptions options,
                     const std::vector<Token>& text) {
  constexpr int kSlice = 100;
  Ours old(model, options), fresh(model, options);
  const double start = Now();
  old.Feed(text);
  std::printf("\n%s: %zu tokens read in %.0f s\n", old.name().c_str(), text.size(), Now() - start);
  fresh.Feed(std::span(text).first(options.budget + options.chunk));
  Samples ratios, of_old, of_fresh;
  for (int i = 0; i < kWindow / kSlice; ++i) {
    const auto speed = [&](Ours& ours) {
      const double begin = Now();
      for (int n = 0; n < kSlice; ++n) ours.Step();
      return kSlice / (Now() - begin);
    };
    const double a = speed(old), b = speed(fresh);
    of_old.Add(a);
    of_fresh.Add(b);
    ratios.Add(a / b);
  }
  Samples rebase;
  for (int i = 0; i < 5; ++i) {
    old.Feed(std::span(text).first(2 * options.chunk));  // moves every key but the oldest
    Session::Impl& session = old.session().impl();
    const double begin = Now();
    session.engine.store->Rebase(session.seq);
    rebase.Add(1000 * (Now() - begin));
  }
  const int period =
      (old.engine().options().position_limit - options.budget) / options.chunk * options.chunk;
  std::printf("after %zu tokens %s tokens/s, after %d %s; %lld rebases\n", text.size(),
              of_old.Text().c_str(), options.budget + options.chunk, of_fresh.Text().c_str(),
              static_cast<long long>(old.session().stats().rebases));
  PrintTarget("decoding after " + std::to_string(text.size()) + " tokens / after the cache filled",
              ratios.Median(), 0.97);
  std::printf("one rebase: %s ms, every %d tokens\n", rebase.Text(2).c_str(), period);
  PrintTarget("rebases / time of generation, %",
              rebase.Median() / 10 / (period / of_fresh.Median()), 0.5, /*at_most=*/true);
}

void Run(int argc, char** argv) {
  const Arguments arguments(argc, argv,
                            {"model", "text", "threads", "budget", "chunk", "policy", "tokens",
                             "seen", "gates", "quick"});
  const int n_windows = arguments.Int("tokens", arguments.Has("quick") ? 4000 : 50000) / kWindow;
  if (n_windows < 3) Fail("--tokens: at least 3000");
  const std::string path = ModelPath(arguments);
  const auto model = LoadModel(path);
  EngineOptions options =
      EngineFor(arguments.Text("policy", "counter-causal-fast"), arguments.Int("budget", 512),
                arguments.Int("chunk", 128), arguments.Int("threads", 0));
  if (arguments.Has("gates")) options.gates = Must(Gates::Load(arguments.Text("gates", "")));
  if (arguments.Has("seen")) {
    PrintMachine(argc, argv, options.n_threads, /*with_bandwidth=*/false);
    return OldAgainstFresh(model, options,
                           TextTokens(*model, TextPath(arguments), arguments.Int("seen", 100000)));
  }
  Ours ours(model, options);
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
