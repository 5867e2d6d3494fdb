// Tokens per second of decoding, ours against libllama with its full cache, alternating in one
// process: with few tokens seen, with as many as the budget, and after a long text, where a bounded
// cache pays.
#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "machine_common.h"
#include "ours_common.h"
#include "peer_common.h"
#include "report_common.h"

namespace kvbound::bench {
namespace {

struct Sizes {
  int reps;
  int short_tokens;      // decoded after a short prompt; prompt and these stay below 300
  int long_seen;         // tokens seen before the second measurement
  int long_tokens;       // decoded by ours, a multiple of the chunk: each repetition has its cuts
  int peer_long_tokens;  // decoded by the peer
};

constexpr int kPromptTokens = 16;

template <typename Runner>
double StepsPerSecond(Runner& runner, int steps) {
  const double start = Now();
  for (int i = 0; i < steps; ++i) runner.Step();
  return steps / (Now() - start);
}

// An engine of ours, the slots that it attends to on average, and the ratio to the peer that is
// wanted (0: none).
struct Contender {
  EngineOptions options;
  double slots;
  double wanted;
};

// Decoding speed and, for ours, the share of it that went into scoring.
struct Row {
  Samples speed;
  Samples share_percent;
};

class Decode {
 public:
  Decode(std::shared_ptr<const Model> model, const std::string& path, const Sizes& sizes,
         double bandwidth, int n_threads)
      : model_(std::move(model)),
        peer_model_(path),
        sizes_(sizes),
        bandwidth_(bandwidth),
        n_threads_(n_threads) {}

  void Short(const EngineOptions& options, const std::vector<Token>& text) {
    const std::vector<Token> prompt(text.begin(), text.begin() + kPromptTokens);
    Ours ours(model_, options);
    Peer off(peer_model_, false, 512, 1, n_threads_);
    Peer on(peer_model_, true, 512, 1, n_threads_);
    Row ours_row, off_row, on_row;
    const auto measure = [&](auto& runner, Row& row) {
      runner.Clear();
      runner.Feed(prompt);
      runner.Step();  // not timed: the first use of a graph
      row.speed.Add(StepsPerSecond(runner, sizes_.short_tokens));
    };
    for (int r = 0; r < sizes_.reps; ++r) {
      measure(ours, ours_row);
      measure(off, off_row);
      measure(on, on_row);
    }
    std::printf("Decode, %d tokens after a prompt of %d (tokens/s; %d runs, median and range)\n\n",
                sizes_.short_tokens, kPromptTokens, sizes_.reps);
    const double slots = kPromptTokens + sizes_.short_tokens / 2.0;
    Print({{ours.name(), ours_row}, {off.name(), off_row}, {on.name(), on_row}},
          {slots, slots, slots}, BestOf(off_row, on_row));
    PrintTarget("decode below 300 tokens, ours / peer",
                ours_row.speed.Median() / BestOf(off_row, on_row), 0.95);
    std::printf("\n");
  }

  // After `n_seen` tokens.
  void After(int n_seen, const std::vector<Contender>& all, const std::vector<Token>& text) {
    const std::vector<Token> seen(text.begin(), text.begin() + n_seen);
    std::vector<std::unique_ptr<Ours>> ours;
    for (const Contender& contender : all) {
      ours.push_back(std::make_unique<Ours>(model_, contender.options));
      ours.back()->Feed(seen);
    }
    const int n_ctx = n_seen + sizes_.peer_long_tokens + 64;
    Peer off(peer_model_, false, n_ctx, 1, n_threads_);
    Peer on(peer_model_, true, n_ctx, 1, n_threads_);
    off.Feed(seen);
    on.Feed(seen);
    std::vector<Row> ours_rows(all.size());
    Row off_row, on_row;
    for (int r = 0; r < sizes_.reps; ++r) {
      for (size_t i = 0; i < all.size(); ++i) MeasureOurs(*ours[i], ours_rows[i]);
      MeasurePeer(off, n_seen, off_row);
      MeasurePeer(on, n_seen, on_row);
    }
    std::printf("Decode after %d tokens seen (ours: runs of %d tokens, peer: %d; %d runs)\n\n",
                n_seen, sizes_.long_tokens, sizes_.peer_long_tokens, sizes_.reps);
    std::vector<std::pair<std::string, Row>> rows;
    std::vector<double> slots;
    for (size_t i = 0; i < all.size(); ++i) {
      rows.push_back({ours[i]->name(), ours_rows[i]});
      slots.push_back(all[i].slots);
    }
    const double best = BestOf(off_row, on_row);
    rows.push_back({off.name(), off_row});
    rows.push_back({on.name(), on_row});
    slots.insert(slots.end(), 2, n_seen);
    Print(rows, slots, best);
    for (size_t i = 0; i < all.size(); ++i) {
      if (all[i].wanted == 0) continue;
      PrintTarget("decode after " + std::to_string(n_seen) + " tokens, " +
                      all[i].options.policy.name + " / peer",
                  ours_rows[i].speed.Median() / best, all[i].wanted);
    }
    PrintTarget("scoring in % of the time, " + all[0].options.policy.name,
                ours_rows[0].share_percent.Median(), 3, /*at_most=*/true);
    std::printf("\n");
  }

 private:
  static double BestOf(const Row& a, const Row& b) {
    return std::max(a.speed.Median(), b.speed.Median());
  }

  void MeasureOurs(Ours& ours, Row& row) {
    const double scoring = ours.scoring_seconds();
    const double speed = StepsPerSecond(ours, sizes_.long_tokens);
    row.speed.Add(speed);
    row.share_percent.Add(100 * (ours.scoring_seconds() - scoring) * speed / sizes_.long_tokens);
  }

  void MeasurePeer(Peer& peer, int n_seen, Row& row) {
    peer.Truncate(n_seen);
    row.speed.Add(StepsPerSecond(peer, sizes_.peer_long_tokens));
  }

  void Print(const std::vector<std::pair<std::string, Row>>& rows, const std::vector<double>& slots,
             double best_peer) {
    Table table({"", "tokens/s", "ratio", "GB/s read", "% of bandwidth", "% scoring"});
    for (size_t i = 0; i < rows.size(); ++i) {
      const Row& row = rows[i].second;
      const double speed = row.speed.Median();
      const double read = speed * BytesPerToken(model_->info(), slots[i]) / 1e9;
      table.Add({rows[i].first, row.speed.Text(), Number(speed / best_peer, 2), Number(read, 2),
                 Number(100 * read / bandwidth_, 0),
                 row.share_percent.empty() ? "-" : row.share_percent.Text()});
    }
    table.Print();
  }

  std::shared_ptr<const Model> model_;
  PeerModel peer_model_;
  Sizes sizes_;
  double bandwidth_;
  int n_threads_;
};

void Run(int argc, char** argv) {
  const Arguments arguments(
      argc, argv,
      {"model", "text", "threads", "reps", "budget", "chunk", "policies", "short-tokens", "seen",
       "tokens", "peer-tokens", "quick", "skip-short", "skip-long"});
  const bool quick = arguments.Has("quick");
  const auto pick = [&](const char* name, int full, int small) {
    return static_cast<int>(arguments.Int(name, quick ? small : full));
  };
  const int chunk = pick("chunk", 128, 128);
  const Sizes sizes{pick("reps", 5, 3), pick("short-tokens", 256, 64), pick("seen", 8000, 2000),
                    pick("tokens", 2 * chunk, chunk), pick("peer-tokens", 32, 16)};
  if (sizes.reps < 1 || sizes.short_tokens < 1) Fail("--reps and --short-tokens: at least 1");
  const std::string path = ModelPath(arguments);
  const auto model = LoadModel(path);
  const int budget = pick("budget", 512, 512), threads = pick("threads", 0, 0);
  std::vector<Contender> all;
  for (const auto& policy :
       SplitList(arguments.Text("policies", "counter-causal-fast,streaming"))) {
    all.push_back({EngineFor(policy, budget, chunk, threads), budget + chunk / 2.0, 0});
  }
  if (all.empty()) Fail("--policies: expected at least one name");
  const int n_threads = Ours(model, all[0].options).n_threads();
  const double bandwidth = PrintMachine(argc, argv, n_threads);
  const std::vector<Token> text =
      TextTokens(*model, TextPath(arguments), std::max(sizes.long_seen, kPromptTokens));
  Decode decode(model, path, sizes, bandwidth, n_threads);
  if (!arguments.Has("skip-short")) {
    decode.Short(all[0].options, text);
    all[0].wanted = 1.15;
    decode.After(budget, {all[0]}, text);
  }
  if (arguments.Has("skip-long")) return;
  all[0].wanted = 3.3;
  const int uncut = sizes.long_seen + sizes.reps * sizes.long_tokens;
  all.push_back({EngineFor("none", uncut, chunk, threads), (sizes.long_seen + uncut) / 2.0, 1.8});
  decode.After(sizes.long_seen, all, text);
}

}  // namespace
}  // namespace kvbound::bench

int main(int argc, char** argv) { kvbound::bench::Run(argc, argv); }
