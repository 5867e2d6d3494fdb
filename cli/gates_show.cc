#include <cinttypes>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "cli/gates.h"
#include "cli/logging.h"
#include "cli/options.h"
#include "cli/report.h"
#include "cli/terminal.h"
#include "kvbound/gates.h"

namespace kvbound::cli {
namespace {

using Json = nlohmann::ordered_json;

std::string Hex(uint64_t hash) {
  char text[20];
  std::snprintf(text, sizeof(text), "%016" PRIx64, hash);
  return text;
}

std::string Number(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.4g", value);
  return text;
}

uint64_t FileSize(const std::string& path) {
  std::error_code error;
  const auto size = std::filesystem::file_size(path, error);
  return error ? 0 : static_cast<uint64_t>(size);
}

Json GatesRecord(const Gates& gates) {
  const Gates::Parts& parts = gates.parts();
  Json hidden = Json::array();
  for (const GateLinear& linear : parts.layers[0].hidden) hidden.push_back(linear.weight.n_row);
  const BaseModel& base = parts.base;
  const GateTraining& training = parts.training;
  return {{"path", gates.path()},
          {"file_bytes", FileSize(gates.path())},
          {"base",
           {{"architecture", base.architecture},
            {"name", base.name},
            {"n_layer", base.n_layer},
            {"n_embd", base.n_embd},
            {"n_kv_head", base.n_kv_head},
            {"n_vocab", base.n_vocab},
            {"norm_hash", base.norm_hash == 0 ? Json() : Json(Hex(base.norm_hash))}}},
          {"hidden", hidden},
          {"activation", GateActivationName(parts.activation)},
          {"tied_output", parts.tied_output},
          {"type", GateTypeName(gates.type())},
          {"parameters", gates.n_parameter()},
          {"weight_bytes", gates.weight_bytes()},
          {"training",
           {{"method", training.method},
            {"texts", training.texts},
            {"tokens", training.tokens},
            {"steps", training.steps},
            {"seq_len", training.seq_len},
            {"memory", training.memory},
            {"seed", training.seed},
            {"fact_share", training.fact_share},
            {"loss", training.loss},
            {"capacity_loss", training.capacity_loss},
            {"eviction_kl", training.eviction_kl}}}};
}

std::string BaseText(const BaseModel& base) {
  return StrCat(base.name.empty() ? "(no name)" : base.name, " (", base.architecture, "), ",
                base.n_layer, " layers, width ", Grouped(base.n_embd), ", ", base.n_kv_head,
                " KV heads",
                base.n_vocab == 0 ? "" : StrCat(", vocabulary ", Grouped(base.n_vocab)));
}

std::string ShapeText(const Gates::Parts& parts) {
  std::string text = StrCat(parts.base.n_embd);
  for (const GateLinear& linear : parts.layers[0].hidden) {
    text += StrCat(" -> ", linear.weight.n_row);
  }
  return StrCat(text, " -> ", parts.base.n_kv_head, " in each layer, ",
                GateActivationName(parts.activation),
                parts.tied_output ? "; one output shared by all layers" : "");
}

// What is known of the training, one row each.
Table TrainingRows(const GateTraining& training) {
  Table rows;
  rows.emplace_back("training", training.method.empty() ? "unknown" : training.method);
  if (training.tokens > 0) {
    rows.emplace_back("  read",
                      StrCat(Grouped(training.tokens), " tokens in ", Grouped(training.steps),
                             " steps, sequences of ", Grouped(training.seq_len)));
    rows.emplace_back("  memory",
                      StrCat(Grouped(training.memory), " tokens per KV head without a penalty"));
    rows.emplace_back("  facts", StrCat(Number(100 * training.fact_share),
                                        " % of the sequences carry generated facts"));
    rows.emplace_back("  seed", StrCat(training.seed));
    rows.emplace_back("  loss", StrCat(Number(training.loss), ", of which capacity ",
                                       Number(training.capacity_loss)));
  }
  if (training.eviction_kl > 0) {
    rows.emplace_back("  eviction KL",
                      StrCat(Number(training.eviction_kl), " nats per token to the uncut model"));
  }
  for (size_t i = 0; i < training.texts.size(); ++i) {
    rows.emplace_back(i == 0 ? "  texts" : "", training.texts[i]);
  }
  return rows;
}

Table GatesTable(const Gates& gates) {
  const Gates::Parts& parts = gates.parts();
  Table table = {
      {"file", StrCat(gates.path(), ", ", HumanBytes(FileSize(gates.path())))},
      {"base model", BaseText(parts.base)},
      {"  norm hash", parts.base.norm_hash == 0 ? "unknown: only the shapes are checked"
                                                : Hex(parts.base.norm_hash)},
      {"gate", ShapeText(parts)},
      {"parameters", StrCat(Grouped(gates.n_parameter()), ", ", GateTypeName(gates.type()), ", ",
                            HumanBytes(gates.weight_bytes()), " in memory")},
  };
  const Table training = TrainingRows(parts.training);
  table.insert(table.end(), training.begin(), training.end());
  return table;
}

int Show(const std::string& path, bool json) {
  StartLogging(LogLevel::kWarning);
  const auto gates = Gates::Load(path);
  if (!gates.ok()) {
    PrintError(gates.status().message());
    return kExitFailure;
  }
  if (json) {
    std::printf("%s\n", Dump(GatesRecord(**gates)).c_str());
  } else {
    for (const auto& [name, value] : GatesTable(**gates)) {
      std::printf("%-13s %s\n", name.c_str(), value.c_str());
    }
  }
  if (std::fflush(stdout) == 0) return kExitOk;
  PrintError("standard output: cannot write");
  return kExitFailure;
}

}  // namespace

Command AddGatesShow(CLI::App* gates) {
  CLI::App* show = gates->add_subcommand("show", "What is in a gate file, and how it was trained");
  auto path = std::make_shared<std::string>();
  auto json = std::make_shared<bool>(false);
  AddParsed(show, "file", path.get(), AsIs, "A gate file", "FILE")->required();
  show->add_flag("--json", *json, "Print one JSON object");
  return {show, [path, json] { return Show(*path, *json); }};
}

}  // namespace kvbound::cli
