#ifndef KVBOUND_POLICY_PROTECTION_H_
#define KVBOUND_POLICY_PROTECTION_H_

#include <cstdint>
#include <vector>

#include "kvbound/options.h"
#include "kvbound/policy.h"
#include "kvbound/status.h"
#include "kvbound/types.h"

namespace kvbound {

// The positions that no cut of one sequence may take: sinks, recent window and pinned spans.
// Overlaps count once.
class ProtectedSpans {
 public:
  // What the user asked for, with the policy's defaults for the fields left open. A default
  // shrinks (sinks to budget / 2, recent to budget / 4, both to what the rest leaves free); a
  // number given by the user never does. InvalidArgument: a negative number, or fewer sinks than
  // the policy needs. OutOfBudget: the protected slots would fill the budget (which a policy that
  // never evicts may do).
  static Result<ProtectedSpans> Resolve(const ProtectionOptions& options, const PolicyInfo& info,
                                        int32_t budget);

  // Protects `span` from now on. InvalidArgument: begin < 0 or end <= begin. OutOfBudget (and
  // nothing changed): the protected slots would fill the budget.
  Status Pin(PositionSpan span);

  // Forgets all pinned spans.
  void Unpin() { pinned_.clear(); }

  bool Contains(Position position, int64_t tokens_seen) const;

  // Most slots that the protection can ever take.
  int64_t MaxSlots() const;

  // sinks, recent and pin_prompt as resolved.
  const Protection& protection() const { return protection_; }
  // Ascending, disjoint.
  const std::vector<PositionSpan>& pinned() const { return pinned_; }

 private:
  Status CheckRoom() const;

  Protection protection_;
  int32_t min_recent_ = 0;
  int32_t budget_ = 0;
  bool evicts_ = true;
  std::vector<PositionSpan> pinned_;
};

}  // namespace kvbound

#endif  // KVBOUND_POLICY_PROTECTION_H_
