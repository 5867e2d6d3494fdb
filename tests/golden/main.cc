// kvbound-golden: runs the cases of a golden folder on the engine and compares.

#include <CLI/CLI.hpp>
#include <fstream>
#include <iostream>

#include "golden/print.h"
#include "golden/run_cases.h"

namespace {

using kvbound::AttentionPath;
using kvbound::golden::NamedModel;
using kvbound::golden::RunRequest;

constexpr int kExitFailed = 1;  // a case failed, or none ran
constexpr int kExitUsage = 2;   // the command line, the folder or a model

struct CommandLine {
  RunRequest request;
  std::string json_file;
  bool verbose = false;
};

int Run(const CommandLine& command) {
  const auto names = ListCases(command.request);
  if (!names.ok()) {
    std::cerr << "kvbound-golden: " << names.status() << "\n";
    return kExitUsage;
  }
  std::ofstream json_out;
  if (!command.json_file.empty()) {
    json_out.open(command.json_file);
    if (!json_out) {
      std::cerr << "kvbound-golden: --json " << command.json_file << ": cannot be written\n";
      return kExitUsage;
    }
  }
  kvbound::golden::TablePrinter table(std::cout, *names, command.verbose);
  nlohmann::json results = nlohmann::json::array();
  table.PrintHeader();
  const auto summary = RunCases(command.request, [&](const kvbound::golden::CaseResult& result) {
    table.Print(result);
    results.push_back(ToJson(result));
  });
  if (!summary.ok()) {
    std::cerr << "kvbound-golden: " << summary.status() << "\n";
    return kExitUsage;
  }
  table.PrintSummary(*summary);
  if (json_out.is_open()) {
    json_out << results.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) << "\n";
    if (!json_out.flush()) {
      std::cerr << "kvbound-golden: --json " << command.json_file << ": cannot be written\n";
      return kExitUsage;
    }
  }
  return summary->ok() ? 0 : kExitFailed;
}

}  // namespace

int main(int argc, char** argv) {
  CommandLine command;
  std::string cases;
  std::vector<std::string> models;
  CLI::App app{
      "Compares the engine (f32 weights and cache) with the cases of a golden folder.\n"
      "Exit status: 0 all pass, 1 a case failed or none ran, 2 nothing could be run."};
  app.name("kvbound-golden");
  app.add_option("--cases", cases, "Folder with cases, read with its subfolders")->required();
  app.add_option("--model", models,
                 "NAME=FILE: the model that cases call NAME; GGUF, or llama2.c's .bin")
      ->required();
  app.add_option("--filter", command.request.filters,
                 "Run only cases whose name has one of these in it");
  app.add_option("--json", command.json_file, "Write every result to this file");
  app.add_option("--threads", command.request.options.n_threads, "0: all that may be used")
      ->check(CLI::Range(0, 4096));
  const std::map<std::string, AttentionPath> paths = {{"auto", AttentionPath::kAuto},
                                                      {"stock", AttentionPath::kStock},
                                                      {"fused", AttentionPath::kFused},
                                                      {"flash", AttentionPath::kFlash}};
  app.add_option("--attention", command.request.options.attention, "auto, fused, stock or flash")
      ->transform(CLI::CheckedTransformer(paths).description(""));
  app.add_flag("--verbose", command.verbose, "Print a line for each compared quantity");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kExitUsage;
  }
  command.request.cases = cases;
  for (const std::string& model : models) {
    const size_t equals = model.find('=');
    if (equals == std::string::npos || equals == 0) {
      std::cerr << "kvbound-golden: --model: expected NAME=FILE, found '" << model << "'\n";
      return kExitUsage;
    }
    command.request.models.push_back({model.substr(0, equals), model.substr(equals + 1)});
  }
  return Run(command);
}
