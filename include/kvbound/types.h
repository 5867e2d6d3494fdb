#ifndef KVBOUND_TYPES_H_
#define KVBOUND_TYPES_H_

#include <compare>
#include <cstdint>

namespace kvbound {

// An id of the model's vocabulary.
using Token = int32_t;

// The index of a token in its whole sequence. Kept for life, never renumbered.
struct Position {
  int32_t value = 0;
  auto operator<=>(const Position&) const = default;
};

// The position by which RoPE has rotated a key or a query. Equal to the Position until a rebase
// moves the keys of the cache back, so that no query leaves the context that a model was trained
// on.
struct RopePosition {
  int32_t value = 0;
  auto operator<=>(const RopePosition&) const = default;
};

// A row of the bounded store. Says nothing about when its token came: slots are reused.
struct Slot {
  int32_t value = 0;
  auto operator<=>(const Slot&) const = default;
};

// A half-open range of positions [begin, end).
struct PositionSpan {
  Position begin;
  Position end;
};

}  // namespace kvbound

#endif  // KVBOUND_TYPES_H_
