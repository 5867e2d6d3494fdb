#ifndef KVBOUND_TESTS_GOLDEN_PRINT_H_
#define KVBOUND_TESTS_GOLDEN_PRINT_H_

#include <nlohmann/json.hpp>
#include <ostream>

#include "golden/run_cases.h"

namespace kvbound::golden {

// A line for each case as it ends, aligned to the longest name.
class TablePrinter {
 public:
  // `verbose`: a line for each compared quantity below the case's.
  TablePrinter(std::ostream& out, const std::vector<std::string>& names, bool verbose);

  void PrintHeader();
  void Print(const CaseResult& result);
  void PrintSummary(const RunSummary& summary);

 private:
  std::ostream& out_;
  size_t name_width_ = 0;
  bool verbose_ = false;
};

nlohmann::json ToJson(const CaseResult& result);

}  // namespace kvbound::golden

#endif  // KVBOUND_TESTS_GOLDEN_PRINT_H_
