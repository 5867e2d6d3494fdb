#include "cli/gates_eval.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <utility>

#include "cli/logging.h"
#include "cli/options.h"
#include "cli/report.h"
#include "cli/signals.h"
#include "cli/terminal.h"
#include "eval/texts.h"

namespace kvbound::cli {
namespace {

using Rt = RetentionOptions;

std::vector<std::string> SplitAtCommas(const std::string& text) {
  std::vector<std::string> parts(1);
  for (const char c : text) {
    if (c == ',') {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

Result<std::vector<int32_t>> ParseBudgets(const std::string& text) {
  std::vector<int32_t> budgets;
  for (const std::string& part : SplitAtCommas(text)) {
    KVBOUND_ASSIGN_OR_RETURN(const int64_t budget,
                             ParseInt(part, "numbers of slots, divided by commas,", 2, kInt32Max));
    budgets.push_back(static_cast<int32_t>(budget));
  }
  return budgets;
}

// Names of policies that evict and need no gates.
Result<std::vector<std::string>> ParseCompared(const std::string& text) {
  if (text == "none") return std::vector<std::string>();
  std::vector<std::string> names = SplitAtCommas(text);
  for (const std::string& name : names) {
    std::string known;
    bool found = false;
    for (const PolicyInfo& info : ListPolicies()) {
      if (!info.evicts || info.needs_gates) continue;
      known += StrCat(known.empty() ? "" : "|", info.name);
      found = found || info.name == name;
    }
    if (!found)
      return Expected(StrCat("policies of ", known, ", divided by commas, or none"), name);
  }
  return names;
}

void AddCacheOptions(CLI::App* app, GatesEvalArgs* args) {
  AddParsed(app, "--budget", &args->budgets, ParseBudgets,
            "Slots that survive a cut, per kv_head; several are measured in one pass (default 128)",
            "N,N,...");
  AddInt(app, "--chunk", &args->chunk, {"a number of tokens", 1},
         "Tokens between two cuts (default 64)");
  AddParsed(
      app, "--compare", &args->compare, ParseCompared,
      "Policies to measure beside the gates, or none; ratios are to the first of them (default "
      "streaming,random)",
      "NAME,...");
  AddInt(app, "--sinks", &args->protection.sinks, {"a number of tokens"},
         "Every policy keeps the first N positions (default 4)");
  AddInt(app, "--recent", &args->protection.recent, {"a number of tokens"},
         "Every policy keeps the last N positions (default 0)");
  AddInt(app, "-t,--threads", &args->n_threads, {"a number of threads", 1, 512},
         "Threads (default: cores and CPU quota of this process)");
  GroupNewOptions(app, "Cache");
  AddRepeated(app, "--gates", &args->gates, AsIs, "A gate file of the model; may be given again",
              "FILE");
  AddChoice(app, "--retention-score", &args->retention.score,
            std::vector<std::pair<std::string, Rt::Score>>{{"decay", Rt::Score::kDecay},
                                                           {"future", Rt::Score::kFuture}},
            "What gates score (default decay)");
  AddInt(app, "--horizon", &args->retention.horizon, {"a number of steps", 1},
         "--retention-score future: steps that count (default: all)");
  AddChoice<std::optional<Granularity>, Granularity>(app, "--granularity", &args->granularity,
                                                     {{"shared", Granularity::kShared},
                                                      {"per_layer", Granularity::kPerLayer},
                                                      {"per_head", Granularity::kPerHead}},
                                                     "What shares one choice (default per_head)");
  GroupNewOptions(app, "Gates (policy retention)");
}

void AddMeasureOptions(CLI::App* app, GatesEvalArgs* args) {
  AddRepeated(app, "--text", &args->texts, AsIs,
              "Held-out texts; of Project Gutenberg's books the licence is left out", "FILE")
      ->expected(1, -1)
      ->allow_extra_args();
  AddInt(app, "--texts", &args->n_text, {"a number of texts", 0, 100000},
         "Texts cut from the files, spread evenly (default 24); 0: facts only");
  AddInt(app, "--length", &args->length, {"a number of tokens", 2, 10000000},
         "Tokens of each text (default 2048)");
  AddInt(app, "--skip", &args->skip, {"a number of tokens"},
         "Tokens at the start of each text that are read, not measured (default 512)");
  app->add_flag("--facts", args->facts,
                "Also ask for facts that the texts mention once, in two probes");
  AddInt(app, "--items", &args->n_item, {"a number of items", 1, 100000},
         "Questions of each probe (default 32)");
  AddInt(app, "--item-length", &args->item_length, {"a number of tokens", 2, 10000000},
         "Tokens of each prompt (default 1500)");
  AddInt(app, "--seed", &args->seed, {"a seed", 0, std::numeric_limits<int64_t>::max()},
         "Of the facts and of the bootstrap (default 1)");
  GroupNewOptions(app, "Measurement");
  app->add_flag("--show", args->show, "Print every fact, question and answer");
  AddParsed(app, "--json", &args->json, AsIs, "Write all figures, those of each text too", "FILE");
  app->add_flag("--no-progress", args->no_progress, "No progress bar");
  GroupNewOptions(app, "Output");
}

Status Check(const GatesEvalArgs& args) {
  const auto refused = [](const std::string& option, const std::string& why) {
    return InvalidArgument(StrCat(option, ": ", why));
  };
  if (args.model.path.empty()) return refused("--model", "expected a file, found none");
  if (args.texts.empty()) return refused("--text", "expected at least one file, found none");
  if (args.gates.empty() && args.compare.empty()) {
    return refused("--gates", "expected a file, or policies to --compare, found neither");
  }
  if (args.n_text == 0 && !args.facts) return refused("--texts", "expected 0 with --facts only");
  if (args.n_text > 0 && args.length < args.skip + 2) {
    return refused("--length", StrCat("expected at least --skip + 2 = ", args.skip + 2,
                                      " tokens, found ", args.length));
  }
  const int64_t kept = int64_t{*args.protection.sinks} + *args.protection.recent;
  if (kept >= std::ranges::min(args.budgets)) {
    return refused("--budget", StrCat("expected more than the ", kept,
                                      " slots that --sinks and --recent protect, found ",
                                      std::ranges::min(args.budgets)));
  }
  if (args.retention.horizon > 0 && args.retention.score != Rt::Score::kFuture) {
    return refused("--horizon", "expected with --retention-score future only");
  }
  if (args.json.empty()) return Status::Ok();
  std::vector<std::string> inputs = args.texts;
  inputs.insert(inputs.end(), args.gates.begin(), args.gates.end());
  inputs.push_back(args.model.path);
  for (const std::string& input : inputs) {
    std::error_code error;
    if (std::filesystem::equivalent(args.json, input, error)) {
      return refused("--json", StrCat("expected a file to write, found ", Printable(args.json),
                                      ", which is read"));
    }
  }
  return Status::Ok();
}

// Names of gates in tables: their files' names, or their paths where names are the same.
std::vector<std::string> GateLabels(const std::vector<std::string>& paths) {
  std::vector<std::string> labels;
  for (const std::string& path : paths) {
    const std::string name = std::filesystem::path(path).filename().string();
    const bool unique = std::ranges::count_if(paths, [&](const std::string& other) {
                          return std::filesystem::path(other).filename() == name;
                        }) == 1;
    labels.push_back(unique ? name : path);
  }
  return labels;
}

std::vector<eval::FidelityPolicy> Policies(const GatesEvalArgs& args,
                                           const GatesEvalReport& report) {
  const std::vector<std::string> labels = GateLabels(args.gates);
  std::vector<eval::FidelityPolicy> policies;
  for (const int32_t budget : args.budgets) {
    for (size_t i = 0; i < labels.size(); ++i) {
      eval::FidelityPolicy& policy = policies.emplace_back();
      policy.label = labels[i];
      policy.policy.name = "retention";
      policy.policy.retention = args.retention;
      policy.policy.granularity = args.granularity;
      policy.gates = report.gates[i];
      policy.budget = budget;
    }
    for (const std::string& name : args.compare) {
      eval::FidelityPolicy& policy = policies.emplace_back();
      policy.label = name;
      policy.policy.name = name;
      policy.budget = budget;
    }
  }
  for (eval::FidelityPolicy& policy : policies) policy.protection = args.protection;
  return policies;
}

Status MeasureTexts(const GatesEvalArgs& args, const std::shared_ptr<const Model>& model,
                    GatesEvalReport* report) {
  KVBOUND_ASSIGN_OR_RETURN(
      const std::vector<eval::TextWindow> windows,
      eval::CutWindows(model->tokenizer(), args.texts, args.n_text, args.length));
  std::vector<std::vector<Token>> texts;
  for (const eval::TextWindow& window : windows) texts.push_back(window.tokens);
  const eval::FidelityOptions options{args.chunk, args.skip, args.n_threads};
  ProgressBar bar(!args.no_progress);
  KVBOUND_ASSIGN_OR_RETURN(report->fidelity,
                           eval::MeasureFidelity(model, texts, report->policies, options,
                                                 [&](int64_t done, int64_t all) {
                                                   bar.Update(done, all);
                                                   return !Interrupted();
                                                 }));
  return Status::Ok();
}

Status MeasureProbe(const GatesEvalArgs& args, const std::shared_ptr<const Model>& model,
                    eval::FactProbe probe, GatesEvalReport* report) {
  KVBOUND_ASSIGN_OR_RETURN(std::vector<eval::FactItem> items,
                           eval::MakeFactItems(model->tokenizer(), args.texts, probe,
                                               {args.n_item, args.item_length, args.seed}));
  eval::FactOptions options;
  options.chunk = args.chunk;
  options.n_threads = args.n_threads;
  ProgressBar bar(!args.no_progress);
  KVBOUND_ASSIGN_OR_RETURN(
      std::vector<eval::FactResult> results,
      eval::MeasureFacts(model, items, report->policies, options, [&](int64_t done, int64_t all) {
        bar.Update(done * args.item_length, all * args.item_length);
        return !Interrupted();
      }));
  report->facts.push_back({probe, std::move(items), std::move(results)});
  return Status::Ok();
}

Result<GatesEvalReport> Measure(const GatesEvalArgs& args) {
  GatesEvalReport report;
  for (const std::string& path : args.gates) {
    KVBOUND_ASSIGN_OR_RETURN(std::shared_ptr<const Gates> gates, Gates::Load(path));
    report.gates.push_back(std::move(gates));
  }
  KVBOUND_ASSIGN_OR_RETURN(const std::shared_ptr<const Model> model,
                           Model::Load(args.model.path, args.model.options));
  for (const auto& gates : report.gates) KVBOUND_RETURN_IF_ERROR(gates->CheckBase(*model));
  report.model = model->info();
  report.policies = Policies(args, report);
  if (args.n_text > 0) KVBOUND_RETURN_IF_ERROR(MeasureTexts(args, model, &report));
  if (args.facts) {
    for (const eval::FactProbe probe : {eval::FactProbe::kPassKey, eval::FactProbe::kInvented}) {
      KVBOUND_RETURN_IF_ERROR(MeasureProbe(args, model, probe, &report));
    }
  }
  return report;
}

int Fail(const Status& status, int exit_status) {
  PrintError(status.message());
  return exit_status;
}

int GatesEval(const GatesEvalArgs& args) {
  StartLogging(LogLevel::kError);
  if (Status status = Check(args); !status.ok()) return Fail(status, kExitUsage);
  InstallSignalHandlers(args.model.path);
  std::ofstream json;
  if (!args.json.empty()) {
    json.open(args.json);
    if (!json) {
      return Fail(IoError(StrCat("--json: ", Printable(args.json), ": ", std::strerror(errno))),
                  kExitFailure);
    }
  }
  const Result<GatesEvalReport> report = Measure(args);
  if (report.status().code() == StatusCode::kCancelled) return kExitInterrupted;
  if (!report.ok()) return Fail(report.status(), kExitFailure);
  if (json.is_open()) {
    json << Dump(GatesEvalRecord(args, *report)) << '\n';
    json.close();
    if (!json) return Fail(IoError(StrCat("--json: ", Printable(args.json))), kExitFailure);
  }
  TextOutput output;
  output.Write(GatesEvalText(args, *report));
  return output.status().ok() ? kExitOk : Fail(output.status(), kExitFailure);
}

}  // namespace

Command AddGatesEval(CLI::App* gates) {
  CLI::App* app = gates->add_subcommand(
      "eval", "What bounded caches lose against the uncut one, with gates and without");
  auto args = std::make_shared<GatesEvalArgs>();
  AddModelOptions(app, &args->model);
  AddCacheOptions(app, args.get());
  AddMeasureOptions(app, args.get());
  app->footer(
      "Example:\n"
      "  kvbound gates eval -m MODEL.gguf --gates GATES.gguf --text book.txt --budget 64,128 "
      "--facts");
  return {app, [args] { return GatesEval(*args); }};
}

}  // namespace kvbound::cli
