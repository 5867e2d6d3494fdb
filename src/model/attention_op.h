#ifndef KVBOUND_MODEL_ATTENTION_OP_H_
#define KVBOUND_MODEL_ATTENTION_OP_H_

#include <atomic>
#include <cstdint>

#include "ggml.h"
#include "kernels/attention.h"

namespace kvbound {

// Attend (kernels/attention.h) as an operator of a ggml graph on the CPU.
struct AttentionOpInputs {
  ggml_tensor* q = nullptr;         // f32, ne = {head_dim, n_head, n_tok * n_seq}
  ggml_tensor* k = nullptr;         // ne = {head_dim, n_slot, n_kv_head, n_seq}
  ggml_tensor* v = nullptr;         // the same
  ggml_tensor* visible = nullptr;   // i32, ne = {2, n_tok * n_seq}: Visible
  ggml_tensor* occupied = nullptr;  // i32, ne = {n_kv_head, n_seq}: slots that heads hold
  ggml_tensor* ranks = nullptr;     // i32, ne = {n_slot, n_seq} or null: in the order of slots
  // f32, ne = {n_slot, n_kv_head, n_seq} or null: filled with the attention that slots get, see
  // AttentionCall::mass. Beyond a head's slots it keeps what it held.
  ggml_tensor* mass = nullptr;
};

// A tensor of K or V as Attend reads it.
SlotRows TensorRows(const ggml_tensor* tensor);

// The shape of the call that these inputs make.
AttentionShape AttentionOpShape(const AttentionOpInputs& inputs);

// f32, ne = {head_dim * n_head, n_tok * n_seq}. `counters` are AttentionCounters numbers, zero
// while no graph is computed, which all operators of a graph may share; null in graphs that are
// only measured. The workspace is part of the result's tensor.
ggml_tensor* AttentionOp(ggml_context* context, const AttentionOpInputs& inputs,
                         std::atomic<int32_t>* counters);

}  // namespace kvbound

#endif  // KVBOUND_MODEL_ATTENTION_OP_H_
