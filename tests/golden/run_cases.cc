#include "golden/run_cases.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <utility>

#include "base/strings.h"
#include "golden/case_file.h"
#include "golden/golden_model.h"
#include "golden/groups.h"

namespace kvbound::golden {
namespace {

// The models of a request, each loaded once.
class ModelShelf {
 public:
  explicit ModelShelf(const std::vector<NamedModel>& models) {
    for (const NamedModel& model : models) files_[model.name] = model.file;
  }

  bool Has(const std::string& name) const { return files_.contains(name); }

  Result<std::shared_ptr<const Model>> Get(const std::string& name) {
    std::shared_ptr<const Model>& loaded = loaded_[name];
    if (loaded == nullptr) {
      KVBOUND_ASSIGN_OR_RETURN(loaded, LoadGoldenModel(files_.at(name)));
    }
    return loaded;
  }

 private:
  std::map<std::string, std::string> files_;
  std::map<std::string, std::shared_ptr<const Model>> loaded_;
};

CaseResult Failed(CaseResult result, const Status& status) {
  result.outcome = Outcome::kFail;
  result.reason = status.message();
  return result;
}

CaseResult Skipped(CaseResult result, std::string reason) {
  result.outcome = Outcome::kSkip;
  result.reason = std::move(reason);
  return result;
}

// An error: the case's model cannot be loaded.
Result<CaseResult> RunOne(const RunRequest& request, const std::string& name, ModelShelf* shelf) {
  CaseResult result;
  result.name = name;
  Result<CaseFile> file = CaseFile::Read(request.cases / (name + ".json"), name);
  if (!file.ok()) return Failed(result, file.status());
  const Result<std::string> model_name = file->Text("model");
  if (!model_name.ok()) return Failed(result, model_name.status());
  const Result<CaseKind> kind = KindOf(*file, request.options.attention);
  if (!kind.ok()) return Failed(result, kind.status());
  if (kind->run == nullptr) return Skipped(result, kind->skip_reason);
  if (!shelf->Has(*model_name)) {
    return Skipped(result, StrCat("no --model ", Printable(*model_name), "=FILE given"));
  }
  if (const Status status = file->LoadArrays(); !status.ok()) return Failed(result, status);

  Subject subject{nullptr, request.options};
  KVBOUND_ASSIGN_OR_RETURN(subject.model, shelf->Get(*model_name));
  const auto start = std::chrono::steady_clock::now();
  const Status status = kind->run(*file, subject, &result.report);
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (!status.ok()) return Failed(result, status);
  result.outcome = result.report.passed() ? Outcome::kPass : Outcome::kFail;
  if (!result.report.has_compared()) result.reason = "nothing was compared";
  return result;
}

}  // namespace

Result<std::vector<std::string>> ListCases(const RunRequest& request) {
  namespace fs = std::filesystem;
  std::error_code error;
  std::vector<std::string> names;
  auto it = fs::recursive_directory_iterator(request.cases, error);
  for (; !error && it != fs::recursive_directory_iterator(); it.increment(error)) {
    if (it->path().extension() != ".json") continue;
    const std::string name =
        it->path().lexically_relative(request.cases).replace_extension().generic_string();
    const bool chosen =
        request.filters.empty() ||
        std::any_of(request.filters.begin(), request.filters.end(), [&](const std::string& filter) {
          return name.find(filter) != std::string::npos;
        });
    if (chosen) names.push_back(name);
  }
  if (error) return NotFound(StrCat("folder ", request.cases.string(), ": ", error.message()));
  std::sort(names.begin(), names.end());
  return names;
}

Result<RunSummary> RunCases(const RunRequest& request,
                            const std::function<void(const CaseResult&)>& on_result) {
  KVBOUND_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListCases(request));
  ModelShelf shelf(request.models);
  RunSummary summary;
  for (const std::string& name : names) {
    KVBOUND_ASSIGN_OR_RETURN(const CaseResult result, RunOne(request, name, &shelf));
    if (result.outcome == Outcome::kPass) ++summary.n_pass;
    if (result.outcome == Outcome::kFail) ++summary.n_fail;
    if (result.outcome == Outcome::kSkip) ++summary.n_skip;
    on_result(result);
  }
  return summary;
}

}  // namespace kvbound::golden
