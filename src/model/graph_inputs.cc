#include "model/graph_inputs.h"

#include "ggml-backend.h"

namespace kvbound {
namespace {

void Set(ggml_tensor* tensor, const void* data) {
  // An input that no operator reads gets no memory.
  if (tensor != nullptr && tensor->data != nullptr) {
    ggml_backend_tensor_set(tensor, data, 0, ggml_nbytes(tensor));
  }
}

}  // namespace

GraphInputs::GraphInputs(const Sizes& sizes)
    : tokens(sizes.tokens),
      positions(sizes.tokens),
      targets(sizes.tokens),
      slots(sizes.tokens),
      row_on(sizes.tokens),
      visible(sizes.tokens),
      occupied(sizes.heads),
      ranks(sizes.slots),
      mask_(sizes.cells),
      mask_f16_(sizes.cells) {}

uint64_t GraphInputs::Bytes(const Sizes& sizes) {
  return sizes.tokens * (3 * sizeof(int32_t) + sizeof(int64_t) + sizeof(float) + sizeof(Visible)) +
         (sizes.heads + sizes.slots) * sizeof(int32_t) +
         sizes.cells * (sizeof(float) + sizeof(ggml_fp16_t));
}

uint64_t GraphInputs::allocated_bytes() const {
  return (tokens.capacity() + positions.capacity() + targets.capacity() + occupied.capacity() +
          ranks.capacity()) *
             sizeof(int32_t) +
         visible.capacity() * sizeof(Visible) + slots.capacity() * sizeof(int64_t) +
         (row_on.capacity() + mask_.capacity()) * sizeof(float) +
         mask_f16_.capacity() * sizeof(ggml_fp16_t);
}

void GraphInputs::Upload(const Graph& graph) {
  Set(graph.tokens, tokens.data());
  Set(graph.hidden_slots, tokens.data());
  Set(graph.positions, positions.data());
  Set(graph.targets, targets.data());
  Set(graph.out_rows, targets.data());
  Set(graph.slots, slots.data());
  Set(graph.row_on, row_on.data());
  Set(graph.visible, visible.data());
  Set(graph.occupied, occupied.data());
  Set(graph.ranks, ranks.data());
  Set(graph.rows, rows.data());
  Set(graph.mean_head, mean_head.data());
  if (graph.mask == nullptr) return;
  if (graph.mask->type == GGML_TYPE_F16) {
    ggml_fp32_to_fp16_row(mask_.data(), mask_f16_.data(), ggml_nelements(graph.mask));
    Set(graph.mask, mask_f16_.data());
  } else {
    Set(graph.mask, mask_.data());
  }
}

void ReadOutput(const ggml_tensor* tensor, int64_t first, std::span<float> out) {
  ggml_backend_tensor_get(tensor, out.data(), first * sizeof(float), out.size_bytes());
}

}  // namespace kvbound
