#include "cli/trace.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/report.h"
#include "src/base/strings.h"
#include "src/text/utf8.h"

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

// [value of each slot]
template <typename Append>
void AppendList(std::span<const int32_t> slots, const Append& append, std::string& out) {
  out += '[';
  bool first = true;
  for (const int32_t slot : slots) {
    if (!std::exchange(first, false)) out += ',';
    append(slot);
  }
  out += ']';
}

// ,"name":[value of each slot]
template <typename Value>
void AppendArray(const char* name, std::span<const int32_t> slots, const Value& value,
                 std::string& out) {
  out += StrCat(",\"", name, "\":");
  AppendList(
      slots, [&](int32_t slot) { AppendNumber(value(slot), out); }, out);
}

// Four digits: pictures need no more, and a trace holds one for each head of each token.
void AppendRounded(float value, std::string& out) {
  if (!std::isfinite(value)) return AppendNumber(value, out);
  char digits[32];
  const auto end = std::to_chars(digits, digits + sizeof(digits), value, std::chars_format::general,
                                 /*precision=*/4);
  out.append(digits, end.ptr);
}

// Bytes that are no UTF-8 by themselves, as tokens that hold a part of a character, become a list
// of numbers.
void AppendText(std::string_view text, std::string& out) {
  if (FindInvalidUtf8(text) == std::string_view::npos) {
    out += nlohmann::json(text).dump();
  } else {
    out += nlohmann::json(std::vector<uint8_t>(text.begin(), text.end())).dump();
  }
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

// Slots of the positions from `from` on, in the order of their positions.
std::vector<int32_t> NewSlots(std::span<const Position> positions, int64_t from) {
  return SlotsInOrder(positions, [&](int32_t slot) { return positions[slot].value >= from; });
}

// The set whose slots a head's columns follow.
int32_t SetOfHead(const CutEvent& event, int32_t head) {
  if (event.granularity == Granularity::kShared) return 0;
  return event.granularity == Granularity::kPerLayer ? head / event.n_kv_head : head;
}

// ,"log_beta":[[value of each new token] of each layer and kv_head], if there are any.
void AppendLogBeta(const CutEvent& event, int64_t from, std::string& out) {
  if (event.log_beta.empty()) return;
  const size_t n = static_cast<size_t>(event.n_before);
  const int32_t n_head = static_cast<int32_t>(event.log_beta.size() / n);
  out += ",\"log_beta\":";
  for (int32_t head = 0; head < n_head; ++head) {
    const auto log_beta = event.log_beta.subspan(head * n, n);
    const auto positions = event.positions.subspan(SetOfHead(event, head) * n, n);
    out += head == 0 ? '[' : ',';
    AppendList(
        NewSlots(positions, from), [&](int32_t slot) { AppendRounded(log_beta[slot], out); }, out);
  }
  out += ']';
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
  nlohmann::ordered_json header = {{"type", "header"}, {"format", kTraceFormat}};
  header.update(RunRecord(engine, session));
  tokenizer_ = engine.model().shared_tokenizer();
  WriteLine(Dump(header));
}

void Trace::AppendNewTokens(std::span<const int32_t> slots, std::span<const Token> tokens,
                            std::string& line) const {
  AppendArray(
      "new_tokens", slots, [&](int32_t slot) { return int64_t{tokens[slot]}; }, line);
  const auto text = [&](int32_t slot) {
    AppendText(tokenizer_->Piece(tokens[slot], /*render_special=*/true), line);
  };
  line += ",\"new_texts\":";
  AppendList(slots, text, line);
}

void Trace::WriteCut(const CutEvent& event) {
  std::string line =
      StrCat("{\"type\":\"cut\",\"cut\":", n_cuts_++, ",\"tokens_seen\":", event.tokens_seen,
             ",\"n_before\":", event.n_before, ",\"n_kept\":", event.n_kept,
             ",\"rebased\":", event.rebases ? "true" : "false");
  const size_t n = static_cast<size_t>(event.n_before);
  AppendNewTokens(NewSlots(event.positions.first(n), n_written_), event.tokens.first(n), line);
  AppendLogBeta(event, n_written_, line);
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
  AppendNewTokens(NewSlots(session.positions(0), n_written_), session.tokens(0), line);
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
