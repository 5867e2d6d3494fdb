#include "cli/trace_reader.h"

#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <string_view>
#include <utility>

#include "cli/trace.h"
#include "src/base/strings.h"

namespace kvbound::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr float kUnknown = std::numeric_limits<float>::quiet_NaN();
constexpr int64_t kMaxHeads = 1 << 20;

std::string Quoted(const Json& value) {
  return Printable(value.dump(-1, ' ', false, Json::error_handler_t::replace), 40);
}

Result<const Json*> Member(const Json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end()) return Corrupt(StrCat("expected '", key, "', found none"));
  return &*found;
}

Result<int64_t> IntMember(const Json& object, const char* key, int64_t min, int64_t max) {
  KVBOUND_ASSIGN_OR_RETURN(const Json* value, Member(object, key));
  if (!value->is_number_integer() || value->get<int64_t>() < min || value->get<int64_t>() > max) {
    return Corrupt(StrCat("'", key, "': expected a whole number from ", min, " to ", max,
                          ", found ", Quoted(*value)));
  }
  return value->get<int64_t>();
}

Result<std::string> StringMember(const Json& object, const char* key) {
  KVBOUND_ASSIGN_OR_RETURN(const Json* value, Member(object, key));
  if (!value->is_string()) {
    return Corrupt(StrCat("'", key, "': expected a string, found ", Quoted(*value)));
  }
  return value->get<std::string>();
}

// An array of `n` items, or of any number if n < 0.
Result<const Json*> ArrayMember(const Json& object, const char* key, int64_t n) {
  KVBOUND_ASSIGN_OR_RETURN(const Json* value, Member(object, key));
  if (!value->is_array()) {
    return Corrupt(StrCat("'", key, "': expected an array, found ", Quoted(*value)));
  }
  if (n >= 0 && static_cast<int64_t>(value->size()) != n) {
    return Corrupt(StrCat("'", key, "': expected ", n, " items, found ", value->size()));
  }
  return value;
}

Result<int32_t> IntItem(const Json& item, const char* key, int64_t max) {
  if (!item.is_number_integer() || item.get<int64_t>() < 0 || item.get<int64_t>() > max) {
    return Corrupt(
        StrCat("'", key, "': expected whole numbers from 0 to ", max, ", found ", Quoted(item)));
  }
  return static_cast<int32_t>(item.get<int64_t>());
}

// A number, or what stands for one that JSON cannot write.
Result<float> LogBetaItem(const Json& item) {
  if (item.is_number()) return item.get<float>();
  if (item.is_null()) return kUnknown;
  if (item == "-inf") return -std::numeric_limits<float>::infinity();
  return Corrupt(StrCat("'log_beta': expected numbers, found ", Quoted(item)));
}

// Takes the lines of one file in their order.
class Reader {
 public:
  Status Take(const Json& line) {
    if (!line.is_object()) return NotTrace(line);
    const auto type = line.find("type");
    if (type == line.end() || !type->is_string()) return NotTrace(line);
    if (trace_.header.is_null()) {
      return *type == "header" ? TakeHeader(line) : NotTrace(line);
    }
    if (trace_.ended) return Corrupt("expected nothing after the line of type 'end'");
    if (*type == "cut") return TakeCut(line);
    if (*type == "reset") return StartRun();
    if (*type == "end") return TakeEnd(line);
    return Corrupt(StrCat("'type': expected 'cut', 'reset' or 'end', found ", Quoted(*type)));
  }

  bool has_header() const { return !trace_.header.is_null(); }
  TraceFile Finish() { return std::move(trace_); }

 private:
  static Status NotTrace(const Json& line) {
    return Corrupt(
        StrCat("expected the header of a trace, {\"type\":\"header\",...}, found ", Quoted(line)));
  }

  Status TakeHeader(const Json& line) {
    KVBOUND_RETURN_IF_ERROR(IntMember(line, "format", 1, kTraceFormat).status());
    KVBOUND_ASSIGN_OR_RETURN(const Json* model, Member(line, "model"));
    KVBOUND_ASSIGN_OR_RETURN(const Json* policy, Member(line, "policy"));
    KVBOUND_ASSIGN_OR_RETURN(const int64_t n_layer, IntMember(*model, "n_layer", 1, kMaxHeads));
    KVBOUND_ASSIGN_OR_RETURN(const int64_t n_kv_head,
                             IntMember(*model, "n_kv_head", 1, kMaxHeads / n_layer));
    KVBOUND_RETURN_IF_ERROR(StringMember(*policy, "name").status());
    KVBOUND_RETURN_IF_ERROR(IntMember(line, "budget", 1, INT32_MAX).status());
    KVBOUND_RETURN_IF_ERROR(IntMember(line, "chunk", 1, INT32_MAX).status());
    KVBOUND_ASSIGN_OR_RETURN(const std::string granularity, StringMember(*policy, "granularity"));
    int64_t n_set = 0;
    for (const auto& [value, n] : {std::pair{Granularity::kShared, int64_t{1}},
                                   {Granularity::kPerLayer, n_layer},
                                   {Granularity::kPerHead, n_layer * n_kv_head}}) {
      if (GranularityName(value) != granularity) continue;
      trace_.granularity = value;
      n_set = n;
    }
    if (n_set == 0) {
      return Corrupt(StrCat("'granularity': expected a granularity of token sets, found '",
                            Printable(granularity, 40), "'"));
    }
    KVBOUND_RETURN_IF_ERROR(IntMember(line, "n_set", n_set, n_set).status());
    trace_.header = line;
    trace_.n_layer = static_cast<int32_t>(n_layer);
    trace_.n_kv_head = static_cast<int32_t>(n_kv_head);
    trace_.n_set = static_cast<int32_t>(n_set);
    return StartRun();
  }

  Status StartRun() {
    trace_.runs.emplace_back();
    run().gone.resize(trace_.n_set);
    return Status::Ok();
  }

  Status TakeTokens(const Json& line) {
    KVBOUND_ASSIGN_OR_RETURN(const Json* tokens, ArrayMember(line, "new_tokens", -1));
    for (const Json& item : *tokens) {
      KVBOUND_ASSIGN_OR_RETURN(const int32_t token, IntItem(item, "new_tokens", INT32_MAX));
      run().tokens.push_back(token);
    }
    run().texts.resize(run().tokens.size());
    if (line.contains("new_texts")) {
      const int64_t n = static_cast<int64_t>(tokens->size());
      KVBOUND_ASSIGN_OR_RETURN(const Json* texts, ArrayMember(line, "new_texts", n));
      std::copy(texts->begin(), texts->end(), run().texts.end() - n);
    }
    for (auto& gone : run().gone) gone.resize(run().tokens.size(), TracedRun::kHeld);
    for (auto& row : run().log_beta) row.resize(run().tokens.size(), kUnknown);
    return IntMember(line, "tokens_seen", run().n_token(), run().n_token()).status();
  }

  Status TakeLogBeta(const Json& line, size_t n_new) {
    if (!line.contains("log_beta")) return Status::Ok();
    const int64_t n_head = int64_t{trace_.n_layer} * trace_.n_kv_head;
    KVBOUND_ASSIGN_OR_RETURN(const Json* rows, ArrayMember(line, "log_beta", n_head));
    const size_t n = run().tokens.size();
    if (run().log_beta.empty()) {
      run().log_beta.assign(static_cast<size_t>(n_head), std::vector<float>(n, kUnknown));
    }
    for (int64_t head = 0; head < n_head; ++head) {
      const Json& row = (*rows)[static_cast<size_t>(head)];
      if (!row.is_array() || row.size() != n_new) {
        return Corrupt(StrCat("'log_beta': expected ", n_new, " numbers for head ", head,
                              ", found ", row.is_array() ? StrCat(row.size()) : Quoted(row)));
      }
      float* out = run().log_beta[static_cast<size_t>(head)].data() + (n - n_new);
      for (const Json& item : row) {
        KVBOUND_ASSIGN_OR_RETURN(*out, LogBetaItem(item));
        ++out;
      }
    }
    return Status::Ok();
  }

  Status TakeCut(const Json& line) {
    const size_t n_before = run().tokens.size();
    KVBOUND_RETURN_IF_ERROR(TakeTokens(line));
    KVBOUND_RETURN_IF_ERROR(TakeLogBeta(line, run().tokens.size() - n_before));
    KVBOUND_ASSIGN_OR_RETURN(const int64_t n_kept, IntMember(line, "n_kept", 0, INT32_MAX));
    KVBOUND_ASSIGN_OR_RETURN(const Json* sets, ArrayMember(line, "sets", trace_.n_set));
    for (int32_t set = 0; set < trace_.n_set; ++set) {
      const Json& record = (*sets)[static_cast<size_t>(set)];
      if (!record.is_object()) return Corrupt("'sets': expected objects");
      KVBOUND_ASSIGN_OR_RETURN(const Json* evicted, ArrayMember(record, "evicted", -1));
      for (const Json& item : *evicted) {
        KVBOUND_ASSIGN_OR_RETURN(const int32_t position,
                                 IntItem(item, "evicted", run().n_token() - 1));
        int32_t& gone = run().gone[static_cast<size_t>(set)][static_cast<size_t>(position)];
        if (gone != TracedRun::kHeld) {
          return Corrupt(StrCat("'evicted': position ", position, " of set ", set,
                                " was evicted before, at cut ", gone));
        }
        gone = run().n_cut();
      }
    }
    if (const auto rebased = line.find("rebased"); rebased != line.end()) {
      if (!rebased->is_boolean()) {
        return Corrupt(StrCat("'rebased': expected true or false, found ", Quoted(*rebased)));
      }
      run().n_rebase += rebased->get<bool>() ? 1 : 0;
    }
    run().tokens_seen.push_back(run().n_token());
    run().n_kept.push_back(static_cast<int32_t>(n_kept));
    return Status::Ok();
  }

  Status TakeEnd(const Json& line) {
    trace_.ended = true;
    return TakeTokens(line);
  }

  TracedRun& run() { return trace_.runs.back(); }

  TraceFile trace_;
};

}  // namespace

int32_t TraceFile::SetOf(int32_t layer, int32_t kv_head) const {
  if (granularity == Granularity::kShared) return 0;
  return granularity == Granularity::kPerLayer ? layer : layer * n_kv_head + kv_head;
}

Result<TraceFile> ReadTrace(const std::string& path) {
  const std::string name = Printable(path);
  errno = 0;
  std::ifstream in(path, std::ios::binary);
  if (!in) return IoError(StrCat(name, ": cannot be read: ", std::strerror(errno)));
  Reader reader;
  std::string text;
  for (int64_t n = 1; std::getline(in, text); ++n) {
    const bool cut_off = in.eof();
    const Json line = Json::parse(text, nullptr, /*allow_exceptions=*/false);
    if (line.is_discarded() && reader.has_header() && cut_off) {
      return Corrupt(StrCat(name, ": line ", n,
                            ": expected a whole line, found one that is cut off after ",
                            text.size(), " bytes"));
    }
    if (line.is_discarded()) {
      return Corrupt(StrCat(name, ": line ", n, ": expected ",
                            reader.has_header() ? "a line" : "the header",
                            " of a trace, found no JSON: '", Printable(text, 40), "'"));
    }
    if (Status taken = reader.Take(line); !taken.ok()) {
      return Status(taken.code(), StrCat(name, ": line ", n, ": ", taken.message()));
    }
  }
  if (in.bad()) return IoError(StrCat(name, ": cannot be read: ", std::strerror(errno)));
  if (!reader.has_header()) {
    return Corrupt(StrCat(name, ": expected a trace, found an empty file"));
  }
  return reader.Finish();
}

}  // namespace kvbound::cli
