#include "policy/protection.h"

#include <algorithm>

#include "base/strings.h"

namespace kvbound {

namespace {

Status CheckNotNegative(const char* option, const std::optional<int32_t>& value) {
  if (!value || *value >= 0) return Status::Ok();
  return InvalidArgument(StrCat(option, ": expected 0 or more, found ", *value));
}

// `spans` with `span` added, ascending and merged.
std::vector<PositionSpan> Merged(std::vector<PositionSpan> spans, PositionSpan span) {
  spans.push_back(span);
  std::sort(spans.begin(), spans.end(),
            [](const PositionSpan& a, const PositionSpan& b) { return a.begin < b.begin; });
  std::vector<PositionSpan> merged;
  for (const PositionSpan& next : spans) {
    if (!merged.empty() && next.begin <= merged.back().end) {
      merged.back().end = std::max(merged.back().end, next.end);
    } else {
      merged.push_back(next);
    }
  }
  return merged;
}

}  // namespace

Result<ProtectedSpans> ProtectedSpans::Resolve(const ProtectionOptions& options,
                                               const PolicyInfo& info, int32_t budget) {
  KVBOUND_RETURN_IF_ERROR(CheckNotNegative("sinks", options.sinks));
  KVBOUND_RETURN_IF_ERROR(CheckNotNegative("recent", options.recent));

  const Protection& defaults = info.default_protection;
  ProtectedSpans spans;
  spans.budget_ = budget;
  spans.evicts_ = info.evicts;
  spans.min_recent_ = info.min_recent;
  spans.protection_.pin_prompt = options.pin_prompt.value_or(defaults.pin_prompt);

  const int32_t free = std::max(budget - 1, 0);
  const int32_t given_recent = std::max(options.recent.value_or(0), info.min_recent);
  const int32_t sinks = options.sinks.value_or(
      std::clamp(std::min(defaults.sinks, budget / 2), 0, std::max(free - given_recent, 0)));
  const int32_t recent = options.recent.value_or(
      std::clamp(std::min(defaults.recent, budget / 4), 0, std::max(free - sinks, 0)));
  spans.protection_.sinks = sinks;
  spans.protection_.recent = recent;

  if (sinks < info.min_sinks) {
    return InvalidArgument(StrCat("sinks: policy '", info.name, "' expects at least ",
                                  info.min_sinks, ", found ", sinks,
                                  " (the policy 'window' is the one without sinks)"));
  }
  KVBOUND_RETURN_IF_ERROR(spans.CheckRoom());
  return spans;
}

Status ProtectedSpans::Pin(PositionSpan span) {
  if (span.begin.value < 0 || span.end <= span.begin) {
    return InvalidArgument(StrCat("pinned span: expected 0 <= begin < end, found [",
                                  span.begin.value, ", ", span.end.value, ")"));
  }
  std::vector<PositionSpan> merged = Merged(pinned_, span);
  std::swap(pinned_, merged);
  Status room = CheckRoom();
  if (!room.ok()) std::swap(pinned_, merged);
  return room;
}

bool ProtectedSpans::Contains(Position position, int64_t tokens_seen) const {
  if (position.value < protection_.sinks) return true;
  if (position.value >= tokens_seen - protection_.recent) return true;
  for (const PositionSpan& span : pinned_) {
    if (span.begin <= position && position < span.end) return true;
  }
  return false;
}

int64_t ProtectedSpans::MaxSlots() const {
  int64_t slots = protection_.sinks + int64_t{std::max(protection_.recent, min_recent_)};
  for (const PositionSpan& span : pinned_) {
    slots += std::max(0, span.end.value - std::max(span.begin.value, protection_.sinks));
  }
  return slots;
}

Status ProtectedSpans::CheckRoom() const {
  if (!evicts_ || MaxSlots() < budget_) return Status::Ok();
  const int64_t recent = std::max(protection_.recent, min_recent_);
  return OutOfBudget(StrCat("protected slots: expected fewer than the budget of ", budget_,
                            ", found ", MaxSlots(), " (sinks ", protection_.sinks, ", recent ",
                            recent, ", pinned ", MaxSlots() - protection_.sinks - recent, ")"));
}

}  // namespace kvbound
