// G4, training: the student's logits, the losses and the gradient of each with respect to every
// gate parameter.

#include "golden/groups.h"

#ifdef KVBOUND_HAS_TRAIN

#include <torch/torch.h>

#include <cmath>
#include <map>
#include <optional>
#include <vector>

#include "base/strings.h"
#include "golden/golden_gates.h"
#include "model/loaded_model.h"
#include "train/full_objective.h"

namespace kvbound::golden {
namespace {

using train::CapacityForm;
using train::FullLoss;
using train::FullOptions;
using train::Sequence;
using train::Tensor;

constexpr int64_t kMaxTokens = 1024;
constexpr int64_t kMaskedLabels = 32;

// A loss of the file and the weights that make it.
struct Component {
  const char* name;
  double kl;
  double ce;
  double capacity;
  CapacityForm form;
};

constexpr Component kComponents[] = {
    {"kl", 1, 0, 0, CapacityForm::kCode},
    {"ce", 0, 1, 0, CapacityForm::kCode},
    {"cap_code", 0, 0, 1, CapacityForm::kCode},
    {"cap_paper", 0, 0, 1, CapacityForm::kPaper},
    {"total_code", 0.5, 0.5, 1, CapacityForm::kCode},
    {"total_paper", 1, 1, 1, CapacityForm::kPaper},
};

FullOptions OptionsOf(const Component& component, int64_t memory) {
  FullOptions options;
  options.memory = memory;
  options.kl_weight = component.kl;
  options.ce_weight = component.ce;
  options.capacity_weight = component.capacity;
  options.form = component.form;
  return options;
}

Sequence SequenceOf(const std::vector<int32_t>& tokens, int64_t n_ignored) {
  const auto n = static_cast<int64_t>(tokens.size());
  Sequence sequence;
  sequence.tokens = torch::tensor(tokens).to(torch::kLong);
  sequence.positions = torch::arange(n);
  sequence.document = torch::zeros({n}, torch::kLong);
  sequence.labels = sequence.tokens.clone();
  sequence.labels.slice(0, 0, n_ignored).fill_(train::kIgnoredLabel);
  sequence.row_weight = torch::ones({n});
  return sequence;
}

Tensor ToTensor(const std::vector<float>& values) { return torch::tensor(values); }

// |found - expected| relative to |expected|, both as vectors.
void CompareRelative(const std::string& what, const std::string& where, const Tensor& expected,
                     const Tensor& found, CaseReport* report) {
  const Tensor difference =
      found.detach().flatten().to(torch::kDouble) - expected.flatten().to(torch::kDouble);
  const double size = expected.to(torch::kDouble).norm().item<double>();
  const double distance = difference.norm().item<double>();
  const double relative = distance == 0 ? 0 : distance / size;
  const bool ok = relative <= kTrainTolerance;
  report->Add({what, expected.numel(), relative, kTrainTolerance, ok});
  if (!ok) {
    report->Fail(StrCat(what, " (", where, "): expected a relative error of at most ",
                        kTrainTolerance, ", found ", relative));
  }
}

class TrainCase {
 public:
  TrainCase(const CaseFile& file, const train::BaseTransformer& base, CaseReport* report)
      : file_(file), base_(base), report_(*report) {}

  Status Run() {
    KVBOUND_ASSIGN_OR_RETURN(tokens_, file_.Ints("token_ids", base_.hparams().n_vocab));
    const auto n = static_cast<int64_t>(tokens_.size());
    if (n <= kMaskedLabels || n > kMaxTokens) {
      return file_.FieldError("token_ids", StrCat(kMaskedLabels + 1, "..", kMaxTokens, " ids"),
                              StrCat(n));
    }
    KVBOUND_ASSIGN_OR_RETURN(memory_, file_.Int("M", 1, kMaxTokens));
    KVBOUND_ASSIGN_OR_RETURN(Gates::Parts parts, GoldenGates(file_));
    KVBOUND_ASSIGN_OR_RETURN(const auto gates, Gates::Make(std::move(parts)));
    KVBOUND_ASSIGN_OR_RETURN(train::GateModule module, train::GateModule::FromGates(*gates));
    KVBOUND_RETURN_IF_ERROR(CompareLogits(module));
    for (const Component& component : kComponents) {
      KVBOUND_RETURN_IF_ERROR(CompareComponent(component, module));
    }
    return CompareMasked(module);
  }

 private:
  Status CompareLogits(const train::GateModule& module) {
    const Tensor logits = train::StudentLogits(base_, module, SequenceOf(tokens_, 0));
    KVBOUND_ASSIGN_OR_RETURN(const std::vector<float> expected,
                             file_.F32("student_logits", {logits.size(0), logits.size(1)}));
    CompareRelative("student_logits", "all", ToTensor(expected), logits, &report_);
    return Status::Ok();
  }

  Status CompareComponent(const Component& component, train::GateModule& module) {
    for (auto& parameter : module.parameters()) parameter.value.mutable_grad() = Tensor();
    const FullLoss loss =
        train::FullObjective(base_, module, SequenceOf(tokens_, 0), OptionsOf(component, memory_));
    KVBOUND_RETURN_IF_ERROR(CompareLoss(component.name, loss.total));
    for (const auto& parameter : module.parameters()) {
      const Tensor& value = parameter.value;
      const std::string name = StrCat("grad/", component.name, "/", parameter.name);
      KVBOUND_ASSIGN_OR_RETURN(const std::vector<float> expected,
                               file_.F32(name, value.sizes().vec()));
      const Tensor grad = value.grad().defined() ? value.grad() : torch::zeros_like(value);
      CompareRelative(StrCat("grad/", component.name), parameter.name, ToTensor(expected), grad,
                      &report_);
    }
    return Status::Ok();
  }

  Status CompareMasked(train::GateModule& module) {
    FullOptions options = OptionsOf(kComponents[0], memory_);
    options.backward = false;
    const FullLoss loss =
        train::FullObjective(base_, module, SequenceOf(tokens_, kMaskedLabels), options);
    KVBOUND_RETURN_IF_ERROR(CompareLoss("kl_masked", loss.kl));
    return CompareLoss("ce_masked", loss.ce);
  }

  Status CompareLoss(const char* name, double found) {
    KVBOUND_ASSIGN_OR_RETURN(const double expected, file_.Number(StrCat("losses_f64.", name)));
    CompareRelative("losses", name, torch::tensor(expected, torch::kDouble),
                    torch::tensor(found, torch::kDouble), &report_);
    return Status::Ok();
  }

  const CaseFile& file_;
  const train::BaseTransformer& base_;
  CaseReport& report_;
  std::vector<int32_t> tokens_;
  int64_t memory_ = 0;
};

}  // namespace

std::string WhyTrainCaseIsSkipped() { return ""; }

Status RunTrainCase(const CaseFile& file, const Subject& subject, CaseReport* report) {
  const std::string& path = subject.model->loaded().file().path();
  try {
    KVBOUND_ASSIGN_OR_RETURN(const auto base, train::BaseTransformer::Load(path, torch::kFloat));
    return TrainCase(file, *base, report).Run();
  } catch (const std::exception& error) {  // torch
    return Internal(StrCat(file.name(), ": ", error.what()));
  }
}

}  // namespace kvbound::golden

#else

namespace kvbound::golden {

std::string WhyTrainCaseIsSkipped() { return "built without libtorch"; }

Status RunTrainCase(const CaseFile& /*file*/, const Subject& /*subject*/, CaseReport* /*report*/) {
  return Unsupported(WhyTrainCaseIsSkipped());
}

}  // namespace kvbound::golden

#endif  // KVBOUND_HAS_TRAIN
