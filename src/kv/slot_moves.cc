#include "kv/slot_moves.h"

#include <cstring>

#include "base/check.h"
#include "ggml-backend.h"

namespace kvbound {

namespace {

template <typename Element>
void MoveElements(uint8_t* plane, size_t row_bytes, int32_t n_row,
                  std::span<const SlotMove> moves) {
  for (int32_t r = 0; r < n_row; ++r) {
    Element* row = reinterpret_cast<Element*>(plane + r * row_bytes);
    for (const SlotMove& move : moves) row[move.to] = row[move.from];
  }
}

void MoveInMemory(const SlotPlane& plane, uint8_t* base, std::span<const SlotMove> moves) {
  if (!plane.transposed) {
    for (const SlotMove& move : moves) {
      std::memcpy(base + move.to * plane.row_bytes, base + move.from * plane.row_bytes,
                  plane.row_bytes);
    }
    return;
  }
  const size_t element = plane.row_bytes / static_cast<size_t>(plane.n_slot);
  DCHECK(element == 2 || element == 4);
  if (element == 2) {
    MoveElements<uint16_t>(base, plane.row_bytes, plane.n_dim, moves);
  } else {
    MoveElements<uint32_t>(base, plane.row_bytes, plane.n_dim, moves);
  }
}

}  // namespace

int32_t PlanMoves(std::span<const uint8_t> keep, int32_t kept, std::span<SlotMove> moves) {
  int32_t n_move = 0;
  int32_t from = kept;
  for (int32_t to = 0; to < kept; ++to) {
    if (keep[to] != 0) continue;
    while (keep[from] == 0) ++from;
    moves[n_move++] = {from++, to};
  }
  return n_move;
}

void MoveDirect(const SlotPlane& plane, std::span<const SlotMove> moves) {
  MoveInMemory(plane, static_cast<uint8_t*>(plane.tensor->data) + plane.offset, moves);
}

void MoveStaged(const SlotPlane& plane, std::span<const SlotMove> moves,
                std::span<uint8_t> staging) {
  if (moves.empty()) return;
  if (plane.bytes() <= staging.size()) {
    ggml_backend_tensor_get(plane.tensor, staging.data(), plane.offset, plane.bytes());
    MoveInMemory(plane, staging.data(), moves);
    ggml_backend_tensor_set(plane.tensor, staging.data(), plane.offset, plane.bytes());
    return;
  }
  DCHECK(!plane.transposed && plane.row_bytes <= staging.size());
  for (const SlotMove& move : moves) {
    ggml_backend_tensor_get(plane.tensor, staging.data(),
                            plane.offset + move.from * plane.row_bytes, plane.row_bytes);
    ggml_backend_tensor_set(plane.tensor, staging.data(), plane.offset + move.to * plane.row_bytes,
                            plane.row_bytes);
  }
}

}  // namespace kvbound
