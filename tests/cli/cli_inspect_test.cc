#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "cli/inspect_page.h"
#include "cli/program.h"
#include "cli/trace.h"
#include "cli/trace_reader.h"
#include "testing/paths.h"
#include "testing/tiny_engine.h"

namespace kvbound::cli {
namespace {

using testing::RunProgram;
using Json = nlohmann::json;

constexpr int32_t kBudget = 16;
constexpr int32_t kChunk = 8;
constexpr int32_t kTokens = 61;  // the last 5 come after the last cut

// A traced run, and what its cuts were told.
struct Recorded {
  std::string path;
  std::map<std::pair<int32_t, int32_t>, float> log_beta;  // (head, position)
  std::vector<std::vector<std::vector<int32_t>>> kept;    // [n_cut][n_set], positions ascending
  std::vector<int32_t> tokens;
  int32_t n_set = 0;
};

void RecordLogBeta(const CutEvent& event, Recorded& recorded) {
  const size_t n = static_cast<size_t>(event.n_before);
  for (size_t k = 0; k < event.log_beta.size(); ++k) {
    const int32_t head = static_cast<int32_t>(k / n);
    const int32_t set = event.granularity == Granularity::kShared     ? 0
                        : event.granularity == Granularity::kPerLayer ? head / event.n_kv_head
                                                                      : head;
    const int32_t position = event.positions[set * n + k % n].value;
    recorded.log_beta[{head, position}] = event.log_beta[k];
  }
}

Recorded RecordRun(const std::string& policy, Granularity granularity) {
  auto model = testing::LoadTiny(testing::MakeTinyModel());
  EngineOptions options = testing::ExactEngine(policy, kBudget, kChunk);
  if (policy != "streaming") options.policy.granularity = granularity;
  const auto engine = testing::MakeEngine(model, options);
  const auto session = testing::MakeSession(*engine, testing::Protected(2, 2));
  Recorded recorded;
  recorded.path = testing::MakeTempDir() + "/trace.jsonl";
  recorded.tokens = testing::TestTokens(kTokens);
  recorded.n_set = session->n_set();
  auto trace = Trace::Open(recorded.path);
  EXPECT_TRUE(trace.ok());
  (*trace)->WriteHeader(*engine, *session);
  session->SetCutObserver([&](const CutEvent& event) {
    (*trace)->WriteCut(event);
    RecordLogBeta(event, recorded);
    auto& sets = recorded.kept.emplace_back(event.n_set);
    for (int32_t k = 0; k < event.n_set * event.n_before; ++k) {
      if (event.kept[k]) sets[k / event.n_before].push_back(event.positions[k].value);
    }
    for (auto& positions : sets) std::sort(positions.begin(), positions.end());
  });
  EXPECT_TRUE(session->Feed(recorded.tokens).ok());
  (*trace)->WriteEnd(*session, model->info().n_kv_head);
  EXPECT_TRUE((*trace)->status().ok());
  return recorded;
}

// The inverse of the page's packing, as the page's own script does it.
std::vector<uint8_t> FromBase64(const std::string& text) {
  const std::string digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::vector<uint8_t> bytes;
  uint32_t group = 0;
  int n_bit = 0;
  for (const char c : text) {
    if (c == '=') break;
    group = group << 6 | static_cast<uint32_t>(digits.find(c));
    n_bit += 6;
    if (n_bit < 8) continue;
    n_bit -= 8;
    bytes.push_back(static_cast<uint8_t>(group >> n_bit));
  }
  return bytes;
}

std::vector<int32_t> ReadNibbles(const std::vector<uint8_t>& bytes, size_t count) {
  std::vector<int32_t> out;
  size_t at = 0;
  while (out.size() < count) {
    int32_t value = 0;
    for (int shift = 0;; shift += 3) {
      const uint8_t nibble = at % 2 == 1 ? bytes.at(at / 2) >> 4 : bytes.at(at / 2) & 15;
      ++at;
      value |= (nibble & 7) << shift;
      if (nibble < 8) break;
    }
    out.push_back(value);
  }
  return out;
}

Json DataOf(const std::string& page) {
  const std::string open = "<script type=\"application/json\" id=\"data\">";
  const size_t start = page.find(open) + open.size();
  return Json::parse(page.substr(start, page.find("</script>", start) - start));
}

std::string ReadAll(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

// Positions from the page's data that set `set` holds after `cut`.
std::vector<int32_t> KeptIn(const Json& data, size_t set, size_t cut) {
  const size_t n = data["end"].get<size_t>() - data["first"].get<size_t>();
  const size_t first = data["first"];
  const auto lives = ReadNibbles(FromBase64(data["lives"]), data["n_set"].get<size_t>() * n);
  std::vector<int32_t> kept;
  for (size_t i = 0; i < n; ++i) {
    const auto& seen = data["tokens_seen"];
    size_t birth = 0;
    while (birth < seen.size() && seen[birth].get<size_t>() <= first + i) ++birth;
    const size_t gone = birth + static_cast<size_t>(lives[set * n + i]);
    if (birth <= cut && gone > cut) kept.push_back(static_cast<int32_t>(first + i));
  }
  return kept;
}

struct Case {
  const char* policy;
  Granularity granularity;
};

class Traced : public ::testing::TestWithParam<Case> {};

TEST_P(Traced, TraceReadsBackAsItWasWritten) {
  const Recorded recorded = RecordRun(GetParam().policy, GetParam().granularity);
  const auto trace = ReadTrace(recorded.path);
  ASSERT_TRUE(trace.ok()) << trace.status();
  EXPECT_TRUE(trace->ended);
  EXPECT_EQ(trace->granularity, GetParam().granularity);
  ASSERT_EQ(trace->runs.size(), 1u);
  const TracedRun& run = trace->runs[0];
  EXPECT_EQ(run.tokens, recorded.tokens);
  ASSERT_EQ(run.n_cut(), static_cast<int32_t>(recorded.kept.size()));
  for (int32_t cut = 0; cut < run.n_cut(); ++cut) {
    for (int32_t set = 0; set < trace->n_set; ++set) {
      std::vector<int32_t> kept;
      for (int32_t position = 0; position < run.tokens_seen[cut]; ++position) {
        if (run.gone[set][position] > cut) kept.push_back(position);
      }
      EXPECT_EQ(kept, recorded.kept[cut][set]);
    }
  }
  const bool has_gates = std::string(GetParam().policy) == "retention";
  ASSERT_EQ(!run.log_beta.empty(), has_gates);
  for (const auto& [at, log_beta] : recorded.log_beta) {
    EXPECT_NEAR(run.log_beta[at.first][at.second] / log_beta, 1.0, 6e-4) << "four digits";
  }
  for (const auto& row : run.log_beta) {
    for (int64_t position = 0; position < run.n_token(); ++position) {
      EXPECT_EQ(std::isnan(row[position]), position >= run.tokens_seen.back());
    }
  }
}

TEST_P(Traced, PageHoldsTheRun) {
  const Recorded recorded = RecordRun(GetParam().policy, GetParam().granularity);
  const std::string path = recorded.path + ".html";
  const testing::ProgramResult result = RunProgram({"inspect", recorded.path});
  ASSERT_EQ(result.exit_status, 0) << result.err;
  EXPECT_NE(result.out.find("61 tokens, 6 cuts"), std::string::npos) << result.out;
  const std::string page = ReadAll(path);
  EXPECT_EQ(page.rfind("<!doctype html>", 0), 0u);
  EXPECT_EQ(page.substr(page.size() - 8), "</html>\n");
  for (const char* mark : {"/*DATA*/", "/*STYLE*/", "/*SCRIPT*/", "src=", "@import", "url("}) {
    EXPECT_EQ(page.find(mark), std::string::npos) << mark;
  }
  const Json data = DataOf(page);
  EXPECT_FALSE(data["header"]["model"].contains("path"));
  EXPECT_EQ(data["header"]["budget"], kBudget);
  for (size_t cut = 0; cut < recorded.kept.size(); ++cut) {
    for (size_t set = 0; set < static_cast<size_t>(recorded.n_set); ++set) {
      EXPECT_EQ(KeptIn(data, set, cut), recorded.kept[cut][set]);
    }
  }
  const auto tokens = FromBase64(data["tokens"]);
  for (size_t i = 0; i < recorded.tokens.size(); ++i) {
    const size_t number = tokens[4 * i] | static_cast<size_t>(tokens[4 * i + 1]) << 8;
    EXPECT_EQ(data["vocab"][number][0], recorded.tokens[i]);
  }
  const Json& packed = data["log_beta"];
  ASSERT_EQ(packed.is_null(), recorded.log_beta.empty());
  if (packed.is_null()) return;
  ASSERT_EQ(packed["bytes"], 2);
  const auto bytes = FromBase64(packed["data"]);
  for (const auto& [at, log_beta] : recorded.log_beta) {
    const size_t k = 2 * static_cast<size_t>(at.first * kTokens + at.second);
    const double step = bytes[k] | bytes[k + 1] << 8;
    ASSERT_GT(step, 0);
    const double low = packed["low"], high = packed["high"], steps = packed["steps"];
    const double rate = std::exp(low + (high - low) * (step - 1) / steps);
    EXPECT_NEAR(rate / -log_beta, 1.0, 1e-3);
  }
}

INSTANTIATE_TEST_SUITE_P(All, Traced,
                         ::testing::Values(Case{"streaming", Granularity::kShared},
                                           Case{"random", Granularity::kPerLayer},
                                           Case{"random", Granularity::kPerHead},
                                           Case{"retention", Granularity::kShared},
                                           Case{"retention", Granularity::kPerHead}));

// A trace of one set and `texts`, all but the first two evicted.
TraceFile Written(const std::vector<Json>& texts) {
  TraceFile trace;
  trace.header = {{"model", {{"n_layer", 1}, {"name", "</script>\xff"}}},
                  {"policy", {{"name", "p"}}}};
  trace.n_layer = trace.n_kv_head = trace.n_set = 1;
  TracedRun run;
  run.texts = texts;
  for (size_t i = 0; i < texts.size(); ++i) run.tokens.push_back(static_cast<int32_t>(i));
  run.tokens_seen = {run.n_token()};
  run.n_kept = {2};
  run.gone = {std::vector<int32_t>(texts.size(), 0)};
  run.gone[0][0] = run.gone[0][1] = TracedRun::kHeld;
  trace.runs.push_back(run);
  return trace;
}

size_t Count(const std::string& text, const std::string& part) {
  size_t n = 0;
  for (size_t at = 0; (at = text.find(part, at)) != std::string::npos; ++at) ++n;
  return n;
}

TEST(Inspect, NoTextLeavesTheDataBlock) {
  const std::vector<Json> texts = {"</script><script>alert(1)</script>",
                                   "<!-- <script",
                                   "\"'\\",
                                   std::string("\0\x01\x1b\n", 4),
                                   "\xE2\x80\xA8",
                                   Json::array({240, 159}),
                                   "/*SCRIPT*/",
                                   nullptr,
                                   "]]>&amp;"};
  const TraceFile trace = Written(texts);
  const PositionRange all = {0, static_cast<int64_t>(texts.size())};
  const std::string page = InspectPage(trace, 0, all);
  EXPECT_EQ(Count(page, "</script"), 2u);
  EXPECT_EQ(Count(page, "<!--"), 0u);
  const Json data = DataOf(page);
  for (size_t i = 0; i < texts.size(); ++i) EXPECT_EQ(data["vocab"][i][1], texts[i]);
  const PositionRange some = {1, 4};
  EXPECT_EQ(KeptIn(DataOf(InspectPage(trace, 0, some)), 0, 0), std::vector<int32_t>{1});
}

TEST(Inspect, LongRunsAreShortened) {
  TraceFile trace = Written(std::vector<Json>(5000));
  trace.n_set = 1000;
  const PositionRange range = LargestRange(trace, trace.runs[0]);
  EXPECT_EQ(range.first, 1000);
  EXPECT_EQ(range.end, 5000);
}

TEST(Inspect, PackedNumbers) {
  NibbleWriter writer;
  const std::vector<int32_t> numbers = {0, 7, 8, 1, 63, 64, 511, 100000, 0};
  for (const int32_t number : numbers) writer.Append(static_cast<uint32_t>(number));
  EXPECT_EQ(ReadNibbles(writer.bytes(), numbers.size()), numbers);
  for (const std::string text : {"", "f", "fo", "foo", "foob"}) {
    const std::vector<uint8_t> bytes(text.begin(), text.end());
    EXPECT_EQ(FromBase64(Base64(bytes)), bytes);
  }
  const std::vector<uint8_t> foob = {'f', 'o', 'o', 'b'};
  EXPECT_EQ(Base64(foob), "Zm9vYg==");
}

std::string WriteTrace(const std::string& text) {
  const std::string path = testing::MakeTempDir() + "/trace.jsonl";
  std::ofstream(path, std::ios::binary) << text;
  return path;
}

void ExpectRefused(const std::string& trace, const std::string& text) {
  EXPECT_REFUSED_BY_PROGRAM(RunProgram({"inspect", WriteTrace(trace)}), 1, text);
}

TEST(Inspect, RefusesWhatIsNoTrace) {
  EXPECT_REFUSED_BY_PROGRAM(RunProgram({"inspect", "/nowhere/t"}), 1, "/nowhere/t: cannot be read");
  EXPECT_REFUSED_BY_PROGRAM(RunProgram({"inspect"}), 2, "trace");
  ExpectRefused("", "found an empty file");
  ExpectRefused("GGUF\x03\n", "line 1: expected the header of a trace, found no JSON");
  ExpectRefused("[1,2]\n", "line 1: expected the header of a trace");
  ExpectRefused("{\"type\":\"cut\"}\n", "line 1: expected the header of a trace");
  ExpectRefused("{\"type\":\"header\",\"format\":99}\n", "'format': expected a whole number");
}

TEST(Inspect, RefusesLinesThatContradict) {
  const std::string good = ReadAll(RecordRun("random", Granularity::kShared).path);
  ExpectRefused(good.substr(0, good.size() - 20), "line 8: expected a whole line, found one that");
  ExpectRefused(good.substr(0, good.find('\n') + 1), "expected a trace with cuts");
  ExpectRefused(good + "{\"type\":\"cut\"}\n", "line 9: expected nothing after");
  const auto with = [&](const std::string& before, const std::string& after) {
    std::string bad = good;
    bad.replace(bad.find(before), before.size(), after);
    return bad;
  };
  ExpectRefused(with("\"evicted\":[", "\"evicted\":[99,"), "'evicted': expected whole numbers");
  ExpectRefused(with("\"evicted\":[", "\"evicted\":[3,3,"), "position 3 of set 0 was evicted");
  ExpectRefused(with("\"tokens_seen\":24", "\"tokens_seen\":25"), "line 2: 'tokens_seen'");
  ExpectRefused(with("\"n_set\":1", "\"n_set\":2"), "line 1: 'n_set'");
  ExpectRefused(with("\"type\":\"cut\"", "\"type\":\"cat\""), "found \"cat\"");
  ExpectRefused(with("\"sets\":", "\"bets\":"), "line 2: expected 'sets', found none");
  const std::string unfinished = good.substr(0, good.rfind('\n', good.size() - 2) + 1);
  EXPECT_EQ(RunProgram({"inspect", WriteTrace(unfinished)}).exit_status, 0) << "still running";
}

TEST(Inspect, OptionsAndOutput) {
  const std::string trace = RecordRun("random", Granularity::kPerHead).path;
  const std::string page = trace + ".page";
  EXPECT_REFUSED_BY_PROGRAM(RunProgram({"inspect", trace, "-o", "/nowhere/page"}), 1, "--output");
  EXPECT_REFUSED_BY_PROGRAM(RunProgram({"inspect", trace, "-o", trace}), 1, "which is read");
  if (std::filesystem::exists("/dev/full")) {
    EXPECT_REFUSED_BY_PROGRAM(RunProgram({"inspect", trace, "-o", "/dev/full"}), 1, "/dev/full");
  }
  EXPECT_REFUSED_BY_PROGRAM(RunProgram({"inspect", trace, "--positions", "9"}), 2, "FIRST-LAST");
  EXPECT_REFUSED_BY_PROGRAM(RunProgram({"inspect", trace, "--positions", "61-70"}), 1,
                            "positions below 61");
  EXPECT_REFUSED_BY_PROGRAM(RunProgram({"inspect", trace, "--conversation", "2"}), 1,
                            "from 1 to 1");
  const auto result = RunProgram({"inspect", trace, "-o", page, "--positions", "10-500"});
  ASSERT_EQ(result.exit_status, 0) << result.err;
  EXPECT_EQ(DataOf(ReadAll(page))["first"], 10);
  EXPECT_EQ(DataOf(ReadAll(page))["end"], kTokens);
}

}  // namespace
}  // namespace kvbound::cli
