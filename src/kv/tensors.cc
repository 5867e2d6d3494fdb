#include "kv/tensors.h"

#include "kv/kv_type.h"

namespace kvbound {

KvTensors KvTensors::Declare(const KvLayout& layout, ggml_context* context) {
  KvTensors tensors;
  const int64_t d = layout.head_dim;
  const int64_t n = layout.n_slot();
  const ggml_type type_k = ToGgmlType(layout.type_k);
  const ggml_type type_v = ToGgmlType(layout.type_v);
  for (int32_t i = 0; i < layout.n_layer; ++i) {
    tensors.k.push_back(ggml_new_tensor_4d(context, type_k, d, n, layout.n_kv_head, layout.n_seq));
    tensors.v.push_back(ggml_new_tensor_4d(context, type_v, layout.v_transposed ? n : d,
                                           layout.v_transposed ? d : n, layout.n_kv_head,
                                           layout.n_seq));
  }
  if (layout.n_hidden > 0) {
    tensors.hidden = ggml_new_tensor_3d(context, ToGgmlType(layout.type_hidden), layout.n_hidden, n,
                                        layout.n_seq);
  }
  return tensors;
}

}  // namespace kvbound
