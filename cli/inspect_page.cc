#include "cli/inspect_page.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <string_view>
#include <utility>

#include "cli/inspect_assets.h"
#include "cli/report.h"

namespace kvbound::cli {
namespace {

using Json = nlohmann::ordered_json;

// Entries (token and set, token and head) that a page holds, and those up to which it holds log
// beta in 16 bits.
constexpr int64_t kMaxEntries = 4'000'000;
constexpr int64_t kMaxWideEntries = 1'000'000;

// First cut at which each position is present; n_cut if it came after the last.
std::vector<int32_t> Births(const TracedRun& run) {
  std::vector<int32_t> births(run.tokens.size());
  int32_t cut = 0;
  for (int64_t position = 0; position < run.n_token(); ++position) {
    while (cut < run.n_cut() && run.tokens_seen[cut] <= position) ++cut;
    births[position] = cut;
  }
  return births;
}

// How many cuts each token outlived, set by set.
Json PackLives(const TracedRun& run, PositionRange range) {
  const std::vector<int32_t> births = Births(run);
  NibbleWriter writer;
  for (const std::vector<int32_t>& gone : run.gone) {
    for (int64_t position = range.first; position < range.end; ++position) {
      const int32_t end = std::min(gone[position], run.n_cut());
      writer.Append(static_cast<uint32_t>(end - births[position]));
    }
  }
  return Base64(writer.bytes());
}

// log(-log beta), as whole numbers from 1 between `low` and `high`; 0: not known.
Json PackLogBeta(const TracedRun& run, PositionRange range) {
  if (run.log_beta.empty()) return nullptr;
  constexpr float kLeast = 1e-12f;  // -log beta: nothing is forgotten
  constexpr float kMost = 1e3f;     // at once
  const auto log_rate = [&](float log_beta) {
    return std::log(std::clamp(-log_beta, kLeast, kMost));
  };
  float low = std::numeric_limits<float>::max();
  float high = std::numeric_limits<float>::lowest();
  for (const std::vector<float>& row : run.log_beta) {
    for (int64_t position = range.first; position < range.end; ++position) {
      if (std::isnan(row[position])) continue;
      low = std::min(low, log_rate(row[position]));
      high = std::max(high, log_rate(row[position]));
    }
  }
  const int64_t n_entry = static_cast<int64_t>(run.log_beta.size()) * (range.end - range.first);
  const int n_byte = n_entry <= kMaxWideEntries ? 2 : 1;
  const float n_step = n_byte == 2 ? 65534.0f : 254.0f;
  const float scale = high > low ? n_step / (high - low) : 0.0f;
  std::vector<uint8_t> bytes;
  bytes.reserve(static_cast<size_t>(n_entry * n_byte));
  for (const std::vector<float>& row : run.log_beta) {
    for (int64_t position = range.first; position < range.end; ++position) {
      const float value = row[position];
      const uint32_t step =
          std::isnan(value)
              ? 0
              : 1 + static_cast<uint32_t>(std::lround((log_rate(value) - low) * scale));
      bytes.push_back(static_cast<uint8_t>(step & 255));
      if (n_byte == 2) bytes.push_back(static_cast<uint8_t>(step >> 8));
    }
  }
  return {
      {"bytes", n_byte}, {"steps", n_step}, {"low", low}, {"high", high}, {"data", Base64(bytes)}};
}

// The distinct tokens, and which of them each position has.
void AddTokens(const TracedRun& run, PositionRange range, Json& data) {
  std::map<int32_t, uint32_t> numbers;
  Json vocab = Json::array();
  std::vector<uint8_t> bytes;
  for (int64_t position = range.first; position < range.end; ++position) {
    const auto [found, is_new] =
        numbers.emplace(run.tokens[position], static_cast<uint32_t>(numbers.size()));
    if (is_new) vocab.push_back({run.tokens[position], run.texts[position]});
    for (int shift = 0; shift < 32; shift += 8) {
      bytes.push_back(static_cast<uint8_t>(found->second >> shift));
    }
  }
  data["vocab"] = std::move(vocab);
  data["tokens"] = Base64(bytes);
}

// No '<' may end the script element that the JSON stands in.
std::string EscapeForScript(const std::string& json) {
  std::string out;
  out.reserve(json.size());
  for (const char c : json) {
    if (c == '<') {
      out += "\\u003c";
    } else {
      out += c;
    }
  }
  return out;
}

Json PageData(const TraceFile& trace, size_t n_run, PositionRange range) {
  const TracedRun& run = trace.runs[n_run];
  Json header = trace.header;
  header["model"].erase("path");  // a page is made to be passed on
  Json data = {{"page", 1},
               {"header", header},
               {"run", n_run},
               {"n_run", trace.runs.size()},
               {"ended", trace.ended},
               {"n_layer", trace.n_layer},
               {"n_kv_head", trace.n_kv_head},
               {"n_set", trace.n_set},
               {"n_token", run.n_token()},
               {"first", range.first},
               {"end", range.end},
               {"tokens_seen", run.tokens_seen},
               {"n_kept", run.n_kept},
               {"n_rebase", run.n_rebase}};
  AddTokens(run, range, data);
  data["lives"] = PackLives(run, range);
  data["log_beta"] = PackLogBeta(run, range);
  return data;
}

// `text` with the one occurrence of `mark` replaced.
void Replace(std::string_view mark, std::string_view by, std::string& text) {
  const size_t at = text.find(mark);
  if (at != std::string::npos) text.replace(at, mark.size(), by);
}

}  // namespace

PositionRange LargestRange(const TraceFile& trace, const TracedRun& run) {
  const int64_t per_token = int64_t{trace.n_set} + static_cast<int64_t>(run.log_beta.size());
  const int64_t n = std::max<int64_t>(1, kMaxEntries / per_token);
  return {std::max<int64_t>(0, run.n_token() - n), run.n_token()};
}

std::string InspectPage(const TraceFile& trace, size_t n_run, PositionRange range) {
  std::string page(kInspectHtml);
  Replace("/*STYLE*/", kInspectCss, page);
  Replace("/*SCRIPT*/", kInspectJs, page);
  Replace("/*DATA*/", EscapeForScript(Dump(PageData(trace, n_run, range))), page);
  return page;
}

void NibbleWriter::Append(uint32_t value) {
  do {
    const uint8_t nibble = static_cast<uint8_t>((value & 7) | (value > 7 ? 8 : 0));
    if (half_) {
      bytes_.back() = static_cast<uint8_t>(bytes_.back() | nibble << 4);
    } else {
      bytes_.push_back(nibble);
    }
    half_ = !half_;
    value >>= 3;
  } while (value > 0);
}

std::string Base64(std::span<const uint8_t> bytes) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t i = 0; i < bytes.size(); i += 3) {
    const size_t n = std::min<size_t>(3, bytes.size() - i);
    uint32_t group = 0;
    for (size_t k = 0; k < 3; ++k) group = group << 8 | (k < n ? bytes[i + k] : 0u);
    for (size_t k = 0; k < 4; ++k) {
      out += k <= n ? kDigits[group >> (18 - 6 * k) & 63] : '=';
    }
  }
  return out;
}

}  // namespace kvbound::cli
