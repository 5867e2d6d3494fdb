#ifndef KVBOUND_MODEL_LOADED_GATES_H_
#define KVBOUND_MODEL_LOADED_GATES_H_

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "ggml-cpp.h"
#include "kvbound/gates.h"
#include "kvbound/status.h"
#include "model/loaded_model.h"

namespace kvbound {

// Gates as tensors on a model's device: what graphs compute log beta from. Immutable.
class LoadedGates {
 public:
  struct Linear {
    ggml_tensor* weight = nullptr;  // ne = {n_in, n_out}
    ggml_tensor* bias = nullptr;    // ne = {n_out}; the output's stays on the host
  };
  struct Layer {
    std::vector<Linear> hidden;
    Linear output;
  };

  // InvalidArgument if layers, width or KV heads are not the model's. With kShapesOnly the tensors
  // have no data, to plan graphs.
  static Result<std::unique_ptr<LoadedGates>> Make(std::shared_ptr<const Gates> gates,
                                                   const LoadedModel& model, Weights::Mode mode);

  const Layer& layer(int32_t i) const { return layers_[i]; }
  GateActivation activation() const { return gates_->parts().activation; }
  int32_t n_hidden_linear() const { return static_cast<int32_t>(layers_[0].hidden.size()); }
  uint64_t total_bytes() const { return bytes_; }

  // Floats that the outputs of one layer take for any of up to `max_tokens` tokens.
  static size_t OutputSize(const Gates& gates, int64_t max_tokens);

  // log beta from outputs of `layer`'s graph, [n_token, n_part, n_kv_head], in place: the result
  // [n_token, n_kv_head] is the front of `outputs`. In f32 and never through beta itself, which
  // rounds to 1 long before log beta rounds to 0.
  std::span<float> LogBeta(int32_t layer, std::span<float> outputs, int64_t n_part) const;

 private:
  explicit LoadedGates(std::shared_ptr<const Gates> gates) : gates_(std::move(gates)) {}
  void Declare();
  Status Place(ggml_backend_buffer_type_t type, Weights::Mode mode);

  struct Entry {
    ggml_tensor* tensor;
    const void* data;
  };

  std::shared_ptr<const Gates> gates_;
  std::vector<Layer> layers_;
  std::vector<Entry> entries_;
  ggml_context_ptr context_;
  ggml_backend_buffer_ptr buffer_;
  uint64_t bytes_ = 0;
};

}  // namespace kvbound

#endif  // KVBOUND_MODEL_LOADED_GATES_H_
