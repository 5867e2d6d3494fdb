#ifndef KVBOUND_KV_SLOT_MOVES_H_
#define KVBOUND_KV_SLOT_MOVES_H_

#include <cstdint>
#include <span>

#include "ggml.h"

namespace kvbound {

// The row of a survivor goes from a slot of the tail into a hole of the part that stays.
struct SlotMove {
  int32_t from;
  int32_t to;
};

// Writes the moves that make the slots with keep[slot] != 0 dense to `moves`, which has room for
// `keep.size()`: holes below `kept` ascending, survivors at or above it ascending. Returns their
// number. `kept` is the number of nonzero entries.
int32_t PlanMoves(std::span<const uint8_t> keep, int32_t kept, std::span<SlotMove> moves);

// The rows of one head of one sequence (or the hidden rows of one) inside a tensor.
struct SlotPlane {
  ggml_tensor* tensor;
  size_t offset;     // of the plane's first byte in the tensor
  int32_t n_slot;    // allocated
  size_t row_bytes;  // of a slot, or of one dimension over all slots if transposed
  int32_t n_dim;     // rows of the plane if transposed; else unused
  bool transposed;   // slots lie along the contiguous dimension

  size_t bytes() const { return row_bytes * static_cast<size_t>(transposed ? n_dim : n_slot); }
};

// Applies the moves in memory that the CPU can address.
void MoveDirect(const SlotPlane& plane, std::span<const SlotMove> moves);

// Applies them through the host memory `staging`, which the backend copies to and from: of one
// row at a time, or of the whole plane if `staging` has room for it.
void MoveStaged(const SlotPlane& plane, std::span<const SlotMove> moves,
                std::span<uint8_t> staging);

}  // namespace kvbound

#endif  // KVBOUND_KV_SLOT_MOVES_H_
