// What one counter-causal scoring of n slots costs: all layers, with fused attention and with
// ggml's, against the last layer only.
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
  Scored(std::shared_ptr<const Model> model, const EngineOptions& options,
         const std::vector<Token>& text, int n)
      : ours_(std::move(model), options), scores_(n) {
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
  Table table({"slots", "full, ms", "full with stock attention, ms", "fast, ms", "fast / full",
               "stock / fused"});
  struct Ratios {
    std::string size;
    double fast, stock;
  };
  std::vector<Ratios> ratios;
  for (const std::string& size : SplitList(arguments.Text("sizes", quick ? "512" : "512,4096"))) {
    const int n = std::atoi(size.c_str());
    if (n < 2) Fail("--sizes: expected numbers of slots, found '" + size + "'");
    const std::vector<Token> text = TextTokens(*model, TextPath(arguments), n);
    EngineOptions options = EngineFor("counter-causal", n, kChunk, threads);
    Scored full(model, options, text, n);
    options.attention = AttentionPath::kStock;
    Scored stock(model, options, text, n);
    Scored fast(model, EngineFor("counter-causal-fast", n, kChunk, threads), text, n);
    fast.Milliseconds();  // not counted: the first use of a graph
    Samples full_ms, stock_ms, fast_ms;
    for (int r = 0; r < reps; ++r) {
      full_ms.Add(full.Milliseconds());
      stock_ms.Add(stock.Milliseconds());
      fast_ms.Add(fast.Milliseconds());
    }
    ratios.push_back(
        {size, fast_ms.Median() / full_ms.Median(), stock_ms.Median() / full_ms.Median()});
    table.Add({size, full_ms.Text(), stock_ms.Text(), fast_ms.Text(2),
               Number(ratios.back().fast, 4), Number(ratios.back().stock, 2)});
  }
  std::printf("One scoring (%d runs, median and range)\n\n", reps);
  table.Print();
  for (const Ratios& r : ratios) {
    PrintTarget("fast / full at n = " + r.size, r.fast, 0.05, /*at_most=*/true);
    PrintTarget("full scoring, stock / fused time at n = " + r.size, r.stock, 1.0);
  }
}

}  // namespace
}  // namespace kvbound::bench

int main(int argc, char** argv) { kvbound::bench::Run(argc, argv); }
