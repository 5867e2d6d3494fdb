// What one counter-causal scoring of n slots costs: all layers against the last layer only.
#include <cstdio>
#include <string>
#include <vector>

#include "machine_common.h"
#include "ours_common.h"
#include "report_common.h"

namespace kvbound::bench {
namespace {

constexpr int kChunk = 128;

// A session that holds n tokens, uncut.
class Scored {
 public:
  Scored(std::shared_ptr<const Model> model, const std::string& policy, int n, int n_threads,
         const std::vector<Token>& text)
      : ours_(std::move(model), EngineFor(policy, n, kChunk, n_threads)), scores_(n) {
    ours_.Feed({text.data(), static_cast<size_t>(n)});
  }

  double Milliseconds() {
    const double start = Now();
    Must(ours_.session().ScoreNow(CounterCausalOptions{}, scores_));
    return 1e3 * (Now() - start);
  }

  int n_threads() const { return ours_.n_threads(); }

 private:
  Ours ours_;
  std::vector<float> scores_;
};

void Run(int argc, char** argv) {
  const Arguments arguments(argc, argv, {"model", "text", "threads", "reps", "sizes", "quick"});
  const bool quick = arguments.Has("quick");
  const int reps = arguments.Int("reps", quick ? 3 : 5);
  const int threads = arguments.Int("threads", 0);
  if (reps < 1) Fail("--reps: at least 1");
  const auto model = LoadModel(ModelPath(arguments));
  PrintMachine(argc, argv, Ours(model, EngineFor("window", 64, 16, threads)).n_threads());
  Table table({"slots", "full, ms", "fast, ms", "fast / full"});
  std::vector<std::pair<std::string, double>> ratios;
  for (const std::string& size : SplitList(arguments.Text("sizes", quick ? "512" : "512,4096"))) {
    const int n = std::atoi(size.c_str());
    if (n < 2) Fail("--sizes: expected numbers of slots, found '" + size + "'");
    const std::vector<Token> text = TextTokens(*model, TextPath(arguments), n);
    Scored full(model, "counter-causal", n, threads, text);
    Scored fast(model, "counter-causal-fast", n, threads, text);
    fast.Milliseconds();  // not counted: the first use of a graph
    Samples full_ms, fast_ms;
    for (int r = 0; r < reps; ++r) {
      full_ms.Add(full.Milliseconds());
      fast_ms.Add(fast.Milliseconds());
    }
    ratios.push_back({size, fast_ms.Median() / full_ms.Median()});
    table.Add({size, full_ms.Text(), fast_ms.Text(2), Number(ratios.back().second, 4)});
  }
  std::printf("One scoring (%d runs, median and range)\n\n", reps);
  table.Print();
  for (const auto& [size, ratio] : ratios) {
    PrintTarget("fast / full at n = " + size, ratio, 0.05, /*at_most=*/true);
  }
}

}  // namespace
}  // namespace kvbound::bench

int main(int argc, char** argv) { kvbound::bench::Run(argc, argv); }
