#ifndef KVBOUND_TRAIN_GATE_MODULE_H_
#define KVBOUND_TRAIN_GATE_MODULE_H_

#include <torch/torch.h>

#include <cstdint>
#include <string>
#include <vector>

#include "kvbound/gates.h"
#include "kvbound/status.h"

namespace kvbound::train {

using torch::Tensor;

// log(sigmoid(x)), whose gradient sigmoid(-x) keeps its relative precision for every x, however
// large: a gate that hardly forgets (log beta = -4e-18) still learns.
Tensor LogSigmoid(const Tensor& x);

struct GateShape {
  int32_t n_layer = 0;
  int32_t n_embd = 0;
  int32_t n_kv_head = 0;
  int32_t n_hidden = 512;
  int32_t n_hidden_layer = 1;  // TRIM-KV 1, DBTrimKV 2
  bool tied_output = false;    // one output for all layers (DBTrimKV)
  GateActivation activation = GateActivation::kSilu;
};

// The gates of kvbound/gates.h as trainable parameters, f32. log beta is made by LogSigmoid and
// never stored as beta. Not thread-safe.
class GateModule {
 public:
  struct Parameter {
    std::string name;  // "layers.3.linear1.weight", "layers.3.linear2.weight", "layers.3.bias",
                       // ...; a tied output: "linear2.weight", "bias"
    Tensor value;      // leaf that requires grad
  };

  // Matrices N(0, 0.02), hidden biases 0, output biases `output_bias`. The same seed gives the same
  // bits on every machine.
  GateModule(const GateShape& shape, double output_bias, uint64_t seed);

  // The gates' values as the start of training. InvalidArgument if hidden sizes differ.
  static Result<GateModule> FromGates(const Gates& gates);

  // Values by now, f32 matrices. A tied output is repeated in every layer.
  std::vector<GateLayer> ToLayers() const;

  // `normed` [T, n_embd], any float type; gradients flow into the parameters and into `normed`.
  // Returns [n_kv_head, T] of the parameters' type.
  Tensor LogBeta(int32_t layer, const Tensor& normed) const;

  // Tied tensors are listed once. The order is fixed by the shape.
  std::vector<Parameter>& parameters() { return parameters_; }
  const std::vector<Parameter>& parameters() const { return parameters_; }
  const GateShape& shape() const { return shape_; }

  // Parameters as f64, to check gradients.
  void ToDouble();

 private:
  explicit GateModule(const GateShape& shape);
  size_t HiddenIndex(int32_t layer, int32_t linear) const;  // of the weight; the bias follows
  size_t OutputIndex(int32_t layer) const;

  GateShape shape_;
  std::vector<Parameter> parameters_;
};

}  // namespace kvbound::train

#endif  // KVBOUND_TRAIN_GATE_MODULE_H_
