#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <memory>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/commands.h"
#include "cli/logging.h"
#include "kvbound/version.h"
#include "src/model/cpu_check.h"

namespace kvbound::cli {
namespace {

// Descriptions wrapped at column 100; no marks beside flags that switch something off.
class HelpFormatter : public CLI::Formatter {
 public:
  HelpFormatter() { column_width(kColumn); }

  std::string make_option_name(const CLI::Option* option, bool positional) const override {
    std::string name = CLI::Formatter::make_option_name(option, positional);
    for (size_t at; (at = name.find("{false}")) != std::string::npos;) name.erase(at, 7);
    return name;
  }

  std::string make_option_desc(const CLI::Option* option) const override {
    std::istringstream words(CLI::Formatter::make_option_desc(option));
    std::string wrapped;
    size_t width = 0;
    for (std::string word; words >> word; width += word.size() + 1) {
      const bool full = width + word.size() > 100 - kColumn;
      if (!wrapped.empty()) wrapped += full ? '\n' : ' ';
      if (full) width = 0;
      wrapped += word;
    }
    return wrapped;
  }

 private:
  static constexpr size_t kColumn = 38;
};

// llama.cpp's short names of more than one letter, which CLI11 does not know.
constexpr std::array<std::pair<std::string_view, std::string_view>, 5> kShortNames = {
    {{"-sys", "--system-prompt"},
     {"-ctk", "--cache-type-k"},
     {"-ctv", "--cache-type-v"},
     {"-fa", "--attention"},
     {"-np", "--parallel"}}};

bool TakesValue(const CLI::App& app, const std::string& argument) {
  for (const CLI::App* command : app.get_subcommands({})) {
    const CLI::Option* option = command->get_option_no_throw(argument);
    if (option && option->get_items_expected_min() > 0) return true;
    if (TakesValue(*command, argument)) return true;
  }
  return false;
}

// The arguments with short names replaced; the values of options stay as they are.
std::vector<std::string> Expand(const CLI::App& app, int argc, char** argv) {
  std::vector<std::string> arguments;
  for (int i = 1; i < argc; ++i) {
    std::string argument = argv[i];
    for (const auto& [name, long_name] : kShortNames) {
      if (argument == name) argument = long_name;
    }
    arguments.push_back(argument);
    if (TakesValue(app, argument) && i + 1 < argc) arguments.push_back(argv[++i]);
  }
  return arguments;
}

}  // namespace

int Main(int argc, char** argv) {
  CLI::App app("kvbound: language model inference with a KV cache that never grows past its budget",
               "kvbound");
  app.set_version_flag("--version", std::string("kvbound ") + kVersion);
  app.formatter(std::make_shared<HelpFormatter>());
  const Command commands[] = {AddRun(&app), AddPlan(&app), AddPolicies(&app), AddGates(&app),
                              AddInspect(&app)};
  try {
    std::vector<std::string> arguments = Expand(app, argc, argv);
    std::reverse(arguments.begin(), arguments.end());  // as CLI11 wants them
    app.parse(std::move(arguments));
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
    PrintError(error.what());
    return kExitUsage;
  }
  if (Status status = CheckCpuFeatures(); !status.ok()) {
    PrintError(status.message());
    return kExitFailure;
  }
  for (const Command& command : commands) {
    if (command.app->parsed()) return command.run();
  }
  PrintError("expected a subcommand, found none; see kvbound --help");
  return kExitUsage;
}

}  // namespace kvbound::cli
