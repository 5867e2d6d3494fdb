// Tokens per second of reading a long text, ours against libllama with its full cache, in turn.
#include <algorithm>
#include <cstdio>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "machine_common.h"
#include "ours_common.h"
#include "peer_common.h"
#include "report_common.h"

namespace kvbound::bench {
namespace {

constexpr size_t kBeginning = 1000;

struct Row {
  Samples beginning;  // tokens/s over the first kBeginning tokens
  Samples whole;
};

template <typename Runner>
double TokensPerSecond(Runner& runner, std::span<const Token> tokens) {
  runner.Clear();
  const double start = Now();
  runner.Feed(tokens);
  return tokens.size() / (Now() - start);
}

template <typename Runner>
void Measure(Runner& runner, std::span<const Token> text, Row& row) {
  row.beginning.Add(TokensPerSecond(runner, text.first(std::min(kBeginning, text.size()))));
  row.whole.Add(TokensPerSecond(runner, text));
}

void Run(int argc, char** argv) {
  const Arguments arguments(
      argc, argv,
      {"model", "text", "threads", "reps", "budget", "chunk", "policy", "tokens", "quick"});
  const bool quick = arguments.Has("quick");
  const int reps = arguments.Int("reps", quick ? 2 : 5);
  const int n_tokens = arguments.Int("tokens", quick ? 3000 : 16000);
  if (reps < 1 || n_tokens < 1) Fail("--reps and --tokens: at least 1");
  const std::string path = ModelPath(arguments);
  const auto model = LoadModel(path);
  Ours ours(model,
            EngineFor(arguments.Text("policy", "counter-causal-fast"), arguments.Int("budget", 512),
                      arguments.Int("chunk", 256), arguments.Int("threads", 0)));
  const int n_threads = ours.n_threads();
  PrintMachine(argc, argv, n_threads);
  const std::vector<Token> text = TextTokens(*model, TextPath(arguments), n_tokens);
  const PeerModel peer_model(path);
  Peer off(peer_model, false, n_tokens + 64, 1, n_threads);
  Peer on(peer_model, true, n_tokens + 64, 1, n_threads);

  Row ours_row, off_row, on_row;
  for (int r = 0; r < reps; ++r) {
    Measure(ours, text, ours_row);
    // Both settings once; then only the one that was faster over the whole text.
    const bool off_is_faster = r > 0 && off_row.whole.Median() > on_row.whole.Median();
    if (r == 0 || off_is_faster) Measure(off, text, off_row);
    if (r == 0 || !off_is_faster) Measure(on, text, on_row);
  }
  std::printf("Reading %d tokens (tokens/s; %d runs, the peer's slower setting once)\n\n", n_tokens,
              reps);
  const double best_beginning = std::max(off_row.beginning.Median(), on_row.beginning.Median());
  const double best_whole = std::max(off_row.whole.Median(), on_row.whole.Median());
  Table table({"", "first " + std::to_string(kBeginning), "ratio", "whole text", "ratio"});
  const auto add = [&](const std::string& name, const Row& row) {
    table.Add({name, row.beginning.Text(), Number(row.beginning.Median() / best_beginning, 2),
               row.whole.Text(), Number(row.whole.Median() / best_whole, 2)});
  };
  add(ours.name(), ours_row);
  add(off.name(), off_row);
  add(on.name(), on_row);
  table.Print();
  PrintTarget("reading the whole text, ours / peer", ours_row.whole.Median() / best_whole, 2);
  PrintTarget("reading the first " + std::to_string(kBeginning) + ", ours / peer",
              ours_row.beginning.Median() / best_beginning, 0.9);
}

}  // namespace
}  // namespace kvbound::bench

int main(int argc, char** argv) { kvbound::bench::Run(argc, argv); }
