#include "policy/select.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/strings.h"

namespace kvbound {

namespace {

Status SelectSet(std::span<const float> scores, std::span<const Position> positions, int32_t budget,
                 int64_t tokens_seen, const ProtectedSpans& protection, std::span<int32_t> order,
                 std::span<uint8_t> keep) {
  const auto n = static_cast<int32_t>(scores.size());
  int32_t n_free = 0;  // slots that the score decides about
  for (int32_t slot = 0; slot < n; ++slot) {
    const bool is_protected = protection.Contains(positions[slot], tokens_seen);
    keep[slot] = is_protected ? 1 : 0;
    if (!is_protected) order[n_free++] = slot;
  }
  const int32_t room = std::min(n, budget) - (n - n_free);
  if (room < 0) {
    return OutOfBudget(
        StrCat("protected slots: expected at most the budget of ", budget, ", found ", n - n_free));
  }
  const auto before = [&](int32_t a, int32_t b) {
    if (scores[a] != scores[b]) return scores[a] > scores[b];
    return positions[a] < positions[b];
  };
  if (0 < room && room < n_free) {
    std::nth_element(order.begin(), order.begin() + (room - 1), order.begin() + n_free, before);
  }
  for (int32_t i = 0; i < room; ++i) keep[order[i]] = 1;
  return Status::Ok();
}

}  // namespace

Status Select(const CacheView& view, std::span<const float> scores,
              const ProtectedSpans& protection, std::span<int32_t> order, std::span<uint8_t> keep) {
  const auto n = static_cast<size_t>(view.n_slot());
  DCHECK(scores.size() == view.n_set() * n && keep.size() == scores.size() && order.size() >= n);
  const auto nan =
      std::find_if(scores.begin(), scores.end(), [](float s) { return std::isnan(s); });
  if (nan != scores.end()) {
    const auto set = static_cast<int32_t>((nan - scores.begin()) / n);
    const auto slot = static_cast<int32_t>((nan - scores.begin()) % n);
    return InvalidArgument(StrCat("score of set ", set, ", slot ", slot, ", position ",
                                  view.positions(set)[slot].value,
                                  ": expected a number, found NaN"));
  }
  for (int32_t set = 0; set < view.n_set(); ++set) {
    KVBOUND_RETURN_IF_ERROR(SelectSet(scores.subspan(set * n, n), view.positions(set),
                                      view.budget(), view.tokens_seen(), protection, order,
                                      keep.subspan(set * n, n)));
  }
  return Status::Ok();
}

}  // namespace kvbound
