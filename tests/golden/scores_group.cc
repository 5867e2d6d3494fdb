// G2: counter-causal scores of all slots after a causal prefill, in every reading, and the sets
// that each of them keeps.

#include <algorithm>
#include <array>
#include <cmath>

#include "base/strings.h"
#include "golden/groups.h"
#include "golden/keep_selection.h"

namespace kvbound::golden {
namespace {

using Options = CounterCausalOptions;
using Reading = Options::Reading;
using Neutral = Options::Neutral;

constexpr int64_t kMaxTokens = CaseFile::kMaxTokens;
constexpr int32_t kChunk = 128;

struct ReadingId {
  const char* id;
  bool fast;
  Reading reading;
  Neutral neutral;
  bool ffn;
};

constexpr std::array kReadings = {
    ReadingId{"A", false, Reading::kA, Neutral::kMeanEmbedding, false},
    ReadingId{"B", false, Reading::kB, Neutral::kMeanEmbedding, false},
    ReadingId{"C", false, Reading::kC, Neutral::kMeanEmbedding, false},
    ReadingId{"D_mean", false, Reading::kD, Neutral::kMeanEmbedding, false},
    ReadingId{"D_bos", false, Reading::kD, Neutral::kBos, false},
    ReadingId{"fast", true, Reading::kA, Neutral::kMeanEmbedding, false},
    ReadingId{"fast_ffn", true, Reading::kA, Neutral::kMeanEmbedding, true},
};

struct ScoreKind {
  const char* kind;
  Options::Score score;
};

constexpr std::array kKinds = {
    ScoreKind{"raw", Options::Score::kLogit},
    ScoreKind{"centred", Options::Score::kCentred},
    ScoreKind{"logprob", Options::Score::kLogProb},
};

PolicyOptions PolicyFor(bool fast, const Options& options = {}) {
  PolicyOptions policy;
  policy.name = fast ? "counter-causal-fast" : "counter-causal";
  policy.counter_causal = options;
  return policy;
}

ScoreTolerance ToleranceOf(bool fast) { return fast ? kFastScoreTolerance : kFullScoreTolerance; }

// Everything that one case needs at hand.
struct Context {
  const CaseFile& file;
  int64_t n = 0;                      // slots
  std::vector<int32_t> keep_budgets;  // "keep_J"
  CaseReport* report = nullptr;
};

// [n] in the order of positions, as the golden arrays are.
Result<std::vector<float>> Score(const Context& context, EngineAndSession& run,
                                 const Options& options) {
  const auto n = static_cast<size_t>(context.n);
  std::vector<float> by_slot(n);
  KVBOUND_RETURN_IF_ERROR(run.session->ScoreNow(options, by_slot));
  std::vector<float> by_position(n, NAN);
  const std::span<const Position> positions = run.session->positions();
  for (size_t slot = 0; slot < n; ++slot) {
    by_position[static_cast<size_t>(positions[slot].value)] = by_slot[slot];
  }
  return by_position;
}

// Compares the set that our scores keep with the list `keep_field` of the header.
Status CompareKeep(const Context& context, const std::string& keep_field,
                   std::optional<double> margin, bool fast, const Options& options,
                   std::span<const float> scores, int32_t budget, Protection protection) {
  KVBOUND_ASSIGN_OR_RETURN(const std::vector<int32_t> expected,
                           context.file.Ints(keep_field, context.n));
  if (static_cast<int64_t>(expected.size()) != budget ||
      !std::is_sorted(expected.begin(), expected.end(), std::less_equal<>())) {
    return context.file.FieldError(keep_field, StrCat(budget, " ascending positions"),
                                   StrCat(expected.size(), " values"));
  }
  KVBOUND_ASSIGN_OR_RETURN(const std::vector<int32_t> found,
                           KeepByScores(PolicyFor(fast, options), scores, budget, protection));
  std::vector<int32_t> positions(scores.size());
  for (size_t i = 0; i < positions.size(); ++i) positions[i] = static_cast<int32_t>(i);
  const double tolerance = ToleranceOf(fast).worst;
  CompareKept(keep_field, {expected, found, margin, positions, scores, tolerance}, context.report);
  return Status::Ok();
}

// The distance between the last kept and the first evicted of a set, by the reference's scores.
double MarginOf(std::span<const float> scores, std::span<const int32_t> keep, int32_t first_ranked,
                int32_t end_ranked) {
  float highest_kept = -INFINITY;
  float lowest_evicted = INFINITY;
  for (int32_t i = first_ranked; i < end_ranked; ++i) {
    const float score = scores[static_cast<size_t>(i)];
    if (std::binary_search(keep.begin(), keep.end(), i)) {
      highest_kept = std::max(highest_kept, score);
    } else {
      lowest_evicted = std::min(lowest_evicted, score);
    }
  }
  return lowest_evicted - highest_kept;
}

Status CompareReading(const Context& context, EngineAndSession& run, const ReadingId& id,
                      const ScoreKind& kind) {
  Options options;
  options.reading = id.reading;
  options.neutral = id.neutral;
  options.ffn = id.ffn;
  options.score = kind.score;
  const std::string name = StrCat(id.id, "_", kind.kind);
  KVBOUND_ASSIGN_OR_RETURN(const std::vector<float> expected,
                           context.file.F32(name, {context.n}, NanRule::kAllowed));
  KVBOUND_ASSIGN_OR_RETURN(const std::vector<float> found, Score(context, run, options));
  CompareScores(name, "", expected, found, ToleranceOf(id.fast), context.report);
  for (const int32_t budget : context.keep_budgets) {
    const std::string set = StrCat(name, "_J", budget);
    KVBOUND_ASSIGN_OR_RETURN(const double margin, context.file.Number("keep_margin." + set));
    KVBOUND_RETURN_IF_ERROR(
        CompareKeep(context, "keep." + set, margin, id.fast, options, found, budget, {}));
  }
  return Status::Ok();
}

// The scores and sets of the authors' own code, with its options off.
Status CompareAuthors(const Context& context, EngineAndSession& run, bool fast) {
  const std::string mode = fast ? "fast" : "full";
  const std::string name = StrCat("authors_", mode, "_raw");
  KVBOUND_ASSIGN_OR_RETURN(const std::vector<float> expected, context.file.F32(name, {context.n}));
  KVBOUND_ASSIGN_OR_RETURN(const std::vector<float> found, Score(context, run, {}));
  CompareScores(name, "", expected, found, ToleranceOf(fast), context.report);
  for (const int32_t budget : context.keep_budgets) {
    const std::string field = StrCat("authors_keep.", mode, "_J", budget);
    KVBOUND_ASSIGN_OR_RETURN(const std::vector<int32_t> keep, context.file.Ints(field, context.n));
    // The last slot is kept whatever its score.
    const double margin = MarginOf(expected, keep, 0, static_cast<int32_t>(context.n) - 1);
    KVBOUND_RETURN_IF_ERROR(CompareKeep(context, field, margin, fast, {}, found, budget, {}));
  }
  return Status::Ok();
}

// The same with min_gap, a frozen prefix (on top of J) and a recent window (inside J).
Status CompareAuthorsOptions(const Context& context, EngineAndSession& run, bool fast) {
  const int64_t n = context.n;
  KVBOUND_ASSIGN_OR_RETURN(const int64_t budget, context.file.Int("options.cache_size", 1, n));
  KVBOUND_ASSIGN_OR_RETURN(const int64_t frozen, context.file.Int("options.frozen_size", 0, n));
  KVBOUND_ASSIGN_OR_RETURN(const int64_t recent, context.file.Int("options.recent_size", 0, n));
  KVBOUND_ASSIGN_OR_RETURN(const int64_t min_gap, context.file.Int("options.min_gap", 0, n));
  Options options;
  options.min_gap = static_cast<int32_t>(min_gap);
  const Protection protection{static_cast<int32_t>(frozen), static_cast<int32_t>(recent), false};

  const std::string mode = fast ? "fast" : "full";
  const std::string name = StrCat("authors_", mode, "_mingap", min_gap, "_raw");
  KVBOUND_ASSIGN_OR_RETURN(const std::vector<float> expected, context.file.F32(name, {n}));
  KVBOUND_ASSIGN_OR_RETURN(const std::vector<float> found, Score(context, run, options));
  CompareScores(name, "", expected, found, ToleranceOf(fast), context.report);
  const std::string field = "options.authors_keep." + mode;
  KVBOUND_ASSIGN_OR_RETURN(const std::vector<int32_t> keep, context.file.Ints(field, n));
  const int64_t n_last = std::max(recent, 1 + min_gap);
  const double margin =
      MarginOf(expected, keep, protection.sinks, static_cast<int32_t>(n - n_last));
  return CompareKeep(context, field, margin, fast, options, found,
                     static_cast<int32_t>(budget + frozen), protection);
}

// One prefill, then every score that a policy of this mode can give.
Status RunMode(const Context& context, const Subject& subject, std::span<const Token> tokens,
               bool fast) {
  const auto n = static_cast<int32_t>(tokens.size());
  KVBOUND_ASSIGN_OR_RETURN(EngineAndSession run, OpenSession(subject.model, subject.options, n,
                                                             std::min(n, kChunk), PolicyFor(fast)));
  KVBOUND_RETURN_IF_ERROR(run.session->Feed(tokens));
  for (const ReadingId& id : kReadings) {
    if (id.fast != fast) continue;
    for (const ScoreKind& kind : kKinds) {
      KVBOUND_RETURN_IF_ERROR(CompareReading(context, run, id, kind));
    }
  }
  if (context.file.Has("authors_keep")) {
    KVBOUND_RETURN_IF_ERROR(CompareAuthors(context, run, fast));
  }
  if (context.file.Has("options")) {
    KVBOUND_RETURN_IF_ERROR(CompareAuthorsOptions(context, run, fast));
  }
  return Status::Ok();
}

}  // namespace

Status RunScoresCase(const CaseFile& file, const Subject& subject, CaseReport* report) {
  KVBOUND_ASSIGN_OR_RETURN(const std::vector<Token> tokens,
                           file.Ints("token_ids", subject.model->info().n_vocab));
  Context context{file, static_cast<int64_t>(tokens.size()), {}, report};
  if (context.n < 4 || context.n > kMaxTokens) {
    return file.FieldError("token_ids", StrCat("4..", kMaxTokens, " ids"), StrCat(context.n));
  }
  KVBOUND_RETURN_IF_ERROR(file.Int("n", context.n, context.n).status());
  KVBOUND_ASSIGN_OR_RETURN(context.keep_budgets, file.Ints("keep_J", context.n));
  KVBOUND_RETURN_IF_ERROR(RunMode(context, subject, tokens, /*fast=*/false));
  return RunMode(context, subject, tokens, /*fast=*/true);
}

}  // namespace kvbound::golden
