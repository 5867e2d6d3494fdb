#include "report_common.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

namespace kvbound::bench {

Arguments::Arguments(int argc, char** argv, const std::vector<std::string>& names) {
  const auto usage = [&](const std::string& problem) {
    std::string list;
    for (const std::string& name : names) list += " [--" + name + " VALUE]";
    Fail(problem + "usage: " + argv[0] + list);
  };
  for (int i = 1; i < argc; ++i) {
    std::string name = argv[i];
    if (name.rfind("--", 0) == 0) name = name.substr(2);
    if (std::find(names.begin(), names.end(), name) == names.end()) {
      usage(name == "help" ? "" : "unknown argument '" + std::string(argv[i]) + "'\n");
    }
    const bool has_value = i + 1 < argc && std::string(argv[i + 1]).rfind("--", 0) != 0;
    names_.push_back(name);
    values_.push_back(has_value ? argv[++i] : "");
  }
}

bool Arguments::Has(const std::string& name) const {
  return std::find(names_.begin(), names_.end(), name) != names_.end();
}

std::string Arguments::Text(const std::string& name, const std::string& otherwise) const {
  const auto found = std::find(names_.begin(), names_.end(), name);
  return found == names_.end() ? otherwise : values_[found - names_.begin()];
}

int64_t Arguments::Int(const std::string& name, int64_t otherwise) const {
  if (!Has(name)) return otherwise;
  const std::string text = Text(name, "");
  char* end = nullptr;
  const int64_t value = std::strtoll(text.c_str(), &end, 10);
  if (text.empty() || *end != '\0' || value < 0) {
    Fail("--" + name + ": expected a number, found '" + text + "'");
  }
  return value;
}

double Samples::Median() const {
  if (values_.empty()) return 0;
  std::vector<double> sorted = values_;
  std::sort(sorted.begin(), sorted.end());
  const size_t middle = sorted.size() / 2;
  return sorted.size() % 2 == 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

std::string Samples::Text(int digits) const {
  if (values_.empty()) return "-";
  const auto [low, high] = std::minmax_element(values_.begin(), values_.end());
  if (values_.size() == 1) return Number(*low, digits);
  return Number(Median(), digits) + " (" + Number(*low, digits) + "-" + Number(*high, digits) + ")";
}

void Table::Print() const {
  std::vector<size_t> widths;
  for (const auto& row : rows_) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  for (size_t r = 0; r < rows_.size(); ++r) {
    std::string line = "|";
    for (size_t i = 0; i < widths.size(); ++i) {
      std::string cell = i < rows_[r].size() ? rows_[r][i] : "";
      cell.resize(widths[i], ' ');
      line += " " + cell + " |";
    }
    std::printf("%s\n", line.c_str());
    if (r > 0) continue;
    std::string rule(1, '|');
    for (size_t width : widths) rule += std::string(width + 2, '-') + "|";
    std::printf("%s\n", rule.c_str());
  }
  std::printf("\n");
  std::fflush(stdout);
}

std::string Number(double value, int digits) {
  char text[64];
  std::snprintf(text, sizeof(text), "%.*f", digits, value);
  return text;
}

void PrintTarget(const std::string& name, double value, double target, bool at_most) {
  const bool met = at_most ? value <= target : value >= target;
  std::printf("%s: %.3f (target %s %g: %s)\n", name.c_str(), value, at_most ? "<=" : ">=", target,
              met ? "met" : "missed");
  std::fflush(stdout);
}

void Fail(const std::string& message) {
  std::fprintf(stderr, "%s\n", message.c_str());
  std::exit(1);
}

}  // namespace kvbound::bench
