// The runner is honest: it passes what the plain forward pass computed, and fails, by name, when
// a single number of a case is changed or a file is malformed.

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "golden/run_cases.h"
#include "testing/golden_case_writer.h"
#include "testing/paths.h"

namespace kvbound::golden {
namespace {

namespace fs = std::filesystem;
using testing::CycleSetting;
using testing::GoldenCase;
using testing::TinyModel;

constexpr char kModel[] = "tiny";

std::vector<int32_t> SomeIds(int n, int seed, int n_vocab) {
  std::vector<int32_t> ids;
  for (int i = 0; i < n; ++i) ids.push_back(3 + (i * 37 + seed * 101 + i * i * 13) % (n_vocab - 4));
  return ids;
}

// A folder with one case of each kind, made once.
struct MadeFolder {
  std::string model_file;
  fs::path cases;

  static const MadeFolder& Get() {
    static const MadeFolder made = Make();
    return made;
  }

 private:
  static MadeFolder Make() {
    testing::TinyModelOptions options;
    options.n_layer = 1;
    const TinyModel model = testing::WithMeanRow(testing::MakeTinyModel(options));
    const int n_vocab = model.n_vocab();
    MadeFolder made{model.Write(), testing::MakeTempDir()};
    testing::MakeLogitsCase(model, kModel, SomeIds(70, 1, n_vocab), 10)
        .Write(made.cases, "logits/tiny-t0");
    testing::MakeScoresCase(model, kModel, SomeIds(40, 2, n_vocab), n_vocab - 1)
        .Write(made.cases, "counter-causal/tiny-n40");
    const std::vector<CycleSetting> settings = {{"none", 0, 8},
                                                {"sliding", 16, 8},
                                                {"streaming4", 16, 8, 12, 4},
                                                {"full-aligned", 16, 8},
                                                {"full-published", 16, 8},
                                                {"fast-aligned", 16, 8},
                                                {"fast-published", 16, 8},
                                                {"full-protected", 44, 8, 12, 4, 32},
                                                {"fast-protected", 44, 8, 12, 4, 32}};
    for (const CycleSetting& setting : settings) {
      testing::MakeCycleCase(model, kModel, setting, SomeIds(53, 3, n_vocab),
                             SomeIds(setting.n_new, 4, n_vocab))
          .Write(made.cases, "cycles/tiny-cycle-" + setting.method);
    }
    return made;
  }
};

struct RunOutcome {
  Result<RunSummary> summary;
  std::map<std::string, CaseResult> results;
};

RunOutcome RunFolder(const fs::path& cases, std::vector<NamedModel> models,
                     std::vector<std::string> filters = {},
                     AttentionPath attention = AttentionPath::kAuto) {
  RunRequest request{cases, std::move(models), std::move(filters), {1, attention}};
  std::map<std::string, CaseResult> results;
  auto summary =
      RunCases(request, [&](const CaseResult& result) { results[result.name] = result; });
  return {summary, results};
}

std::string AllText(const CaseResult& result) {
  std::string text = result.reason;
  for (const std::string& failure : result.report.failures()) text += "\n" + failure;
  return text;
}

// Runs one case that was made or altered.
CaseResult RunAltered(const GoldenCase& altered) {
  const fs::path folder = testing::MakeTempDir();
  altered.Write(folder, "altered");
  const RunOutcome outcome = RunFolder(folder, {{kModel, MadeFolder::Get().model_file}});
  EXPECT_TRUE(outcome.summary.ok()) << outcome.summary.status();
  return outcome.results.at("altered");
}

TEST(GoldenRunner, PassesWhatThePlainForwardPassComputed) {
  const MadeFolder& made = MadeFolder::Get();
  const RunOutcome outcome = RunFolder(made.cases, {{kModel, made.model_file}});
  ASSERT_TRUE(outcome.summary.ok()) << outcome.summary.status();
  EXPECT_TRUE(outcome.summary->ok());
  EXPECT_EQ(outcome.summary->n_pass, 11);
  for (const auto& [name, result] : outcome.results) {
    EXPECT_EQ(result.outcome, Outcome::kPass) << name << ": " << AllText(result);
    EXPECT_TRUE(result.report.notes().empty()) << name << ": " << result.report.notes()[0];
  }
  EXPECT_GE(outcome.results.at("cycles/tiny-cycle-full-published").report.kept().equal, 8);
  EXPECT_EQ(outcome.results.at("counter-causal/tiny-n40").report.kept().equal, 42);
}

// --- one changed number --------------------------------------------------------------------

struct Alteration {
  const char* name;
  const char* case_name;
  std::function<void(GoldenCase*)> alter;
  const char* expected;  // in the failure
};

void PrintTo(const Alteration& alteration, std::ostream* out) { *out << alteration.name; }

std::function<void(GoldenCase*)> Nudge(const char* array, size_t index, float by) {
  return [=](GoldenCase* c) { c->WriteF32(array, index, c->ReadF32(array, index) + by); };
}

// Replaces a kept position by one that was evicted.
std::function<void(GoldenCase*)> SwapKept(const char* array) {
  return [=](GoldenCase* c) {
    uint16_t index = 1;
    while (c->ReadU16(array, index) + 1 == c->ReadU16(array, index + 1u)) ++index;
    c->WriteU16(array, index, static_cast<uint16_t>(c->ReadU16(array, index) + 1));
  };
}

std::function<void(GoldenCase*)> AddTo(const char* pointer, double by) {
  return [=](GoldenCase* c) {
    auto& value = c->header[nlohmann::json::json_pointer(pointer)];
    if (value.is_number_integer()) {
      value = value.get<int>() + static_cast<int>(by);
    } else {
      value = value.get<double>() + by;
    }
  };
}

const Alteration kAlterations[] = {
    {"Logit", "logits/tiny-t0", Nudge("top5_logits", 7, 0.002f), "top5_logits[7]"},
    {"LogSumExp", "logits/tiny-t0", Nudge("logsumexp", 69, 0.002f), "logsumexp[69]"},
    {"Nll", "logits/tiny-t0", Nudge("nll", 0, -0.002f), "nll[0]"},
    {"LastLogit", "logits/tiny-t0", Nudge("last_logits", 280, 0.002f), "last_logits[280]"},
    {"MeanNll", "logits/tiny-t0", AddTo("/mean_nll", 0.002), "mean_nll"},
    {"GreedyId", "logits/tiny-t0", AddTo("/greedy_ids/0", -1), "greedy_ids[0]"},
    {"GreedyGap", "logits/tiny-t0", AddTo("/greedy_gap/0", 0.005), "greedy_gap[0]"},
    {"FullScore", "counter-causal/tiny-n40", Nudge("A_raw", 11, 0.006f), "A_raw[11]"},
    {"FastScore", "counter-causal/tiny-n40", Nudge("fast_logprob", 3, 0.001f), "fast_logprob"},
    {"ScoreWhereUndefined", "counter-causal/tiny-n40",
     [](GoldenCase* c) { c->WriteF32("B_raw", 0, 1.0f); }, "B_raw[0]"},
    {"KeepSet", "counter-causal/tiny-n40",
     [](GoldenCase* c) {
       // The first evicted slot in place of the first kept one.
       auto& kept = c->header["keep"]["A_raw_J10"];
       std::vector<int> set = kept;
       int other = 0;
       while (std::find(set.begin(), set.end(), other) != set.end()) ++other;
       set[0] = other;
       std::sort(set.begin(), set.end());
       kept = set;
     },
     "keep.A_raw_J10"},
    {"CycleScore", "cycles/tiny-cycle-fast-aligned", Nudge("scores_1", 3, 0.001f),
     "scores (refresh 1 at 32)[3]"},
    {"PublishedScore", "cycles/tiny-cycle-full-published", Nudge("scores_4", 5, 0.006f),
     "scores (refresh 4"},
    {"KeptPosition", "cycles/tiny-cycle-fast-aligned", SwapKept("kept"), "kept (refresh 0 at 24)"},
    {"KeptOfSliding", "cycles/tiny-cycle-sliding", [](GoldenCase* c) { c->WriteU16("kept", 0, 7); },
     "kept (refresh 0 at 24)"},
    {"ForcedKept", "cycles/tiny-cycle-full-aligned", SwapKept("forced_kept"),
     "kept (forced refresh"},
    {"GeneratedId", "cycles/tiny-cycle-none", AddTo("/generated/1", -1), "generated[1]"},
    {"Logp", "cycles/tiny-cycle-streaming4", Nudge("logp", 11, 0.002f), "logp[11]"},
    {"ForcedLogp", "cycles/tiny-cycle-fast-protected", Nudge("forced_logp", 9, 0.003f),
     "forced_logp[9]"},
    {"MeanForcedNll", "cycles/tiny-cycle-sliding", AddTo("/mean_forced_nll", 0.003),
     "mean_forced_nll"},
    {"RefreshTime", "cycles/tiny-cycle-sliding", AddTo("/refreshes/1/processed", 1),
     "refresh 1: expected 33 (24 slots), found 32 (24 slots)"},
    {"RefreshSize", "cycles/tiny-cycle-sliding", AddTo("/refreshes/1/n_before", -1),
     "refresh 1: expected 32 (23 slots), found 32 (24 slots)"},
    {"MissingRefresh", "cycles/tiny-cycle-none",
     [](GoldenCase* c) {
       c->header["J"] = 60;
       c->header["forced_refreshes"] = {56};
     },
     "forced_kept"},
    {"FullCacheNll", "cycles/tiny-cycle-sliding",
     AddTo("/nll_of_generated_under_full_cache", 0.002), "full_cache_nll"},
    {"SamePrefix", "cycles/tiny-cycle-none", AddTo("/same_prefix_as_full_cache", -1),
     "same_prefix_as_full_cache"},
};

class AlteredCase : public ::testing::TestWithParam<Alteration> {};

TEST_P(AlteredCase, FailsAndNamesTheNumber) {
  const Alteration& alteration = GetParam();
  GoldenCase altered = GoldenCase::Read(MadeFolder::Get().cases, alteration.case_name);
  alteration.alter(&altered);
  const CaseResult result = RunAltered(altered);
  EXPECT_EQ(result.outcome, Outcome::kFail);
  EXPECT_NE(AllText(result).find(alteration.expected), std::string::npos) << AllText(result);
}

INSTANTIATE_TEST_SUITE_P(All, AlteredCase, ::testing::ValuesIn(kAlterations),
                         [](const auto& info) { return std::string(info.param.name); });

// A text in which one cut of the prompt is nearly a tie.
GoldenCase MakeNearTie(const TinyModel& model, size_t* refresh) {
  for (int seed = 0; seed < 200; ++seed) {
    GoldenCase made = testing::MakeCycleCase(model, kModel, {"full-aligned", 16, 8},
                                             SomeIds(53, seed, model.n_vocab()),
                                             SomeIds(12, seed + 1, model.n_vocab()));
    for (*refresh = 0; *refresh < 4; ++*refresh) {
      if (made.ReadF32("margin", *refresh) < 0.002f) return made;
    }
  }
  ADD_FAILURE() << "no near tie";
  return {};
}

TEST(GoldenRunner, NeighboursOfTheCutMaySwapInsideTheMarginOnly) {
  testing::TinyModelOptions options;
  options.n_layer = 1;
  const TinyModel model = testing::WithMeanRow(testing::MakeTinyModel(options));
  size_t refresh = 0;
  GoldenCase tie = MakeNearTie(model, &refresh);
  // The highest score that is kept and the lowest that is not, by index before the cut.
  std::vector<uint16_t> before, kept;
  for (size_t i = 0; i < 16; ++i) {
    if (refresh > 0) before.push_back(tie.ReadU16("kept", 16 * (refresh - 1) + i));
    kept.push_back(tie.ReadU16("kept", 16 * refresh + i));
  }
  const int first_new = refresh > 0 ? 16 + 8 * static_cast<int>(refresh) : 0;
  for (int p = first_new; p < 24 + 8 * static_cast<int>(refresh); ++p) {
    before.push_back(static_cast<uint16_t>(p));
  }
  ASSERT_EQ(before.size(), 24u);
  const std::string scores = "scores_" + std::to_string(refresh);
  size_t last_kept = 0, first_evicted = 0;
  float highest = -INFINITY, lowest = INFINITY;
  for (size_t i = 0; i + 1 < before.size(); ++i) {
    const float score = tie.ReadF32(scores, i);
    const bool is_kept = std::find(kept.begin(), kept.end(), before[i]) != kept.end();
    if (is_kept && score > highest) highest = score, last_kept = i;
    if (!is_kept && score < lowest) lowest = score, first_evicted = i;
  }
  std::replace(kept.begin(), kept.end(), before[last_kept], before[first_evicted]);
  std::sort(kept.begin(), kept.end());
  for (size_t i = 0; i < 16; ++i) tie.WriteU16("kept", 16 * refresh + i, kept[i]);

  const CaseResult inside = RunAltered(tie);
  EXPECT_EQ(inside.outcome, Outcome::kPass) << AllText(inside);
  EXPECT_EQ(inside.report.kept().inside_margin, 2) << "in both runs";
  ASSERT_EQ(inside.report.notes().size(), 2u);
  EXPECT_EQ(inside.report.notes()[0].find("differs inside margin at refresh "), 0u);
  EXPECT_EQ(inside.report.tokens().total(), 0) << "nothing after it is comparable";

  tie.WriteF32("margin", refresh, 0.006f);
  EXPECT_EQ(RunAltered(tie).outcome, Outcome::kFail);
}

// --- malformed files -----------------------------------------------------------------------

const Alteration kDefects[] = {
    {"MissingArray", "logits/tiny-t0", [](GoldenCase* c) { c->header["arrays"].erase(1); },
     "array 'top5_logits': expected f32 [70, 5], found nothing"},
    {"NoArrays", "logits/tiny-t0", [](GoldenCase* c) { c->header.erase("arrays"); },
     "field 'arrays'"},
    {"WrongDtype", "logits/tiny-t0", [](GoldenCase* c) { c->header["arrays"][1]["dtype"] = "i32"; },
     "array 'top5_logits': expected dtype f32, found i32"},
    {"UnknownDtype", "logits/tiny-t0",
     [](GoldenCase* c) { c->header["arrays"][1]["dtype"] = "f64"; },
     "array 'top5_logits': expected dtype f32, u16 or i32"},
    {"WrongShape", "logits/tiny-t0", [](GoldenCase* c) { c->header["arrays"][3]["shape"] = {70}; },
     "array 'nll': expected shape [69], found [70]"},
    {"HugeShape", "logits/tiny-t0",
     [](GoldenCase* c) {
       c->header["arrays"][3]["shape"] = {1 << 30, 1 << 30, 1 << 30};
     },
     "array 'nll'"},
    {"NegativeShape", "logits/tiny-t0",
     [](GoldenCase* c) { c->header["arrays"][3]["shape"] = {-1}; }, "array 'nll'"},
    {"OddOffset", "logits/tiny-t0", [](GoldenCase* c) { c->header["arrays"][3]["offset"] = 2; },
     "array 'nll': expected an offset"},
    {"TwiceTheSameArray", "logits/tiny-t0",
     [](GoldenCase* c) { c->header["arrays"][3]["name"] = "logsumexp"; }, "array 'logsumexp'"},
    {"TruncatedBin", "logits/tiny-t0", [](GoldenCase* c) { c->bytes.resize(c->bytes.size() - 4); },
     "array 'last_logits': expected a .bin of at least"},
    {"EmptyBin", "cycles/tiny-cycle-sliding", [](GoldenCase* c) { c->bytes.clear(); },
     "array 'kept'"},
    {"NanLogit", "logits/tiny-t0", [](GoldenCase* c) { c->WriteF32("logsumexp", 5, NAN); },
     "array 'logsumexp': expected finite numbers, found nan at index 5"},
    {"InfiniteScore", "counter-causal/tiny-n40",
     [](GoldenCase* c) { c->WriteF32("B_raw", 2, std::numeric_limits<float>::infinity()); },
     "array 'B_raw': expected finite numbers, found inf at index 2"},
    {"TokenOutsideTheVocabulary", "logits/tiny-t0",
     [](GoldenCase* c) { c->header["token_ids"][4] = 286; },
     "field 'token_ids[4]': expected a whole number 0..285, found 286"},
    {"NegativeToken", "cycles/tiny-cycle-none",
     [](GoldenCase* c) { c->header["prompt_ids"][0] = -1; }, "field 'prompt_ids[0]'"},
    {"TextForAToken", "cycles/tiny-cycle-none",
     [](GoldenCase* c) { c->header["continuation_ids"][2] = "x"; }, "field 'continuation_ids[2]'"},
    {"TopIdOutsideTheVocabulary", "logits/tiny-t0",
     [](GoldenCase* c) { c->WriteF32("top5_ids", 0, 1.0f); }, "array 'top5_ids'"},
    {"NoPrompt", "cycles/tiny-cycle-none",
     [](GoldenCase* c) { c->header["prompt_ids"] = nlohmann::json::array(); },
     "field 'prompt_ids': expected 1..16384 ids, found 0"},
    {"ShortContinuation", "cycles/tiny-cycle-none",
     [](GoldenCase* c) { c->header["continuation_ids"].erase(0); },
     "field 'continuation_ids': expected 12..12 ids, found 11"},
    {"ZeroChunk", "cycles/tiny-cycle-none", [](GoldenCase* c) { c->header["h"] = 0; },
     "field 'h': expected a whole number 1..16384, found 0"},
    {"HugeBudget", "cycles/tiny-cycle-sliding", [](GoldenCase* c) { c->header["J"] = 1LL << 40; },
     "field 'J'"},
    {"FractionalBudget", "cycles/tiny-cycle-sliding", [](GoldenCase* c) { c->header["J"] = 16.5; },
     "field 'J'"},
    {"UnknownLevel", "cycles/tiny-cycle-sliding", [](GoldenCase* c) { c->header["level"] = "X"; },
     "field 'level': expected T, L or P, found X"},
    {"KeptOutOfOrder", "cycles/tiny-cycle-sliding",
     [](GoldenCase* c) { c->WriteU16("kept", 3, 60000); }, "array 'kept': expected ascending"},
    {"RefreshesAreNoObjects", "cycles/tiny-cycle-sliding",
     [](GoldenCase* c) { c->header["refreshes"][0] = 5; }, "field 'refreshes[0].processed'"},
    {"NoMethodNorScores", "counter-causal/tiny-n40",
     [](GoldenCase* c) { c->header.erase("keep_margin"); }, "field 'method'"},
    {"NoGroup", "logits/tiny-t0", [](GoldenCase* c) { c->header.erase("group"); },
     "altered.json: field 'group': expected text, found nothing"},
    {"ModelIsANumber", "logits/tiny-t0", [](GoldenCase* c) { c->header["model"] = 3; },
     "field 'model': expected text, found 3"},
};

class MalformedCase : public ::testing::TestWithParam<Alteration> {};

TEST_P(MalformedCase, FailsByFileAndField) {
  const Alteration& defect = GetParam();
  GoldenCase altered = GoldenCase::Read(MadeFolder::Get().cases, defect.case_name);
  defect.alter(&altered);
  const CaseResult result = RunAltered(altered);
  EXPECT_EQ(result.outcome, Outcome::kFail);
  EXPECT_NE(result.reason.find("altered.json: "), std::string::npos) << result.reason;
  EXPECT_NE(result.reason.find(defect.expected), std::string::npos) << result.reason;
}

INSTANTIATE_TEST_SUITE_P(All, MalformedCase, ::testing::ValuesIn(kDefects),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(GoldenRunner, BadJsonFails) {
  for (const std::string text :
       {"", "{", "[]", "null", "{\"group\": NaN}", "\xff\xfe", "{\"a\": 1e999}"}) {
    const fs::path folder = testing::MakeTempDir();
    std::ofstream(folder / "bad.json") << text;
    const RunOutcome outcome = RunFolder(folder, {});
    ASSERT_TRUE(outcome.summary.ok());
    EXPECT_FALSE(outcome.summary->ok());
    EXPECT_EQ(outcome.results.at("bad").outcome, Outcome::kFail);
    EXPECT_NE(outcome.results.at("bad").reason.find("bad.json: "), std::string::npos)
        << outcome.results.at("bad").reason;
  }
}

TEST(GoldenRunner, DeeplyNestedJsonFails) {
  const fs::path folder = testing::MakeTempDir();
  std::ofstream(folder / "deep.json") << std::string(1 << 20, '[');
  const RunOutcome outcome = RunFolder(folder, {});
  EXPECT_EQ(outcome.results.at("deep").outcome, Outcome::kFail);
}

TEST(GoldenRunner, MissingBinFails) {
  const fs::path folder = testing::MakeTempDir();
  GoldenCase::Read(MadeFolder::Get().cases, "logits/tiny-t0").Write(folder, "altered");
  fs::remove(folder / "altered.bin");
  const RunOutcome outcome = RunFolder(folder, {{kModel, MadeFolder::Get().model_file}});
  EXPECT_EQ(outcome.results.at("altered").reason, "altered.bin: expected a file, found nothing");
}

TEST(GoldenRunner, BinOutsideTheFolderFails) {
  const fs::path folder = testing::MakeTempDir();
  GoldenCase moved = GoldenCase::Read(MadeFolder::Get().cases, "logits/tiny-t0");
  moved.Write(folder, "altered");
  moved.header["bin"] = "../altered.bin";
  std::ofstream(folder / "altered.json") << moved.header.dump();
  const RunOutcome outcome = RunFolder(folder, {{kModel, MadeFolder::Get().model_file}});
  EXPECT_NE(outcome.results.at("altered").reason.find("field 'bin'"), std::string::npos);
}

// --- which cases run -----------------------------------------------------------------------

TEST(GoldenRunner, SkipsWithTheReason) {
  const fs::path folder = testing::MakeTempDir();
  GoldenCase other = GoldenCase::Read(MadeFolder::Get().cases, "cycles/tiny-cycle-sliding");
  other.header["method"] = "tova";
  other.Write(folder, "tova");
  other.header["method"] = "pyramid";
  other.Write(folder, "pyramid");
  other.header["method"] = "sliding";
  other.header["model"] = "another";
  other.Write(folder, "sliding");
  const RunOutcome outcome = RunFolder(folder, {{kModel, MadeFolder::Get().model_file}});
  EXPECT_EQ(outcome.results.at("tova").reason, "this baseline is not built yet");
  EXPECT_EQ(outcome.results.at("pyramid").reason, "method 'pyramid' is not known to this build");
  EXPECT_EQ(outcome.results.at("sliding").reason, "no --model another=FILE given");
  EXPECT_EQ(outcome.summary->n_skip, 3);
  EXPECT_FALSE(outcome.summary->ok()) << "no case ran";
}

TEST(GoldenRunner, SkipsWhatStockAttentionCannotDo) {
  const fs::path folder = testing::MakeTempDir();
  GoldenCase other = GoldenCase::Read(MadeFolder::Get().cases, "cycles/tiny-cycle-sliding");
  other.header["method"] = "h2o";
  other.Write(folder, "h2o");
  const RunOutcome outcome =
      RunFolder(folder, {{kModel, MadeFolder::Get().model_file}}, {}, AttentionPath::kStock);
  EXPECT_EQ(outcome.results.at("h2o").outcome, Outcome::kSkip);
  EXPECT_EQ(outcome.results.at("h2o").reason, "policy 'h2o' needs fused attention");
}

TEST(GoldenRunner, FiltersChooseByName) {
  const MadeFolder& made = MadeFolder::Get();
  const RunOutcome outcome =
      RunFolder(made.cases, {{kModel, made.model_file}}, {"sliding", "cycle-none"});
  EXPECT_EQ(outcome.results.size(), 2u);
  const RunOutcome nothing = RunFolder(made.cases, {{kModel, made.model_file}}, {"no such case"});
  EXPECT_FALSE(nothing.summary->ok());
}

TEST(GoldenRunner, MissingFolderOrModelIsAnError) {
  const MadeFolder& made = MadeFolder::Get();
  EXPECT_FALSE(RunFolder("/no/such/folder", {}).summary.ok());
  const RunOutcome outcome = RunFolder(made.cases, {{kModel, "/no/such/model.gguf"}}, {"t0"});
  ASSERT_FALSE(outcome.summary.ok());
  EXPECT_NE(outcome.summary.status().message().find("/no/such/model.gguf"), std::string::npos);
}

int ExitStatus(const std::string& arguments) {
  const std::string command =
      std::string(KVBOUND_GOLDEN_PROGRAM) + " " + arguments + " >/dev/null 2>&1";
  return WEXITSTATUS(std::system(command.c_str()));
}

TEST(GoldenProgram, ExitStatus) {
  const MadeFolder& made = MadeFolder::Get();
  const std::string model = std::string(" --threads 1 --model tiny=") + made.model_file;
  const std::string json = testing::MakeTempDir() + "/results.json";
  EXPECT_EQ(ExitStatus("--cases " + made.cases.string() + model + " --filter t0 --json " + json),
            0);
  nlohmann::json results;
  std::ifstream(json) >> results;
  ASSERT_EQ(results.size(), 1u);
  EXPECT_EQ(results[0]["outcome"], "pass");
  EXPECT_EQ(results[0]["case"], "logits/tiny-t0");

  EXPECT_EQ(ExitStatus("--cases " + made.cases.string() + model + " --filter nothing"), 1);
  const fs::path folder = testing::MakeTempDir();
  GoldenCase altered = GoldenCase::Read(made.cases, "logits/tiny-t0");
  altered.WriteF32("nll", 3, 0.0f);
  altered.Write(folder, "altered");
  EXPECT_EQ(ExitStatus("--cases " + folder.string() + model), 1);

  EXPECT_EQ(ExitStatus("--cases /no/such/folder" + model), 2);
  EXPECT_EQ(ExitStatus("--cases " + folder.string()), 2);
  EXPECT_EQ(ExitStatus("--cases " + folder.string() + " --model tiny"), 2);
  EXPECT_EQ(ExitStatus("--cases " + folder.string() + model + " --json /no/such/folder/x"), 2);
}

// The same with a real case, where the data is at hand.
TEST(GoldenRunner, SharedCaseFailsOnceAltered) {
  const fs::path shared = testing::SharedDir() / "data";
  const fs::path model = shared / "models/stories260k/tinyllamas-stories-260k-f32.gguf";
  KVBOUND_SKIP_WITHOUT(model);
  KVBOUND_SKIP_WITHOUT(shared / "golden/logits/stories260k-t0.json");
  const std::vector<NamedModel> models = {{"stories260k", model.string()}};
  const fs::path folder = testing::MakeTempDir();
  GoldenCase copy = GoldenCase::Read(shared / "golden", "logits/stories260k-t0");
  copy.Write(folder, "copy");
  EXPECT_EQ(RunFolder(folder, models).results.at("copy").outcome, Outcome::kPass);
  copy.WriteF32("top5_logits", 12, copy.ReadF32("top5_logits", 12) + 0.002f);
  copy.Write(folder, "copy");
  const CaseResult altered = RunFolder(folder, models).results.at("copy");
  EXPECT_EQ(altered.outcome, Outcome::kFail);
  EXPECT_NE(AllText(altered).find("top5_logits[12]"), std::string::npos) << AllText(altered);
}

}  // namespace
}  // namespace kvbound::golden
