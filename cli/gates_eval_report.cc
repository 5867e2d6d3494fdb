#include <algorithm>
#include <cstdarg>
#include <cstdio>

#include "cli/gates_eval.h"
#include "cli/values.h"
#include "eval/bootstrap.h"
#include "src/base/strings.h"

namespace kvbound::cli {
namespace {

using Json = nlohmann::ordered_json;

[[gnu::format(printf, 1, 2)]] std::string Format(const char* format, ...) {
  char line[512];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(line, sizeof(line), format, arguments);
  va_end(arguments);
  return line;
}

// K and V of one token in all layers, as EngineOptions stores them (f16).
int64_t KvBytesPerToken(const ModelInfo& model) {
  return int64_t{2} * 2 * model.n_layer * model.n_kv_head * model.head_dim;
}
int64_t LogBetaBytesPerToken(const ModelInfo& model) {
  return int64_t{4} * model.n_layer * model.n_kv_head;
}

std::vector<double> KlOfTexts(const eval::FidelityResult& result) {
  std::vector<double> values;
  for (const eval::TextFidelity& text : result.texts) values.push_back(text.kl);
  return values;
}

// The result that others of the same budget are compared with: of the first --compare.
const eval::FidelityResult* Baseline(const GatesEvalArgs& args, const GatesEvalReport& report,
                                     int32_t budget) {
  for (size_t i = 0; i < report.fidelity.size(); ++i) {
    const bool first = !args.compare.empty() && report.policies[i].label == args.compare[0];
    if (first && report.policies[i].budget == budget) return &report.fidelity[i];
  }
  return nullptr;
}

Result<eval::PairedComparison> Compare(const GatesEvalArgs& args,
                                       const eval::FidelityResult& result,
                                       const eval::FidelityResult& baseline) {
  eval::BootstrapOptions options;
  options.seed = args.seed;
  return eval::ComparePaired(KlOfTexts(result), KlOfTexts(baseline), options);
}

int LabelWidth(const GatesEvalReport& report) {
  size_t width = 6;
  for (const eval::FidelityPolicy& policy : report.policies) {
    width = std::max(width, policy.label.size());
  }
  return static_cast<int>(width);
}

std::string HeadText(const GatesEvalArgs& args, const GatesEvalReport& report) {
  const ModelInfo& model = report.model;
  std::string text = Format("%s: chunk %d, protected in every policy: %d sinks, %d recent\n",
                            Printable(model.name).c_str(), args.chunk, *args.protection.sinks,
                            *args.protection.recent);
  const std::string kv = Grouped(KvBytesPerToken(model));
  const std::string log_beta = Grouped(LogBetaBytesPerToken(model));
  for (const auto& gates : report.gates) {
    text += Format(
        "gates %s: %s bytes of log beta per token of context beside %s of K and V (f16); "
        "weights %s\n",
        Printable(gates->path()).c_str(), log_beta.c_str(), kv.c_str(),
        HumanBytes(gates->weight_bytes()).c_str());
  }
  return text;
}

std::string FidelityRow(const GatesEvalArgs& args, const eval::FidelityResult& result,
                        const eval::FidelityResult* baseline, int width) {
  std::string row = Format("  %-*s %6d %9.4f %9.4f %7.3f", width, result.label.c_str(),
                           result.tokens_kept, result.kl(), result.delta_nll(), result.top1());
  if (baseline) {
    if (const auto compared = Compare(args, result, *baseline); compared.ok()) {
      row += Format("   %5.3f [%.3f, %.3f]", compared->ratio, compared->ratio_95.low,
                    compared->ratio_95.high);
    }
  }
  return row + "\n";
}

std::string FidelityText(const GatesEvalArgs& args, const GatesEvalReport& report) {
  const eval::FidelityResult& any = report.fidelity.front();
  int64_t n_token = 0;
  for (const eval::TextFidelity& text : any.texts) n_token += text.n_token;
  std::string text = Format(
      "\nfidelity: %zu texts of %s tokens, %s tokens measured; uncut NLL %.4f\n", any.texts.size(),
      Grouped(args.length).c_str(), Grouped(n_token).c_str(), any.full_nll());
  const int width = LabelWidth(report);
  for (size_t i = 0; i < report.policies.size(); ++i) {
    const int32_t budget = report.policies[i].budget;
    const eval::FidelityResult* baseline = Baseline(args, report, budget);
    if (i == 0 || report.policies[i - 1].budget != budget) {
      text += Format("\nbudget %d\n  %-*s %6s %9s %9s %7s", budget, width, "policy", "kept", "KL",
                     "dNLL", "top-1");
      if (baseline) text += Format("   KL / %s's, 95 %% interval", baseline->label.c_str());
      text += "\n";
    }
    text += FidelityRow(args, report.fidelity[i], baseline, width);
  }
  return text;
}

std::string FactsText(const GatesEvalArgs& args, const GatesEvalReport& report,
                      const FactsReport& facts) {
  const int64_t n = std::ssize(facts.items);
  std::string text = Format("\nfacts mentioned once, %s: %s prompts of %s tokens\n",
                            std::string(eval::FactProbeName(facts.probe)).c_str(),
                            Grouped(n).c_str(), Grouped(args.item_length).c_str());
  const int width = LabelWidth(report);
  text += Format("  %-*s %6s %12s   95 %% interval\n", width, "policy", "budget", "answered");
  for (size_t i = 0; i < facts.results.size(); ++i) {
    const eval::FactResult& result = facts.results[i];
    const eval::Interval share = eval::WilsonInterval(result.n_right(), n);
    const std::string budget = i == 0 ? "-" : std::to_string(report.policies[i - 1].budget);
    const std::string answered = StrCat(result.n_right(), " of ", n);
    text += Format("  %-*s %6s %12s   %.2f to %.2f\n", width, result.label.c_str(), budget.c_str(),
                   answered.c_str(), share.low, share.high);
  }
  return text;
}

std::string ItemsText(const GatesEvalReport& report, const FactsReport& facts) {
  std::string text;
  for (size_t i = 0; i < facts.items.size(); ++i) {
    const eval::FactItem& item = facts.items[i];
    text += StrCat("\n", eval::FactProbeName(facts.probe), " ", i + 1, ", tokens ",
                   item.needle_begin, " to ", item.needle_end, ": ", item.needle,
                   "\n  asked:    ", Printable(item.question, 200), "\n  expected: ", item.answer,
                   "\n");
    for (size_t p = 0; p < facts.results.size(); ++p) {
      const eval::FactResult& result = facts.results[p];
      const std::string budget = p == 0 ? "" : StrCat(", ", report.policies[p - 1].budget);
      text += StrCat("  ", result.right[i] ? "right: " : "wrong: ", Printable(result.texts[i]),
                     "  (", result.label, budget, ")\n");
    }
  }
  return text;
}

Json IntervalRecord(const eval::Interval& interval) { return {interval.low, interval.high}; }

Json FidelityRecord(const GatesEvalArgs& args, const eval::FidelityPolicy& policy,
                    const eval::FidelityResult& result, const eval::FidelityResult* baseline) {
  Json texts = Json::array();
  for (const eval::TextFidelity& text : result.texts) {
    texts.push_back({{"kl", text.kl},
                     {"nll", text.nll},
                     {"full_nll", text.full_nll},
                     {"top1", text.top1},
                     {"tokens", text.n_token}});
  }
  Json record = {{"label", result.label},
                 {"policy", policy.policy.name},
                 {"budget", policy.budget},
                 {"kept", result.tokens_kept},
                 {"cuts", result.n_cut},
                 {"seconds", result.seconds},
                 {"kl", result.kl()},
                 {"nll", result.nll()},
                 {"full_nll", result.full_nll()},
                 {"delta_nll", result.delta_nll()},
                 {"top1", result.top1()}};
  if (baseline) {
    if (const auto compared = Compare(args, result, *baseline); compared.ok()) {
      record["compared_with"] = baseline->label;
      record["kl_ratio"] = compared->ratio;
      record["kl_ratio_95"] = IntervalRecord(compared->ratio_95);
      record["kl_difference"] = compared->difference;
      record["kl_difference_95"] = IntervalRecord(compared->difference_95);
    }
  }
  record["texts"] = texts;
  return record;
}

Json FactsRecord(const GatesEvalReport& report, const FactsReport& facts) {
  Json items = Json::array();
  for (const eval::FactItem& item : facts.items) {
    items.push_back({{"needle", item.needle},
                     {"question", item.question},
                     {"answer", item.answer},
                     {"needle_begin", item.needle_begin},
                     {"needle_end", item.needle_end},
                     {"tokens", item.tokens.size()}});
  }
  Json results = Json::array();
  for (size_t i = 0; i < facts.results.size(); ++i) {
    const eval::FactResult& result = facts.results[i];
    Json& record = results.emplace_back(Json{{"label", result.label}});
    if (i > 0) record["budget"] = report.policies[i - 1].budget;
    record["answered"] = result.n_right();
    record["answered_95"] =
        IntervalRecord(eval::WilsonInterval(result.n_right(), std::ssize(facts.items)));
    record["seconds"] = result.seconds;
    record["right"] = result.right;
    record["answers"] = result.texts;
  }
  return {{"probe", eval::FactProbeName(facts.probe)}, {"items", items}, {"results", results}};
}

}  // namespace

std::string GatesEvalText(const GatesEvalArgs& args, const GatesEvalReport& report) {
  std::string text = HeadText(args, report);
  if (!report.fidelity.empty()) text += FidelityText(args, report);
  for (const FactsReport& facts : report.facts) {
    text += FactsText(args, report, facts);
    if (args.show) text += ItemsText(report, facts);
  }
  return text;
}

Json GatesEvalRecord(const GatesEvalArgs& args, const GatesEvalReport& report) {
  Json gates = Json::array();
  for (const auto& file : report.gates) {
    gates.push_back({{"path", file->path()}, {"weight_bytes", file->weight_bytes()}});
  }
  Json fidelity = Json::array();
  for (size_t i = 0; i < report.fidelity.size(); ++i) {
    const eval::FidelityResult* baseline = Baseline(args, report, report.policies[i].budget);
    fidelity.push_back(FidelityRecord(args, report.policies[i], report.fidelity[i], baseline));
  }
  Json facts = Json::array();
  for (const FactsReport& probe : report.facts) facts.push_back(FactsRecord(report, probe));
  return {{"model", report.model.path},
          {"gates", gates},
          {"kv_bytes_per_token", KvBytesPerToken(report.model)},
          {"log_beta_bytes_per_token", LogBetaBytesPerToken(report.model)},
          {"files", args.texts},
          {"length", args.length},
          {"skip", args.skip},
          {"chunk", args.chunk},
          {"sinks", *args.protection.sinks},
          {"recent", *args.protection.recent},
          {"seed", args.seed},
          {"fidelity", fidelity},
          {"facts", facts}};
}

}  // namespace kvbound::cli
