#include "golden/cycle_case.h"

#include <algorithm>
#include <functional>

#include "base/strings.h"

namespace kvbound::golden {
namespace {

constexpr int64_t kMaxTokens = CaseFile::kMaxTokens;

// The set counts of the levels T (one set), L (per layer) and P (per layer and KV head), and the
// shape of an array with one row of `tail` per refresh and set.
struct Level {
  std::vector<int64_t> dims;  // {}, {n_layer} or {n_layer, n_kv_head}
  int64_t n_set = 1;

  std::vector<int64_t> Shape(size_t n_refresh, std::vector<int64_t> tail) const {
    std::vector<int64_t> shape{static_cast<int64_t>(n_refresh)};
    shape.insert(shape.end(), dims.begin(), dims.end());
    shape.insert(shape.end(), tail.begin(), tail.end());
    return shape;
  }
};

Result<Level> ReadLevel(const CaseFile& file, const ModelInfo& model) {
  const Result<std::string> text = file.Text("level");
  if (!text.ok()) return text.status();
  Level level;
  if (*text == "L" || *text == "P") level.dims.push_back(model.n_layer);
  if (*text == "P") level.dims.push_back(model.n_kv_head);
  if (level.dims.empty() && *text != "T") {
    return file.FieldError("level", "T, L or P", Printable(*text));
  }
  for (const int64_t dim : level.dims) level.n_set *= dim;
  return level;
}

// Splits `kept` [R, n_set, J] over the refreshes.
Status SplitKept(const CaseFile& file, const std::string& array, const Level& level, int64_t budget,
                 std::vector<Refresh>* refreshes) {
  KVBOUND_ASSIGN_OR_RETURN(const std::vector<int32_t> all,
                           file.U16(array, level.Shape(refreshes->size(), {budget})));
  auto row = all.begin();
  for (Refresh& refresh : *refreshes) {
    for (int64_t set = 0; set < level.n_set; ++set, row += budget) {
      refresh.kept.emplace_back(row, row + budget);
      const std::vector<int32_t>& kept = refresh.kept.back();
      if (kept.back() >= refresh.processed ||
          !std::is_sorted(kept.begin(), kept.end(), std::less_equal<>())) {
        return file.ArrayError(
            array, StrCat("ascending positions below ", refresh.processed, " in each set"),
            StrCat("another list for the refresh at ", refresh.processed, ", set ", set));
      }
    }
  }
  return Status::Ok();
}

Status ReadRefreshes(const CaseFile& file, const Level& level, CycleArrays arrays, CycleCase* c) {
  KVBOUND_ASSIGN_OR_RETURN(const auto processed, file.IntColumn("refreshes", "processed"));
  KVBOUND_ASSIGN_OR_RETURN(const auto n_before, file.IntColumn("refreshes", "n_before"));
  const auto n_seen = static_cast<int64_t>(c->prompt.size() + c->generated.size());
  for (size_t r = 0; r < processed.size(); ++r) {
    const int32_t previous = r == 0 ? 0 : processed[r - 1];
    if (processed[r] <= previous || processed[r] > n_seen || n_before[r] > processed[r] ||
        n_before[r] <= c->budget) {
      return file.FieldError(StrCat("refreshes[", r, "]"),
                             "ascending 'processed' and J < 'n_before' <= 'processed'",
                             StrCat(processed[r], " and ", n_before[r]));
    }
    c->refreshes.push_back({processed[r], n_before[r], {}, {}, {}});
  }
  if (c->refreshes.empty()) return Status::Ok();
  KVBOUND_RETURN_IF_ERROR(SplitKept(file, "kept", level, c->budget, &c->refreshes));
  std::vector<float> margins;
  if (arrays.margin) {
    KVBOUND_ASSIGN_OR_RETURN(margins, file.F32("margin", level.Shape(processed.size(), {})));
  }
  for (size_t r = 0; r < processed.size(); ++r) {
    Refresh& refresh = c->refreshes[r];
    if (arrays.margin) {
      const auto first = margins.begin() + static_cast<int64_t>(r) * level.n_set;
      refresh.margin.assign(first, first + level.n_set);
    }
    if (arrays.scores) {
      KVBOUND_ASSIGN_OR_RETURN(refresh.scores, file.F32(StrCat("scores_", r), {refresh.n_before}));
    }
  }
  return Status::Ok();
}

Status ReadForcedRun(const CaseFile& file, const Level& level, CycleCase* c) {
  const auto n_new = static_cast<int64_t>(c->generated.size());
  KVBOUND_ASSIGN_OR_RETURN(c->forced_logp, file.F32("forced_logp", {n_new}));
  KVBOUND_ASSIGN_OR_RETURN(c->mean_forced_nll, file.Number("mean_forced_nll"));
  if (!c->bounded) return Status::Ok();
  KVBOUND_ASSIGN_OR_RETURN(
      const auto processed,
      file.Ints("forced_refreshes", static_cast<int64_t>(c->prompt.size()) + n_new + 1));
  for (size_t r = 0; r < processed.size(); ++r) {
    if (processed[r] <= (r == 0 ? 0 : processed[r - 1])) {
      return file.FieldError("forced_refreshes", "ascending numbers", StrCat(processed[r]));
    }
    c->forced_refreshes.push_back({processed[r], 0, {}, {}, {}});
  }
  if (c->forced_refreshes.empty()) return Status::Ok();
  return SplitKept(file, "forced_kept", level, c->budget, &c->forced_refreshes);
}

Result<std::vector<Token>> ReadTokens(const CaseFile& file, const std::string& field,
                                      const ModelInfo& model, int64_t fewest, int64_t most) {
  KVBOUND_ASSIGN_OR_RETURN(std::vector<Token> tokens, file.Ints(field, model.n_vocab));
  const auto n = static_cast<int64_t>(tokens.size());
  if (n < fewest || n > most) {
    return file.FieldError(field, StrCat(fewest, "..", most, " ids"), StrCat(n));
  }
  return tokens;
}

}  // namespace

Result<CycleCase> ReadCycleCase(const CaseFile& file, const ModelInfo& model, CycleArrays arrays) {
  CycleCase c;
  KVBOUND_ASSIGN_OR_RETURN(const int64_t chunk, file.Int("h", 1, kMaxTokens));
  KVBOUND_ASSIGN_OR_RETURN(const int64_t n_new, file.Int("n_new", 1, kMaxTokens));
  KVBOUND_ASSIGN_OR_RETURN(c.prompt, ReadTokens(file, "prompt_ids", model, 1, kMaxTokens));
  KVBOUND_ASSIGN_OR_RETURN(c.continuation,
                           ReadTokens(file, "continuation_ids", model, n_new, n_new));
  KVBOUND_ASSIGN_OR_RETURN(c.generated, ReadTokens(file, "generated", model, n_new, n_new));
  KVBOUND_ASSIGN_OR_RETURN(c.gap, file.Numbers("gap", static_cast<size_t>(n_new)));
  KVBOUND_ASSIGN_OR_RETURN(c.logp, file.F32("logp", {n_new}));
  c.chunk = static_cast<int32_t>(chunk);
  c.bounded = file.Has("J");
  int64_t budget = static_cast<int64_t>(c.prompt.size()) + n_new;
  if (c.bounded) {
    KVBOUND_ASSIGN_OR_RETURN(budget, file.Int("J", 1, kMaxTokens));
  }
  c.budget = static_cast<int32_t>(budget);
  KVBOUND_ASSIGN_OR_RETURN(const Level level, ReadLevel(file, model));
  c.n_set = static_cast<int32_t>(level.n_set);
  KVBOUND_RETURN_IF_ERROR(ReadRefreshes(file, level, arrays, &c));
  KVBOUND_RETURN_IF_ERROR(ReadForcedRun(file, level, &c));
  KVBOUND_ASSIGN_OR_RETURN(c.full_cache_nll, file.Number("nll_of_generated_under_full_cache"));
  KVBOUND_ASSIGN_OR_RETURN(const int64_t same_prefix,
                           file.Int("same_prefix_as_full_cache", 0, n_new));
  c.same_prefix = static_cast<int32_t>(same_prefix);
  return c;
}

}  // namespace kvbound::golden
