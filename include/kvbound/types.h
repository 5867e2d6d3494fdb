#ifndef KVBOUND_TYPES_H_
#define KVBOUND_TYPES_H_

#include <compare>
#include <cstdint>

namespace kvbound {

// An id of the model's vocabulary.
using Token = int32_t;

// The index of a token in its whole sequence: what RoPE saw. Kept for life, never renumbered.
struct Position {
  int32_t value = 0;
  auto operator<=>(const Position&) const = default;
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
