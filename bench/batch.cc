// Tokens per second, summed over sequences that are decoded as one batch: ours against libllama's
// batch of the same size, and the gain of each over one sequence.
#include <algorithm>
#include <cstdio>
#include <span>
#include <string>
#include <vector>

#include "machine_common.h"
#include "ours_common.h"
#include "peer_common.h"
#include "report_common.h"

namespace kvbound::bench {
namespace {

constexpr int kPromptTokens = 16;
constexpr int kContext = 320;

// Each sequence reads its own part of the text, then `steps` batches of one token each are timed.
template <typename Runner>
double TokensPerSecond(Runner& runner, std::span<const Token> text, int n_seq, int steps) {
  runner.Clear();
  for (int s = 0; s < n_seq; ++s) runner.Feed(text.subspan(s * kPromptTokens, kPromptTokens), s);
  runner.Step();  // not timed: the first use of a graph
  const double start = Now();
  for (int i = 0; i < steps; ++i) runner.Step();
  return static_cast<double>(n_seq) * steps / (Now() - start);
}

void Run(int argc, char** argv) {
  const Arguments arguments(argc, argv,
                            {"model", "text", "threads", "reps", "budget", "chunk", "policy",
                             "parallel", "tokens", "quick"});
  const bool quick = arguments.Has("quick");
  const int reps = arguments.Int("reps", quick ? 3 : 5);
  const int n_seq = arguments.Int("parallel", 8);
  const int steps = arguments.Int("tokens", quick ? 32 : 256);
  if (reps < 1 || n_seq < 1 || steps < 1) Fail("--reps, --parallel and --tokens: at least 1");
  if (steps + kPromptTokens + 2 > kContext) Fail("--tokens: at most 300");
  const std::string path = ModelPath(arguments);
  const auto model = LoadModel(path);
  const auto engine = [&](int n) {
    return EngineFor(arguments.Text("policy", "counter-causal-fast"), arguments.Int("budget", 512),
                     arguments.Int("chunk", 128), arguments.Int("threads", 0), n);
  };
  Ours ours_one(model, engine(1));
  Ours ours_all(model, engine(n_seq));
  const int n_threads = ours_one.n_threads();
  PrintMachine(argc, argv, n_threads);
  const std::vector<Token> text = TextTokens(*model, TextPath(arguments), n_seq * kPromptTokens);
  const PeerModel peer_model(path);
  Peer off_one(peer_model, false, kContext, 1, n_threads);
  Peer off_all(peer_model, false, kContext, n_seq, n_threads);
  Peer on_one(peer_model, true, kContext, 1, n_threads);
  Peer on_all(peer_model, true, kContext, n_seq, n_threads);

  Samples ours[2], off[2], on[2];
  for (int r = 0; r < reps; ++r) {
    ours[0].Add(TokensPerSecond(ours_one, text, 1, steps));
    off[0].Add(TokensPerSecond(off_one, text, 1, steps));
    on[0].Add(TokensPerSecond(on_one, text, 1, steps));
    ours[1].Add(TokensPerSecond(ours_all, text, n_seq, steps));
    off[1].Add(TokensPerSecond(off_all, text, n_seq, steps));
    on[1].Add(TokensPerSecond(on_all, text, n_seq, steps));
  }
  std::printf("Decode of %d tokens each after %d (tokens/s in all; %d runs, median and range)\n\n",
              steps, kPromptTokens, reps);
  const double best = std::max(off[1].Median(), on[1].Median());
  Table table({"", "1 sequence", std::to_string(n_seq) + " sequences", "gain", "ratio to peer"});
  const auto add = [&](const std::string& name, const Samples* speeds) {
    table.Add({name, speeds[0].Text(), speeds[1].Text(),
               Number(speeds[1].Median() / speeds[0].Median(), 2),
               Number(speeds[1].Median() / best, 2)});
  };
  add(ours_one.name(), ours);
  add(off_one.name(), off);
  add(on_one.name(), on);
  table.Print();
  PrintTarget("batch of " + std::to_string(n_seq) + ", ours / peer", ours[1].Median() / best, 1);
  std::printf("gain over one sequence: %.2f\n", ours[1].Median() / ours[0].Median());
}

}  // namespace
}  // namespace kvbound::bench

int main(int argc, char** argv) { kvbound::bench::Run(argc, argv); }
