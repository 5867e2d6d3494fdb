// The chunked cycle of a golden case, by plain forward passes over the kept tokens.

#include <algorithm>
#include <limits>

#include "base/strings.h"
#include "testing/golden_case_writer.h"
#include "testing/tiny_reference.h"

namespace kvbound::testing {
namespace {

using Ids = std::vector<int32_t>;
using Row = std::vector<double>;

struct Cut {
  int32_t processed = 0;
  int32_t n_before = 0;
  Ids kept;
  double margin = 0;
  Row scores;
};

struct Run {
  Ids tokens;
  Row gap;
  Row logp;
  std::vector<Cut> cuts;
};

// A bounded cache of a one-layer model: positions alone, since ids follow from them.
class Cycle {
 public:
  Cycle(const TinyModel& model, const CycleSetting& setting) : model_(model), setting_(setting) {
    no_ffn_ = model;
    for (TinyTensor& tensor : no_ffn_.tensors) {
      if (tensor.name == "blk.0.ffn_down.weight") {
        std::fill(tensor.values.begin(), tensor.values.end(), 0.0f);
      }
    }
  }

  // `forced` empty: greedy.
  Run Go(const Ids& prompt, const Ids& forced) {
    Run run;
    text_ = prompt;
    slots_.clear();
    n_prompt_ = prompt.size();
    Row logits;
    for (size_t seen = 0; seen < prompt.size();) {
      const auto chunk = static_cast<size_t>(setting_.chunk);
      const size_t end = std::min(prompt.size(), (seen / chunk + 1) * chunk);
      for (; seen < end; ++seen) slots_.push_back(static_cast<int32_t>(seen));
      if (seen == prompt.size()) logits = LogitsOfLast();
      CutIfFull(static_cast<int32_t>(seen), &run);
    }
    for (int i = 0; i < setting_.n_new; ++i) {
      const auto best = std::max_element(logits.begin(), logits.end());
      const auto top = static_cast<int32_t>(best - logits.begin());
      double second = -std::numeric_limits<double>::infinity();
      for (size_t k = 0; k < logits.size(); ++k) {
        if (static_cast<int32_t>(k) != top) second = std::max(second, logits[k]);
      }
      run.gap.push_back(*best - second);
      const int32_t token = forced.empty() ? top : forced[static_cast<size_t>(i)];
      run.tokens.push_back(token);
      run.logp.push_back(-ReferenceNll(logits, token));
      // The id is known before the cut: `published` scores the last slot's successor with it.
      text_.push_back(token);
      const auto seen = static_cast<int32_t>(text_.size()) - 1;
      if (i > 0 && seen % setting_.chunk == 0) CutIfFull(seen, &run);
      if (i + 1 == setting_.n_new) break;
      slots_.push_back(seen);
      logits = LogitsOfLast();
    }
    return run;
  }

 private:
  bool Is(const char* part) const { return setting_.method.find(part) != std::string::npos; }
  int32_t IdAt(int32_t position) const { return text_[static_cast<size_t>(position)]; }

  Row LogitsOfLast() const {
    Ids ids;
    for (const int32_t position : slots_) ids.push_back(IdAt(position));
    return ReferenceLogits(model_, ids, slots_);
  }

  // The id that a slot is scored for.
  int32_t StoredId(int32_t position) const {
    const bool generated = static_cast<size_t>(position) >= n_prompt_;
    return IdAt(Is("published") && generated ? position + 1 : position);
  }

  Row Scores() const {
    const auto n = static_cast<int>(slots_.size());
    Ids ids, positions = slots_;
    for (const int32_t position : slots_) ids.push_back(IdAt(position));
    for (const int32_t position : slots_) {
      // The hidden row of one layer's input is the embedding of the id that was fed.
      ids.push_back(Is("fast") ? IdAt(position) : StoredId(position));
      positions.push_back(position);
    }
    const auto visible = [n](int, int, int query, int key) {
      return query < n ? key <= query : key < n && key > query - n;
    };
    const auto result = ReferenceForward(Is("fast") ? no_ffn_ : model_, ids, positions, visible);
    Row scores;
    for (int i = 0; i < n; ++i) {
      const Row& z = result.logits[static_cast<size_t>(n + i)];
      scores.push_back(z[static_cast<size_t>(StoredId(slots_[static_cast<size_t>(i)]))]);
    }
    return scores;
  }

  void CutIfFull(int32_t processed, Run* run) {
    const auto n = static_cast<int32_t>(slots_.size());
    if (setting_.method == "none" || n <= setting_.budget) return;
    Cut cut{processed, n, {}, 0, {}};
    const bool by_position = setting_.method == "sliding" || setting_.method == "streaming4";
    if (!by_position) cut.scores = Scores();
    std::vector<std::pair<double, int32_t>> ranked;  // lowest first = kept first
    for (int32_t i = 0; i < n; ++i) {
      const bool is_protected =
          i < setting_.sinks || i >= n - setting_.recent || (!by_position && i == n - 1);
      const int32_t position = slots_[static_cast<size_t>(i)];
      if (is_protected) {
        cut.kept.push_back(position);
      } else {
        ranked.emplace_back(by_position ? -position : cut.scores[static_cast<size_t>(i)], position);
      }
    }
    std::sort(ranked.begin(), ranked.end());
    const size_t n_ranked = static_cast<size_t>(setting_.budget) - cut.kept.size();
    for (size_t r = 0; r < n_ranked; ++r) cut.kept.push_back(ranked[r].second);
    std::sort(cut.kept.begin(), cut.kept.end());
    cut.margin = ranked[n_ranked].first - ranked[n_ranked - 1].first;
    slots_ = cut.kept;
    run->cuts.push_back(cut);
  }

  const TinyModel& model_;
  const CycleSetting& setting_;
  TinyModel no_ffn_;
  Ids text_;
  Ids slots_;
  size_t n_prompt_ = 0;
};

void AddCuts(const Run& run, int64_t budget, GoldenCase* made) {
  Ids kept;
  Row margins;
  nlohmann::json log = nlohmann::json::array();
  for (const Cut& cut : run.cuts) {
    log.push_back({{"processed", cut.processed}, {"n_before", cut.n_before}});
    kept.insert(kept.end(), cut.kept.begin(), cut.kept.end());
    margins.push_back(cut.margin);
  }
  made->header["refreshes"] = log;
  if (run.cuts.empty()) return;
  const auto n = static_cast<int64_t>(run.cuts.size());
  made->AddU16("kept", {n, budget}, kept);
  for (size_t r = 0; r < run.cuts.size(); ++r) {
    const Row& scores = run.cuts[r].scores;
    if (scores.empty()) continue;
    if (r == 0) made->AddF32("margin", {n}, margins);
    made->AddF32(StrCat("scores_", r), {static_cast<int64_t>(scores.size())}, scores);
  }
}

// Mean -log p of `tokens` behind `prompt` under the full cache, and how many of them the full
// cache chooses itself.
std::pair<double, int> FullCacheView(const TinyModel& model, const Ids& prompt, const Ids& tokens) {
  Ids text = prompt;
  double nll = 0;
  int same = 0;
  bool still = true;
  for (const int32_t token : tokens) {
    const Row logits = ReferenceLogits(model, text);
    nll += ReferenceNll(logits, token) / static_cast<double>(tokens.size());
    still = still && std::max_element(logits.begin(), logits.end()) - logits.begin() == token;
    same += still ? 1 : 0;
    text.push_back(token);
  }
  return {nll, same};
}

}  // namespace

GoldenCase MakeCycleCase(const TinyModel& model, const std::string& model_name,
                         const CycleSetting& setting, const Ids& prompt, const Ids& continuation) {
  Cycle cycle(model, setting);
  const Run run = cycle.Go(prompt, {});
  const Run forced = cycle.Go(prompt, continuation);
  const auto n_new = static_cast<int64_t>(setting.n_new);
  GoldenCase made;
  made.header = {{"group", "counter-causal"}, {"model", model_name},
                 {"method", setting.method},  {"level", "T"},
                 {"h", setting.chunk},        {"n_new", setting.n_new},
                 {"prompt_ids", prompt},      {"continuation_ids", continuation},
                 {"generated", run.tokens},   {"gap", run.gap}};
  made.header["J"] = setting.method == "none" ? nlohmann::json() : nlohmann::json(setting.budget);
  AddCuts(run, setting.budget, &made);
  made.AddF32("logp", {n_new}, run.logp);
  made.AddF32("forced_logp", {n_new}, forced.logp);
  double nll = 0;
  for (const double logp : forced.logp) nll -= logp / static_cast<double>(n_new);
  made.header["mean_forced_nll"] = nll;
  const auto [full_nll, same] = FullCacheView(model, prompt, run.tokens);
  made.header["nll_of_generated_under_full_cache"] = full_nll;
  made.header["same_prefix_as_full_cache"] = same;
  if (setting.method == "none") return made;
  Ids times, kept;
  for (const Cut& cut : forced.cuts) {
    if (cut.processed <= static_cast<int32_t>(prompt.size())) continue;
    times.push_back(cut.processed);
    kept.insert(kept.end(), cut.kept.begin(), cut.kept.end());
  }
  made.header["forced_refreshes"] = times;
  if (!times.empty()) {
    made.AddU16("forced_kept", {static_cast<int64_t>(times.size()), setting.budget}, kept);
  }
  return made;
}

}  // namespace kvbound::testing
