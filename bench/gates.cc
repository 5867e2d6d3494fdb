// What retention gates cost: decoding and reading with policy retention against policy window,
// which does all the same but the gates, alternating in one process.
#include "kvbound/gates.h"

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "machine_common.h"
#include "ours_common.h"
#include "report_common.h"

namespace kvbound::bench {
namespace {

struct Row {
  std::string name;
  std::unique_ptr<Ours> ours;
  Samples decode;  // tokens/s
  Samples read;    // tokens/s
};

// log beta, one f32 per layer and KV head, beside K and V of one token.
void PrintBytesPerToken(const ModelInfo& info) {
  const int heads = info.n_layer * info.n_kv_head;
  const int kv = heads * info.head_dim * 2 * 2;
  std::printf("Per token of context: %d bytes of K and V (f16), %d bytes of log beta (%.2f %%)\n\n",
              kv, heads * 4, 100.0 * heads * 4 / kv);
}

void Run(int argc, char** argv) {
  const Arguments arguments(argc, argv,
                            {"model", "gates", "text", "threads", "reps", "budget", "chunk",
                             "tokens", "read-tokens", "quick"});
  const bool quick = arguments.Has("quick");
  const auto pick = [&](const char* name, int full, int small) {
    return static_cast<int>(arguments.Int(name, quick ? small : full));
  };
  const int reps = pick("reps", 25, 3);  // short ones: the machine's speed drifts
  const int budget = pick("budget", 512, 512), chunk = pick("chunk", 128, 128);
  const int n_decode = pick("tokens", chunk, chunk), n_read = pick("read-tokens", 2 * chunk, chunk);
  const auto model = LoadModel(ModelPath(arguments));
  const std::string gates_path =
      arguments.Text("gates", KVBOUND_SOURCE_DIR "/gates/smollm2-135m-instruct.gguf");
  const std::shared_ptr<const Gates> gates = Must(Gates::Load(gates_path));
  const std::vector<Token> text = TextTokens(*model, TextPath(arguments), n_read + budget);

  std::vector<Row> rows;
  for (const char* policy : {"window", "retention"}) {
    EngineOptions options = EngineFor(policy, budget, chunk, pick("threads", 0, 0));
    options.gates = gates;
    rows.push_back({policy, std::make_unique<Ours>(model, options), {}, {}});
    rows.back().ours->Feed(std::span(text).first(budget));
  }
  PrintMachine(argc, argv, rows[0].ours->n_threads());
  PrintBytesPerToken(model->info());
  for (int r = 0; r < reps; ++r) {
    for (Row& row : rows) {
      double start = Now();
      for (int i = 0; i < n_decode; ++i) row.ours->Step();
      row.decode.Add(n_decode / (Now() - start));
      start = Now();
      row.ours->Feed(std::span(text).subspan(budget));
      row.read.Add(n_read / (Now() - start));
    }
  }
  Table table({"J = " + std::to_string(budget) + ", h = " + std::to_string(chunk),
               "decode, tokens/s", "read, tokens/s"});
  for (const Row& row : rows) table.Add({row.name, row.decode.Text(), row.read.Text()});
  table.Print();
  PrintTarget("decode, retention / window", rows[1].decode.Median() / rows[0].decode.Median(),
              0.93);
  PrintTarget("read, retention / window", rows[1].read.Median() / rows[0].read.Median(), 0.93);
}

}  // namespace
}  // namespace kvbound::bench

int main(int argc, char** argv) { kvbound::bench::Run(argc, argv); }
