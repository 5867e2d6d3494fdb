#include <array>
#include <string_view>

#include "base/strings.h"
#include "kvbound/policy.h"
#include "policy/policies.h"

namespace kvbound {

namespace {

struct Entry {
  std::string_view name;
  bool takes_seed;
  bool takes_granularity;
  bool takes_counter_causal;
  bool takes_retention;
  MadePolicy (*make)(const PolicyOptions&);
};

// To add a policy: one file in this folder, its maker in policies.h, one line here.
constexpr std::array kEntries = {
    Entry{"none", false, false, false, false, MakeNone},
    Entry{"window", false, false, false, false, MakeWindow},
    Entry{"streaming", false, false, false, false, MakeStreaming},
    Entry{"h2o", false, true, false, false, MakeH2o},
    Entry{"random", true, true, false, false, MakeRandom},
    Entry{"counter-causal", false, false, true, false, MakeCounterCausal},
    Entry{"counter-causal-fast", false, false, true, false, MakeCounterCausalFast},
    Entry{"retention", false, true, false, true, MakeRetention},
};

Status RefuseUnlessTaken(std::string_view policy, const char* parameter, bool given, bool taken) {
  if (!given || taken) return Status::Ok();
  return InvalidArgument(StrCat("policy '", policy, "': takes no parameter '", parameter, "'"));
}

}  // namespace

Result<std::unique_ptr<EvictionPolicy>> MakePolicy(const PolicyOptions& options) {
  std::string known;
  for (const Entry& entry : kEntries) {
    known += StrCat(known.empty() ? "" : ", ", entry.name);
    if (entry.name != options.name) continue;
    KVBOUND_RETURN_IF_ERROR(
        RefuseUnlessTaken(entry.name, "seed", options.seed.has_value(), entry.takes_seed));
    KVBOUND_RETURN_IF_ERROR(RefuseUnlessTaken(
        entry.name, "granularity", options.granularity.has_value(), entry.takes_granularity));
    KVBOUND_RETURN_IF_ERROR(RefuseUnlessTaken(entry.name, "counter_causal",
                                              options.counter_causal.has_value(),
                                              entry.takes_counter_causal));
    KVBOUND_RETURN_IF_ERROR(RefuseUnlessTaken(
        entry.name, "retention", options.retention.has_value(), entry.takes_retention));
    return entry.make(options);
  }
  return NotFound(
      StrCat("policy: expected one of ", known, ", found '", Printable(options.name), "'"));
}

std::vector<PolicyInfo> ListPolicies() {
  std::vector<PolicyInfo> infos;
  for (const Entry& entry : kEntries) {
    PolicyOptions options;
    options.name = entry.name;
    infos.push_back((*entry.make(options))->Info());
  }
  return infos;
}

}  // namespace kvbound
