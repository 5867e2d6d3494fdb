#ifndef KVBOUND_CLI_OPTIONS_H_
#define KVBOUND_CLI_OPTIONS_H_

#include <CLI/App.hpp>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/values.h"
#include "kvbound/status.h"
#include "src/base/strings.h"

// Declares options whose values are checked by the parsers of values.h, so that every message
// reads "--option: expected ..., found '...'".
namespace kvbound::cli {

inline constexpr int64_t kInt32Max = std::numeric_limits<int32_t>::max();

// The longest spelling, which messages use: "--budget".
inline std::string LongName(const std::string& names) {
  const size_t start = names.rfind(',');
  return start == std::string::npos ? names : names.substr(start + 1);
}

// Calls `store` with the text of each occurrence; what it returns as an error ends the parsing.
inline CLI::Option* AddOption(CLI::App* app, const std::string& names,
                              std::function<Status(const std::string&)> store,
                              const std::string& help, const std::string& type) {
  const auto callback = [store, names](const CLI::results_t& texts) {
    for (const std::string& text : texts) {
      if (Status status = store(text); !status.ok()) {
        throw CLI::ValidationError(LongName(names), status.message());
      }
    }
    return true;
  };
  return app->add_option(names, callback, help)->type_name(type);
}

// `value` is a T or an optional<T>, set when the option is given.
template <typename Value, typename Parse>
CLI::Option* AddParsed(CLI::App* app, const std::string& names, Value* value, Parse parse,
                       const std::string& help, const std::string& type) {
  const auto store = [value, parse](const std::string& text) -> Status {
    auto parsed = parse(text);
    if (!parsed.ok()) return parsed.status();
    *value = std::move(*parsed);
    return Status::Ok();
  };
  return AddOption(app, names, store, help, type);
}

// An option that may be given several times.
template <typename Item, typename Parse>
CLI::Option* AddRepeated(CLI::App* app, const std::string& names, std::vector<Item>* values,
                         Parse parse, const std::string& help, const std::string& type) {
  const auto store = [values, parse](const std::string& text) -> Status {
    auto parsed = parse(text);
    if (!parsed.ok()) return parsed.status();
    values->push_back(std::move(*parsed));
    return Status::Ok();
  };
  return AddOption(app, names, store, help, type)->take_all();
}

struct IntRange {
  std::string what;  // "a number of slots"
  int64_t min = 0;
  int64_t max = kInt32Max;
};

template <typename Value>
CLI::Option* AddInt(CLI::App* app, const std::string& names, Value* value, IntRange range,
                    const std::string& help) {
  return AddParsed(
      app, names, value,
      [range](const std::string& text) { return ParseInt(text, range.what, range.min, range.max); },
      help, "N");
}

struct FloatRange {
  std::string what;
  float min = 0;
  float max = std::numeric_limits<float>::max();
};

template <typename Value>
CLI::Option* AddFloat(CLI::App* app, const std::string& names, Value* value, FloatRange range,
                      const std::string& help) {
  return AddParsed(
      app, names, value,
      [range](const std::string& text) {
        return ParseFloat(text, range.what, range.min, range.max);
      },
      help, "X");
}

// One of a few words. `choices` maps each to its value.
template <typename Value, typename T>
CLI::Option* AddChoice(CLI::App* app, const std::string& names, Value* value,
                       std::vector<std::pair<std::string, T>> choices, const std::string& help) {
  std::string words;
  for (const auto& choice : choices) {
    if (!words.empty()) words += '|';
    words += choice.first;
  }
  return AddParsed(
      app, names, value,
      [choices, words](const std::string& text) -> Result<T> {
        for (const auto& choice : choices) {
          if (choice.first == text) return choice.second;
        }
        return Expected(words, text);
      },
      help, words);
}

// --NAME sets it, --no-NAME clears it, and neither leaves it open.
inline CLI::Option* AddSwitch(CLI::App* app, const std::string& name, std::optional<bool>* value,
                              const std::string& help) {
  const auto store = [value](int64_t balance) { *value = balance > 0; };
  return app->add_flag_function(StrCat("--", name, ",!--no-", name), store, help);
}

inline Result<std::string> AsIs(const std::string& text) { return text; }

// Moves the options declared since the last call under a heading of the help text.
inline void GroupNewOptions(CLI::App* app, const std::string& heading) {
  for (CLI::Option* option : app->get_options()) {
    if (option->get_group() == "Options" && option != app->get_help_ptr()) option->group(heading);
  }
}

}  // namespace kvbound::cli

#endif  // KVBOUND_CLI_OPTIONS_H_
