#include "model/attention_op.h"

#include <array>
#include <cmath>

#include "kv/kv_type.h"

namespace kvbound {
namespace {

const int32_t* Ints(const ggml_tensor* t) { return static_cast<const int32_t*>(t->data); }

void Compute(ggml_tensor* dst, int, int n_thread, void* counters) {
  const AttentionOpInputs inputs{dst->src[0], dst->src[1], dst->src[2], dst->src[3],
                                 dst->src[4], dst->src[5], dst->src[6]};
  AttentionCall call;
  call.shape = AttentionOpShape(inputs);
  call.q = static_cast<const float*>(inputs.q->data);
  call.scale = 1.0f / std::sqrt(static_cast<float>(call.shape.head_dim));
  call.k = TensorRows(inputs.k);
  call.v = TensorRows(inputs.v);
  call.n_slot = Ints(inputs.occupied);
  call.ranks = inputs.ranks == nullptr ? nullptr : Ints(inputs.ranks);
  call.visible = static_cast<const Visible*>(inputs.visible->data);
  call.out = static_cast<float*>(dst->data);
  call.mass = inputs.mass == nullptr ? nullptr : static_cast<float*>(inputs.mass->data);
  call.workspace = call.out + ggml_nelements(inputs.q);
  call.counters = static_cast<std::atomic<int32_t>*>(counters);
  Attend(call, n_thread);
}

}  // namespace

SlotRows TensorRows(const ggml_tensor* t) {
  return {FromGgmlType(t->type), static_cast<const std::byte*>(t->data), t->nb[1], t->nb[2],
          t->nb[3]};
}

AttentionShape AttentionOpShape(const AttentionOpInputs& inputs) {
  AttentionShape shape;
  shape.n_seq = static_cast<int32_t>(inputs.k->ne[3]);
  shape.n_tok = static_cast<int32_t>(inputs.q->ne[2] / inputs.k->ne[3]);
  shape.n_head = static_cast<int32_t>(inputs.q->ne[1]);
  shape.n_kv_head = static_cast<int32_t>(inputs.k->ne[2]);
  shape.head_dim = static_cast<int32_t>(inputs.k->ne[0]);
  shape.max_slots = static_cast<int32_t>(inputs.k->ne[1]);
  shape.mass = inputs.mass != nullptr;
  return shape;
}

ggml_tensor* AttentionOp(ggml_context* context, const AttentionOpInputs& inputs,
                         std::atomic<int32_t>* counters) {
  std::array<ggml_tensor*, 7> args = {inputs.q,        inputs.k,     inputs.v,   inputs.visible,
                                      inputs.occupied, inputs.ranks, inputs.mass};
  const int64_t n_out = ggml_nelements(inputs.q);
  const auto n_workspace = static_cast<int64_t>(AttentionWorkspace(AttentionOpShape(inputs)));
  ggml_tensor* all = ggml_custom_4d(context, GGML_TYPE_F32, n_out + n_workspace, 1, 1, 1,
                                    args.data(), args.size(), Compute, GGML_N_TASKS_MAX, counters);
  const int64_t width = inputs.q->ne[0] * inputs.q->ne[1];
  return ggml_view_2d(context, all, width, inputs.q->ne[2], width * sizeof(float), 0);
}

}  // namespace kvbound
