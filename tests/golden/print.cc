#include "golden/print.h"

#include <algorithm>
#include <cmath>
#include <iomanip>
#include <sstream>

#include "base/strings.h"

namespace kvbound::golden {
namespace {

constexpr size_t kMaxNames = 5;      // of quantities on one line
constexpr size_t kMaxFailures = 10;  // printed for one case; the JSON has all

const char* Word(Outcome outcome) {
  switch (outcome) {
    case Outcome::kPass:
      return "pass";
    case Outcome::kFail:
      return "FAIL";
    case Outcome::kSkip:
      return "skip";
  }
  return "";
}

std::string Scientific(double value) {
  std::ostringstream out;
  out << std::scientific << std::setprecision(1) << value;
  return out.str();
}

std::string Counts(const ChoiceCount& count) {
  if (count.total() == 0) return "-";
  return StrCat(count.equal, "/", count.inside_margin, "/", count.wrong);
}

std::string QuantityNames(const CaseReport& report) {
  std::string names;
  const size_t n = report.quantities().size();
  for (size_t i = 0; i < std::min(n, kMaxNames); ++i) {
    names += StrCat(i == 0 ? "" : " ", report.quantities()[i].name);
  }
  return n > kMaxNames ? StrCat(names, " +", n - kMaxNames) : names;
}

}  // namespace

TablePrinter::TablePrinter(std::ostream& out, const std::vector<std::string>& names, bool verbose)
    : out_(out), verbose_(verbose) {
  for (const std::string& name : names) name_width_ = std::max(name_width_, name.size());
}

void TablePrinter::PrintHeader() {
  out_ << "kept sets and tokens: equal / differing inside the reference's margin / wrong\n"
       << std::left << std::setw(8) << "result" << std::setw(static_cast<int>(name_width_) + 2)
       << "case" << std::setw(26) << "nearest its tolerance" << std::setw(20)
       << "difference of most" << std::setw(11) << "kept" << std::setw(11) << "tokens"
       << std::setw(8) << "seconds"
       << "compared\n";
}

void TablePrinter::Print(const CaseResult& result) {
  const CaseReport& report = result.report;
  out_ << std::left << std::setw(8) << Word(result.outcome)
       << std::setw(static_cast<int>(name_width_) + 2) << result.name;
  if (const Quantity* worst = report.Worst()) {
    out_ << std::setw(26) << worst->name << std::setw(20)
         << StrCat(Scientific(worst->max_diff), " of ", Scientific(worst->tolerance))
         << std::setw(11) << Counts(report.kept()) << std::setw(11) << Counts(report.tokens())
         << std::setw(8) << StrCat(std::round(result.seconds * 10) / 10) << QuantityNames(report);
    if (!result.reason.empty()) out_ << "\n        ";
  }
  out_ << result.reason << "\n";
  if (verbose_) {
    for (const Quantity& quantity : report.quantities()) {
      out_ << "        " << (quantity.ok ? "ok    " : "WRONG ") << std::setw(28) << quantity.name
           << StrCat(Scientific(quantity.max_diff), " of ", Scientific(quantity.tolerance), ", ",
                     quantity.n_values, " values\n");
    }
  }
  for (size_t i = 0; i < std::min(report.failures().size(), kMaxFailures); ++i) {
    out_ << "        wrong: " << report.failures()[i] << "\n";
  }
  if (report.failures().size() > kMaxFailures) {
    out_ << "        and " << report.failures().size() - kMaxFailures << " more\n";
  }
  for (const std::string& note : report.notes()) out_ << "        note: " << note << "\n";
  out_.flush();
}

void TablePrinter::PrintSummary(const RunSummary& summary) {
  out_ << summary.n_pass << " passed, " << summary.n_fail << " failed, " << summary.n_skip
       << " skipped\n";
  if (summary.n_pass + summary.n_fail == 0) out_ << "no case ran\n";
}

nlohmann::json ToJson(const CaseResult& result) {
  const auto counts = [](const ChoiceCount& count) {
    return nlohmann::json{
        {"equal", count.equal}, {"inside_margin", count.inside_margin}, {"wrong", count.wrong}};
  };
  nlohmann::json quantities = nlohmann::json::array();
  for (const Quantity& quantity : result.report.quantities()) {
    quantities.push_back({{"name", quantity.name},
                          {"n_values", quantity.n_values},
                          {"max_diff", quantity.max_diff},
                          {"tolerance", quantity.tolerance},
                          {"ok", quantity.ok}});
  }
  return {{"case", result.name},
          {"outcome", Word(result.outcome)},
          {"reason", result.reason},
          {"seconds", result.seconds},
          {"quantities", quantities},
          {"kept_sets", counts(result.report.kept())},
          {"tokens", counts(result.report.tokens())},
          {"failures", result.report.failures()},
          {"notes", result.report.notes()}};
}

}  // namespace kvbound::golden
