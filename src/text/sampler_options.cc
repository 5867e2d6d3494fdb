#include <cmath>
#include <limits>
#include <string_view>

#include "base/strings.h"
#include "kvbound/sampler.h"
#include "text/grammar_check.h"
#include "text/utf8.h"

namespace kvbound {
namespace {

constexpr int32_t kMaxLastN = 65536;
constexpr int64_t kMaxSeed = 0xFFFFFFFE;  // llama takes 0xFFFFFFFF for "random"
constexpr float kInfinity = std::numeric_limits<float>::infinity();

template <typename T>
Status CheckRange(std::string_view field, T value, T low, T high) {
  if (value >= low && value <= high) return Status::Ok();
  return InvalidArgument(StrCat(field, ": expected ", low, "..", high, ", found ", value));
}

Status CheckFinite(std::string_view field, float value) {
  if (std::isfinite(value)) return Status::Ok();
  return InvalidArgument(StrCat(field, ": expected a finite number, found ", value));
}

Status CheckPositive(std::string_view field, float value) {
  if (std::isfinite(value) && value > 0.0f) return Status::Ok();
  return InvalidArgument(StrCat(field, ": expected a number above 0, found ", value));
}

Status CheckBreakers(const std::vector<std::string>& breakers) {
  constexpr size_t kMaxBreakers = 64, kMaxBytes = 40;
  if (breakers.size() > kMaxBreakers) {
    return InvalidArgument(StrCat("dry_sequence_breakers: expected at most ", kMaxBreakers,
                                  ", found ", breakers.size()));
  }
  for (const std::string& text : breakers) {
    if (text.empty() || text.size() > kMaxBytes || text.find('\0') != std::string::npos) {
      return InvalidArgument(StrCat("dry_sequence_breakers: expected 1..", kMaxBytes,
                                    " bytes without NUL each, found ", text.size(), " bytes '",
                                    Printable(text), "'"));
    }
    KVBOUND_RETURN_IF_ERROR(CheckUtf8("dry_sequence_breakers", text));
  }
  return Status::Ok();
}

Status CheckMirostat(const SamplerOptions& o) {
  KVBOUND_RETURN_IF_ERROR(CheckRange("mirostat", o.mirostat, 0, 2));
  KVBOUND_RETURN_IF_ERROR(CheckPositive("mirostat_tau", o.mirostat_tau));
  KVBOUND_RETURN_IF_ERROR(CheckPositive("mirostat_eta", o.mirostat_eta));
  if (o.mirostat == 0) return Status::Ok();
  if (o.temperature <= 0.0f) {
    return InvalidArgument("mirostat: expected a temperature above 0 with it, found greedy");
  }
  const std::string_view clash = o.typical_p < 1.0f     ? "typical_p"
                                 : o.top_n_sigma > 0.0f ? "top_n_sigma"
                                 : o.xtc_probability > 0.0f && o.xtc_threshold <= 0.5f
                                     ? "xtc_probability"
                                 : o.dynatemp_range > 0.0f ? "dynatemp_range"
                                                           : "";
  if (clash.empty()) return Status::Ok();
  return InvalidArgument(StrCat(clash, ": expected off together with mirostat, found on"));
}

}  // namespace

Status SamplerOptions::Validate() const {
  KVBOUND_RETURN_IF_ERROR(CheckFinite("temperature", temperature));
  KVBOUND_RETURN_IF_ERROR(CheckRange("dynatemp_range", dynatemp_range, 0.0f, 1e6f));
  KVBOUND_RETURN_IF_ERROR(CheckFinite("dynatemp_exponent", dynatemp_exponent));
  KVBOUND_RETURN_IF_ERROR(CheckRange("top_p", top_p, 0.0f, 1.0f));
  KVBOUND_RETURN_IF_ERROR(CheckRange("min_p", min_p, 0.0f, 1.0f));
  KVBOUND_RETURN_IF_ERROR(CheckRange("typical_p", typical_p, 0.0f, 1.0f));
  KVBOUND_RETURN_IF_ERROR(CheckFinite("top_n_sigma", top_n_sigma));
  KVBOUND_RETURN_IF_ERROR(CheckRange("xtc_probability", xtc_probability, 0.0f, 1.0f));
  KVBOUND_RETURN_IF_ERROR(CheckRange("xtc_threshold", xtc_threshold, 0.0f, 1.0f));
  KVBOUND_RETURN_IF_ERROR(CheckRange("min_keep", min_keep, 0, std::numeric_limits<int32_t>::max()));
  KVBOUND_RETURN_IF_ERROR(CheckRange("repeat_last_n", repeat_last_n, -1, kMaxLastN));
  KVBOUND_RETURN_IF_ERROR(CheckPositive("repeat_penalty", repeat_penalty));
  KVBOUND_RETURN_IF_ERROR(CheckFinite("presence_penalty", presence_penalty));
  KVBOUND_RETURN_IF_ERROR(CheckFinite("frequency_penalty", frequency_penalty));
  KVBOUND_RETURN_IF_ERROR(CheckRange("dry_multiplier", dry_multiplier, 0.0f, 1e6f));
  KVBOUND_RETURN_IF_ERROR(CheckRange("dry_base", dry_base, 1.0f, 1e6f));
  KVBOUND_RETURN_IF_ERROR(CheckRange("dry_allowed_length", dry_allowed_length, 0, kMaxLastN));
  KVBOUND_RETURN_IF_ERROR(CheckRange("dry_penalty_last_n", dry_penalty_last_n, -1, kMaxLastN));
  KVBOUND_RETURN_IF_ERROR(CheckBreakers(dry_sequence_breakers));
  KVBOUND_RETURN_IF_ERROR(CheckMirostat(*this));
  KVBOUND_RETURN_IF_ERROR(CheckRange("seed", seed, int64_t{-1}, kMaxSeed));
  for (const auto& [token, bias] : logit_bias) {
    if (std::isnan(bias) || bias == kInfinity) {
      return InvalidArgument(StrCat("logit_bias: token ", token,
                                    ": expected a finite number or -infinity, found ", bias));
    }
  }
  if (!grammar.empty()) return CheckGrammar(grammar);
  return Status::Ok();
}

}  // namespace kvbound
