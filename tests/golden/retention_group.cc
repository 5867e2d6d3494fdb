// Retention gates without eviction: log beta of every token, and what one cut would keep.

#include <vector>

#include "base/strings.h"
#include "golden/golden_gates.h"
#include "golden/groups.h"

namespace kvbound::golden {
namespace {

constexpr int32_t kMaxWidth = 1 << 12;

struct KeepCase {
  std::vector<Token> tokens;
  int32_t budget = 0;
  int64_t n_head = 0;           // layers times KV heads
  std::vector<float> log_beta;  // [n_head, n]
};

Result<KeepCase> ReadKeepCase(const CaseFile& file, const ModelInfo& model) {
  KeepCase c;
  KVBOUND_ASSIGN_OR_RETURN(const int64_t n, file.Int("n", 3, kMaxWidth));
  KVBOUND_ASSIGN_OR_RETURN(c.tokens, file.Ints("token_ids", model.n_vocab));
  if (static_cast<int64_t>(c.tokens.size()) != n) {
    return file.FieldError("token_ids", StrCat(n, " ids"), StrCat(c.tokens.size()));
  }
  KVBOUND_ASSIGN_OR_RETURN(const int64_t budget, file.Int("M", 2, n - 1));
  c.budget = static_cast<int32_t>(budget);
  c.n_head = int64_t{model.n_layer} * model.n_kv_head;
  KVBOUND_ASSIGN_OR_RETURN(c.log_beta, file.F32("log_beta", {model.n_layer, model.n_kv_head, n}));
  return c;
}

// One cut of all tokens, by one convention of ages.
Status CompareCut(const CaseFile& file, const Subject& subject, const KeepCase& c,
                  RetentionOptions::Age age, CaseReport* report) {
  const std::string name = age == RetentionOptions::Age::kCode ? "age_code" : "age_next";
  const ModelInfo& info = subject.model->info();
  const std::vector<int64_t> heads = {info.n_layer, info.n_kv_head};
  KVBOUND_ASSIGN_OR_RETURN(const std::vector<float> margin, file.F32("margin_" + name, heads));
  KVBOUND_ASSIGN_OR_RETURN(
      const std::vector<int32_t> kept,
      file.U16("keep_" + name, {info.n_layer, info.n_kv_head, int64_t{c.budget}}));

  PolicyOptions policy;
  policy.name = "retention";
  policy.retention.emplace().age = age;
  const auto n = static_cast<int32_t>(c.tokens.size());
  KVBOUND_ASSIGN_OR_RETURN(const std::shared_ptr<const Gates> gates,
                           GatesOfCase(file, *subject.model));
  KVBOUND_ASSIGN_OR_RETURN(EngineAndSession run, OpenSession(subject.model, subject.options,
                                                             c.budget, n, policy, {}, 1, gates));
  KVBOUND_ASSIGN_OR_RETURN(const RecordedRun record, RunSession(run, c.tokens, 1, {}, 1));
  const RecordedCut& cut = record.cuts.at(0);
  for (int64_t head = 0; head < c.n_head; ++head) {
    const std::string where = StrCat("head ", head);
    if (age == RetentionOptions::Age::kNext) {
      CompareNumbers("log_beta", where, std::span(c.log_beta).subspan(head * n, n),
                     cut.log_beta[head], kLogBetaTolerance, report);
    }
    KeptPair pair;
    pair.expected = std::span(kept).subspan(head * c.budget, c.budget);
    pair.found = cut.kept[head];
    pair.margin = margin[head];
    pair.positions = cut.positions[head];
    pair.scores = cut.scores[head];
    pair.tolerance = kRetentionScoreTolerance.worst;
    CompareKept(StrCat(name, ", ", where), pair, report);
  }
  return Status::Ok();
}

}  // namespace

Status RunKeepCase(const CaseFile& file, const Subject& subject, CaseReport* report) {
  KVBOUND_ASSIGN_OR_RETURN(const KeepCase c, ReadKeepCase(file, subject.model->info()));
  KVBOUND_RETURN_IF_ERROR(CompareCut(file, subject, c, RetentionOptions::Age::kNext, report));
  return CompareCut(file, subject, c, RetentionOptions::Age::kCode, report);
}

}  // namespace kvbound::golden
