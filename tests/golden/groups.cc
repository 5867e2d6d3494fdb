#include "golden/groups.h"

#include <array>
#include <string_view>

#include "base/strings.h"

namespace kvbound::golden {
namespace {

struct Kind {
  std::string_view group;
  std::string_view field;  // that tells the kinds of a group apart; empty: none needed
  RunCase run;
  std::string (*why_skipped)();  // nullptr: never
};

// Cases without a method. The chunked cycles are a table of their own, in cycle_group.cc.
constexpr std::array kKinds = {
    Kind{"logits", "", RunLogitsCase, nullptr},
    Kind{"counter-causal", "keep_margin", RunScoresCase, nullptr},
    Kind{"retention", "losses_f64", RunTrainCase, WhyTrainCaseIsSkipped},
    Kind{"retention", "M", RunKeepCase, nullptr},
};

}  // namespace

Result<CaseKind> KindOf(const CaseFile& file, AttentionPath attention) {
  KVBOUND_ASSIGN_OR_RETURN(const std::string group, file.Text("group"));
  if (file.Has("method")) {
    KVBOUND_ASSIGN_OR_RETURN(const std::string method, file.Text("method"));
    const std::string reason = WhyCycleMethodIsSkipped(method, attention);
    return reason.empty() ? CaseKind{RunCycleCase, ""} : CaseKind{nullptr, reason};
  }
  bool known = false;
  for (const Kind& kind : kKinds) {
    known = known || kind.group == group;
    const bool fits = kind.group == group && (kind.field.empty() || file.Has(kind.field));
    if (!fits) continue;
    const std::string reason = kind.why_skipped != nullptr ? kind.why_skipped() : "";
    return reason.empty() ? CaseKind{kind.run, ""} : CaseKind{nullptr, reason};
  }
  if (known) return file.FieldError("method", "a method, or the fields of another kind", "nothing");
  return CaseKind{nullptr, StrCat("group '", Printable(group), "' is not known to this build")};
}

}  // namespace kvbound::golden
