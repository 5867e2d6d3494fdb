#ifndef KVBOUND_TESTS_GOLDEN_GROUPS_H_
#define KVBOUND_TESTS_GOLDEN_GROUPS_H_

#include <memory>
#include <string>

#include "golden/case_file.h"
#include "golden/compare.h"
#include "golden/session_run.h"
#include "kvbound/model.h"
#include "kvbound/status.h"

namespace kvbound::golden {

// What runs a case: the model that the case names, held in f32.
struct Subject {
  std::shared_ptr<const Model> model;
  RunnerOptions options;
};

// Runs one case on the engine and adds what it compared to the report. An error: the case file
// is malformed, or the engine refused.
using RunCase = Status (*)(const CaseFile& file, const Subject& subject, CaseReport* report);

// How a case is run, or why not.
struct CaseKind {
  RunCase run = nullptr;
  std::string skip_reason;  // set iff run is null
};

// By group, method and fields of the header, and by what the method needs.
Result<CaseKind> KindOf(const CaseFile& file, AttentionPath attention);

// The groups; each has a file of its own.
Status RunLogitsCase(const CaseFile& file, const Subject& subject, CaseReport* report);
Status RunScoresCase(const CaseFile& file, const Subject& subject, CaseReport* report);
Status RunKeepCase(const CaseFile& file, const Subject& subject, CaseReport* report);
Status RunCycleCase(const CaseFile& file, const Subject& subject, CaseReport* report);
Status RunTrainCase(const CaseFile& file, const Subject& subject, CaseReport* report);
// Empty where this build can train gates.
std::string WhyTrainCaseIsSkipped();
// Empty where RunCycleCase knows the method, and the method can do with this attention.
std::string WhyCycleMethodIsSkipped(const std::string& method, AttentionPath attention);

}  // namespace kvbound::golden

#endif  // KVBOUND_TESTS_GOLDEN_GROUPS_H_
