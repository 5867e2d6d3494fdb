#ifndef KVBOUND_MODEL_WEIGHTS_H_
#define KVBOUND_MODEL_WEIGHTS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ggml-cpp.h"
#include "kvbound/options.h"
#include "kvbound/status.h"
#include "model/model_file.h"

namespace kvbound {

// The weights of one decoder block. Shapes are outermost first, as [rows, columns]; nullptr where
// the model has none.
struct LayerWeights {
  ggml_tensor* attn_norm = nullptr;  // [n_embd]
  ggml_tensor* q = nullptr;          // [n_head * head_dim, n_embd]
  ggml_tensor* k = nullptr;          // [n_kv_head * head_dim, n_embd]
  ggml_tensor* v = nullptr;          // [n_kv_head * head_dim, n_embd]
  ggml_tensor* q_bias = nullptr;     // [n_head * head_dim]
  ggml_tensor* k_bias = nullptr;     // [n_kv_head * head_dim]
  ggml_tensor* v_bias = nullptr;     // [n_kv_head * head_dim]
  ggml_tensor* q_norm = nullptr;     // [head_dim]
  ggml_tensor* k_norm = nullptr;     // [head_dim]
  ggml_tensor* attn_out = nullptr;   // [n_embd, n_head * head_dim]
  ggml_tensor* ffn_norm = nullptr;   // [n_embd]
  ggml_tensor* ffn_gate = nullptr;   // [n_ff, n_embd]
  ggml_tensor* ffn_up = nullptr;     // [n_ff, n_embd]
  ggml_tensor* ffn_down = nullptr;   // [n_embd, n_ff]
};

// Where the weights live and how many bytes each place holds.
struct WeightBuffer {
  std::string name;  // ggml's name of the buffer type; "mapped" for the file itself
  uint64_t bytes = 0;
};

// All weights of a model as ggml tensors. Immutable after loading.
class Weights {
 public:
  // Data of the tensors: of the file, or none (shapes only, to plan graphs; nothing is allocated).
  enum class Mode { kLoad, kShapesOnly };

  // `file` must outlive the weights (mapped tensors point into it).
  static Result<std::unique_ptr<Weights>> Make(const CheckedModelFile& file,
                                               const ModelOptions& options,
                                               ggml_backend_dev_t device, Mode mode);

  ggml_tensor* token_embd = nullptr;   // [n_vocab, n_embd]
  ggml_tensor* output_norm = nullptr;  // [n_embd]
  ggml_tensor* head = nullptr;         // [n_vocab, n_embd], perhaps rearranged for the CPU
  ggml_tensor* head_rows = nullptr;    // the same rows, never rearranged: can be gathered
  ggml_tensor* rope_freqs = nullptr;   // [n_rot / 2], divides the angles
  std::vector<LayerWeights> layers;

  const std::vector<WeightBuffer>& buffers() const { return buffers_; }
  uint64_t total_bytes() const;

 private:
  friend class WeightLoader;

  ggml_context_ptr context_;
  std::vector<ggml_backend_buffer_ptr> owned_;
  std::vector<WeightBuffer> buffers_;
};

}  // namespace kvbound

#endif  // KVBOUND_MODEL_WEIGHTS_H_
