#include "cli/trace.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <span>
#include <vector>

#include "cli/report.h"
#include "src/base/strings.h"

namespace kvbound::cli {
namespace {

// JSON has no infinity and no NaN.
void AppendNumber(float value, std::string& out) {
  if (std::isnan(value)) {
    out += "null";
  } else if (std::isinf(value)) {
    out += value > 0 ? "\"inf\"" : "\"-inf\"";
  } else {
    char digits[32];
    out.append(digits, std::to_chars(digits, digits + sizeof(digits), value).ptr);
  }
}

void AppendNumber(int64_t value, std::string& out) { out += std::to_string(value); }

// ,"name":[value of each slot]
template <typename Value>
void AppendArray(const char* name, std::span<const int32_t> slots, const Value& value,
                 std::string& out) {
  out += StrCat(",\"", name, "\":[");
  bool first = true;
  for (const int32_t slot : slots) {
    if (!std::exchange(first, false)) out += ',';
    AppendNumber(value(slot), out);
  }
  out += ']';
}

// Slots for which `take` is true, in the order of their positions.
template <typename Take>
std::vector<int32_t> SlotsInOrder(std::span<const Position> positions, const Take& take) {
  std::vector<int32_t> slots;
  for (int32_t slot = 0; slot < static_cast<int32_t>(positions.size()); ++slot) {
    if (take(slot)) slots.push_back(slot);
  }
  std::sort(slots.begin(), slots.end(),
            [&](int32_t a, int32_t b) { return positions[a] < positions[b]; });
  return slots;
}

// "layer":0,"kv_head":0 as far as the sets are distinct.
std::string SetName(Granularity granularity, int32_t set, int32_t n_kv_head) {
  if (granularity == Granularity::kShared) return "\"layer\":null,\"kv_head\":null";
  if (granularity == Granularity::kPerLayer) return StrCat("\"layer\":", set, ",\"kv_head\":null");
  return StrCat("\"layer\":", set / n_kv_head, ",\"kv_head\":", set % n_kv_head);
}

// The tokens of the positions from `from` on, which no cut has taken yet.
void AppendNewTokens(std::span<const Position> positions, std::span<const Token> tokens,
                     int64_t from, std::string& out) {
  const auto is_new = [&](int32_t slot) { return positions[slot].value >= from; };
  const auto token = [&](int32_t slot) { return int64_t{tokens[slot]}; };
  AppendArray("new_tokens", SlotsInOrder(positions, is_new), token, out);
}

}  // namespace

Result<std::unique_ptr<Trace>> Trace::Open(const std::string& path) {
  std::unique_ptr<Trace> trace(new Trace(path));
  errno = 0;
  trace->out_.open(path, std::ios::binary | std::ios::trunc);
  if (!trace->out_) {
    return IoError(
        StrCat("--trace: ", Printable(path), ": cannot be written: ", std::strerror(errno)));
  }
  return trace;
}

void Trace::WriteLine(std::string line) {
  if (!status_.ok()) return;
  line += '\n';
  errno = 0;
  if (!out_.write(line.data(), static_cast<std::streamsize>(line.size())).flush()) {
    status_ = IoError(StrCat("--trace: ", Printable(path_), ": ", std::strerror(errno)));
  }
}

void Trace::WriteHeader(const Engine& engine, const Session& session) {
  nlohmann::ordered_json header = {{"type", "header"}, {"format", 1}};
  header.update(RunRecord(engine, session));
  WriteLine(Dump(header));
}

void Trace::WriteCut(const CutEvent& event) {
  std::string line =
      StrCat("{\"type\":\"cut\",\"cut\":", n_cuts_++, ",\"tokens_seen\":", event.tokens_seen,
             ",\"n_before\":", event.n_before, ",\"n_kept\":", event.n_kept);
  const size_t n = static_cast<size_t>(event.n_before);
  AppendNewTokens(event.positions.first(n), event.tokens.first(n), n_written_, line);
  n_written_ = event.tokens_seen;
  line += ",\"sets\":[";
  for (int32_t set = 0; set < event.n_set; ++set) {
    const auto positions = event.positions.subspan(set * n, n);
    const auto tokens = event.tokens.subspan(set * n, n);
    const auto scores = event.scores.subspan(set * n, n);
    const auto kept = event.kept.subspan(set * n, n);
    const auto keeps = SlotsInOrder(positions, [&](int32_t slot) { return kept[slot] != 0; });
    const auto drops = SlotsInOrder(positions, [&](int32_t slot) { return kept[slot] == 0; });
    const auto position = [&](int32_t slot) { return int64_t{positions[slot].value}; };
    const auto score = [&](int32_t slot) { return scores[slot]; };
    line += StrCat(set == 0 ? "{" : ",{", SetName(event.granularity, set, event.n_kv_head));
    AppendArray("kept", keeps, position, line);
    AppendArray("kept_scores", keeps, score, line);
    AppendArray("evicted", drops, position, line);
    AppendArray(
        "evicted_tokens", drops, [&](int32_t slot) { return int64_t{tokens[slot]}; }, line);
    AppendArray("evicted_scores", drops, score, line);
    line += '}';
  }
  WriteLine(line + "]}");
}

void Trace::WriteReset() {
  n_written_ = 0;
  WriteLine("{\"type\":\"reset\"}");
}

void Trace::WriteEnd(const Session& session, int32_t n_kv_head) {
  std::string line = StrCat("{\"type\":\"end\",\"tokens_seen\":", session.stats().tokens_seen);
  AppendNewTokens(session.positions(0), session.tokens(0), n_written_, line);
  line += ",\"sets\":[";
  for (int32_t set = 0; set < session.n_set(); ++set) {
    const auto positions = session.positions(set);
    line += StrCat(set == 0 ? "{" : ",{", SetName(session.policy().granularity, set, n_kv_head));
    AppendArray(
        "kept", SlotsInOrder(positions, [](int32_t) { return true; }),
        [&](int32_t slot) { return int64_t{positions[slot].value}; }, line);
    line += '}';
  }
  WriteLine(line + "]}");
}

}  // namespace kvbound::cli
