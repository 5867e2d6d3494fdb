// A fact that is pinned can still be read long after it was said: pass keys asked far beyond the
// position limit, against the same sessions asked below it.
#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "eval/fact_items.h"
#include "eval/facts.h"
#include "kvbound/gates.h"
#include "machine_common.h"
#include "ours_common.h"
#include "report_common.h"

namespace kvbound::bench {
namespace {

constexpr int kAnswerTokens = 12;

// Reads the item with `filler` after its needle, which is pinned; whether the answer is right.
bool Answers(Engine& engine, Session& session, const eval::FactItem& item,
             std::span<const Token> filler, bool pin) {
  const std::span<const Token> tokens(item.tokens);
  Must(session.Reset());
  Must(session.Feed(tokens.first(item.needle_end)));
  if (pin) Must(session.Pin({Position{item.needle_begin}, Position{item.needle_end}}));
  if (!filler.empty()) Must(session.Feed(filler));
  Must(session.Feed(tokens.subspan(item.needle_end)));
  std::vector<Token> answer;
  for (int i = 0; i < kAnswerTokens; ++i) {
    const std::span<const float> logits = session.logits();
    const auto top = static_cast<Token>(std::ranges::max_element(logits) - logits.begin());
    answer.push_back(top);
    Session* const batch[] = {&session};
    Must(engine.Step(batch, {&top, 1}));
  }
  return eval::HoldsAnswer(engine.model().tokenizer().Decode(answer), item.answer);
}

void Run(int argc, char** argv) {
  const Arguments arguments(argc, argv,
                            {"model", "text", "threads", "budget", "chunk", "policies", "items",
                             "seen", "position-limit", "gates", "f32-weights", "quick"});
  ModelOptions weights;
  weights.dequantize_f32 = arguments.Has("f32-weights");
  const std::shared_ptr<const Model> model = Must(Model::Load(ModelPath(arguments), weights));
  const std::string text_path = TextPath(arguments);
  eval::FactItemOptions facts;
  facts.n_item = arguments.Int("items", arguments.Has("quick") ? 2 : 32);
  const std::vector<eval::FactItem> items =
      Must(eval::MakeFactItems(model->tokenizer(), {text_path}, eval::FactProbe::kPassKey, facts));
  const int64_t n_filler = arguments.Int("seen", 20000) - facts.length;
  const std::vector<Token> text =
      TextTokens(*model, text_path, n_filler + int64_t{facts.n_item} * facts.length);

  Table table({"policy", "pinned, " + std::to_string(facts.length) + " tokens seen",
               "pinned, " + std::to_string(n_filler + facts.length) + " tokens seen", "rebases",
               "not pinned"});
  bool first = true;
  std::vector<double> shares;
  for (const std::string& policy : SplitList(arguments.Text("policies", "streaming"))) {
    EngineOptions options = EngineFor(policy, arguments.Int("budget", 512),
                                      arguments.Int("chunk", 128), arguments.Int("threads", 0));
    options.position_limit = arguments.Int("position-limit", 0);
    if (policy == "retention") {
      options.gates = Must(Gates::Load(
          arguments.Text("gates", KVBOUND_SOURCE_DIR "/gates/smollm2-135m-instruct.gguf")));
    }
    const auto engine = Must(Engine::Create(model, options));
    const auto session = Must(engine->NewSession(SessionOptions{}));
    if (std::exchange(first, false)) PrintMachine(argc, argv, engine->options().n_threads, false);
    int near = 0, far = 0, unpinned = 0;
    int64_t rebases = 0;
    for (size_t i = 0; i < items.size(); ++i) {
      const auto filler = std::span(text).subspan(i * facts.length, n_filler);
      near += Answers(*engine, *session, items[i], {}, true);
      unpinned += Answers(*engine, *session, items[i], {}, false);
      far += Answers(*engine, *session, items[i], filler, true);
      rebases = session->stats().rebases;
      std::fprintf(stderr, "%s: item %zu, right so far: near %d, far %d\n", policy.c_str(), i + 1,
                   near, far);
    }
    const auto of = [&](int n) {
      return std::to_string(n) + " of " + std::to_string(items.size());
    };
    table.Add({policy, of(near), of(far), std::to_string(rebases), of(unpinned)});
    shares.push_back(near == 0 ? 0 : static_cast<double>(far) / near);
  }
  table.Print();
  for (double share : shares) PrintTarget("right far beyond the limit / below it", share, 0.95);
}

}  // namespace
}  // namespace kvbound::bench

int main(int argc, char** argv) { kvbound::bench::Run(argc, argv); }
