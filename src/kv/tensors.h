#ifndef KVBOUND_KV_TENSORS_H_
#define KVBOUND_KV_TENSORS_H_

#include <vector>

#include "ggml.h"
#include "kv/layout.h"

namespace kvbound {

// The store's tensors as graphs see them. Every slot of every sequence is in them.
struct KvTensors {
  std::vector<ggml_tensor*> k;    // per layer, ne = {head_dim, n_slot, n_kv_head, n_seq}
  std::vector<ggml_tensor*> v;    // ne = {n_slot, head_dim, n_kv_head, n_seq} if transposed
  ggml_tensor* hidden = nullptr;  // ne = {n_hidden, n_slot, n_seq}; nullptr: none kept

  // Declares them in `context` (n_layer * 2 + 1 tensors), without data.
  static KvTensors Declare(const KvLayout& layout, ggml_context* context);
};

}  // namespace kvbound

#endif  // KVBOUND_KV_TENSORS_H_
