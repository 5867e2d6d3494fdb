// Texts far longer than the trained context: negative log-likelihood by window, beside that of
// fresh sessions that start a little before a window.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "eval/divergence.h"
#include "kvbound/gates.h"
#include "machine_common.h"
#include "ours_common.h"
#include "report_common.h"

namespace kvbound::bench {
namespace {

struct Setup {
  int window = 0;
  int lead = 0;   // tokens that a control reads before its window
  int every = 0;  // windows from one control to the next
};

// Reads `text` from `begin`, and gives the mean NLL of the tokens of each window from `measured`.
std::vector<double> Read(Session& session, int chunk, std::span<const Token> text, int64_t begin,
                         int64_t measured, int64_t end, int window) {
  Must(session.Reset());
  std::vector<double> windows;
  double sum = 0;
  for (int64_t at = begin; at < end; at += chunk) {
    const int64_t n = std::min<int64_t>(chunk, end - at);
    Must(session.FeedWithLogits(text.subspan(at, n)));
    const std::span<const float> rows = session.AllLogits();
    const size_t n_vocab = rows.size() / n;
    for (int64_t i = 0; i < n; ++i) {
      const int64_t next = at + i + 1;  // predicted by row i
      if (next >= measured && next < end) {
        const std::span<const float> row = rows.subspan(i * n_vocab, n_vocab);
        sum += eval::SumUp(row).log_sum - row[text[next]];
      }
      if (next > measured && (next - measured) % window == 0) {
        windows.push_back(sum / window);
        sum = 0;
      }
    }
  }
  return windows;
}

double Mean(std::span<const double> values) {
  double sum = 0;
  for (double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

std::string TokensFrom(int window, const Setup& setup) {
  return std::to_string(int64_t{window} * setup.window);
}

void Report(const std::vector<double>& nll, const std::vector<double>& control, const Setup& setup,
            const std::string& label, std::FILE* out) {
  Table table({"tokens seen", "NLL", "control", "ratio"});
  std::vector<double> late_controls;
  const int n = static_cast<int>(nll.size());
  const int late = n - std::min<int>(n, (50000 + setup.window - 1) / setup.window);
  double worst = 0;
  for (int w = 0; w < n; ++w) {
    const bool has = control[w] > 0;
    table.Add({TokensFrom(w, setup), Number(nll[w], 3), has ? Number(control[w], 3) : "",
               has ? Number(nll[w] / control[w], 3) : ""});
    if (out) {
      std::fprintf(out, "%s\t%s\t%.4f\t%s\n", label.c_str(), TokensFrom(w + 1, setup).c_str(),
                   nll[w], has ? Number(control[w], 4).c_str() : "");
    }
    if (!has) continue;
    worst = std::max(worst, nll[w] / control[w]);
    if (w >= late) late_controls.push_back(control[w]);
  }
  if (out) std::fflush(out);
  table.Print();
  std::vector<double> of_controlled;
  for (int w = late; w < n; ++w) {
    if (control[w] > 0) of_controlled.push_back(nll[w]);
  }
  std::printf("%s: mean of the last %d windows %.3f; quarters", label.c_str(), n - late,
              Mean(std::span(nll).subspan(late)));
  for (int q = 0; q < 4; ++q) {
    std::printf(" %.3f", Mean(std::span(nll).subspan(q * n / 4, (q + 1) * n / 4 - q * n / 4)));
  }
  std::printf("\n");
  if (late_controls.empty()) return;
  PrintTarget("mean over the controlled windows of the last 50,000 tokens / their controls'",
              Mean(of_controlled) / Mean(late_controls), 1.02, /*at_most=*/true);
  PrintTarget("worst window / its control", worst, 1.10, /*at_most=*/true);
}

void Run(int argc, char** argv) {
  const Arguments arguments(
      argc, argv,
      {"model", "text", "threads", "budget", "chunk", "policies", "tokens", "positions",
       "position-limit", "gates", "window", "lead", "every", "out", "f32-weights", "quick"});
  Setup setup;
  setup.window = arguments.Int("window", 4096);
  setup.lead = arguments.Int("lead", 3072);
  setup.every = arguments.Int("every", 10);
  const int64_t n_tokens = arguments.Int("tokens", arguments.Has("quick") ? 20480 : 102400);
  const std::string text_path = TextPath(arguments);
  ModelOptions weights;
  weights.dequantize_f32 = arguments.Has("f32-weights");
  const std::shared_ptr<const Model> model = Must(Model::Load(ModelPath(arguments), weights));
  const std::vector<Token> text = TextTokens(*model, text_path, n_tokens + 1);
  std::FILE* out = nullptr;
  if (arguments.Has("out")) {
    out = std::fopen(arguments.Text("out", "").c_str(), "a");
    if (out == nullptr) Fail("--out: cannot be written");
  }
  bool first = true;
  for (const std::string& policy : SplitList(arguments.Text("policies", "streaming,retention"))) {
    EngineOptions options = EngineFor(policy, arguments.Int("budget", 512),
                                      arguments.Int("chunk", 128), arguments.Int("threads", 0));
    options.max_logit_rows = options.chunk;
    options.position_limit = arguments.Int("position-limit", 0);
    if (arguments.Text("positions", "auto") == "original") {
      options.positions = PositionMode::kOriginal;
    }
    if (policy == "retention") {
      options.gates = Must(Gates::Load(
          arguments.Text("gates", KVBOUND_SOURCE_DIR "/gates/smollm2-135m-instruct.gguf")));
    }
    const auto engine = Must(Engine::Create(model, options));
    const auto session = Must(engine->NewSession(SessionOptions{}));
    if (std::exchange(first, false)) PrintMachine(argc, argv, engine->options().n_threads, false);
    const double start = Now();
    const std::vector<double> nll =
        Read(*session, options.chunk, text, 0, 0, n_tokens, setup.window);
    const SessionStats stats = session->stats();
    const double seconds = Now() - start;
    std::vector<double> control(nll.size(), 0.0);
    for (size_t w = setup.every - 1; w < nll.size(); w += setup.every) {
      const int64_t from = static_cast<int64_t>(w) * setup.window;
      if (from < setup.lead) continue;
      control[w] = Read(*session, options.chunk, text, from - setup.lead, from, from + setup.window,
                        setup.window)[0];
    }
    const std::string label = std::filesystem::path(text_path).stem().string() + ", " + policy;
    std::printf("\n%s, J = %d, h = %d, positions %s, limit %d: %lld rebases, %.1f tokens/s\n\n",
                label.c_str(), options.budget, options.chunk,
                std::string(PositionModeName(options.positions)).c_str(),
                engine->options().position_limit, static_cast<long long>(stats.rebases),
                static_cast<double>(n_tokens) / seconds);
    Report(nll, control, setup, label, out);
    std::fflush(stdout);
  }
  if (out) std::fclose(out);
}

}  // namespace
}  // namespace kvbound::bench

int main(int argc, char** argv) { kvbound::bench::Run(argc, argv); }
