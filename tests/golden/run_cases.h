#ifndef KVBOUND_TESTS_GOLDEN_RUN_CASES_H_
#define KVBOUND_TESTS_GOLDEN_RUN_CASES_H_

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "golden/compare.h"
#include "golden/session_run.h"
#include "kvbound/status.h"

namespace kvbound::golden {

struct NamedModel {
  std::string name;  // as in the cases' field "model"
  std::string file;  // see LoadGoldenModel
};

struct RunRequest {
  std::filesystem::path cases;       // a folder, read with its subfolders
  std::vector<NamedModel> models;    // loaded when the first case needs them
  std::vector<std::string> filters;  // a case runs if its name has one of them; empty: all
  RunnerOptions options;
};

enum class Outcome { kPass, kFail, kSkip };

struct CaseResult {
  std::string name;  // path below the folder, without ".json"
  Outcome outcome = Outcome::kSkip;
  std::string reason;  // of a skip, or the error that ended the case
  CaseReport report;
  double seconds = 0;
};

struct RunSummary {
  int64_t n_pass = 0;
  int64_t n_fail = 0;
  int64_t n_skip = 0;
  // No case failed, and there was one to fail.
  bool ok() const { return n_fail == 0 && n_pass > 0; }
};

// Names of all cases (*.json) of the folder that pass the filters, ascending.
Result<std::vector<std::string>> ListCases(const RunRequest& request);

// Runs the cases one after the other and hands out each result when it is there. A malformed
// case fails and the rest go on. An error: the folder or a model cannot be read.
Result<RunSummary> RunCases(const RunRequest& request,
                            const std::function<void(const CaseResult&)>& on_result);

}  // namespace kvbound::golden

#endif  // KVBOUND_TESTS_GOLDEN_RUN_CASES_H_
