#ifndef KVBOUND_TESTING_TINY_GATES_H_
#define KVBOUND_TESTING_TINY_GATES_H_

#include <cstdint>
#include <memory>

#include "kvbound/gates.h"
#include "kvbound/model.h"

namespace kvbound::testing {

struct TinyGatesOptions {
  GateActivation activation = GateActivation::kSilu;
  GateType type = GateType::kF32;
  int32_t n_hidden = 32;
  int32_t n_hidden_linear = 1;
  bool tied_output = false;
  float output_bias = 1.0f;  // mean of the outputs: log beta about -0.3
  uint64_t seed = 1;
};

// Random but fixed gates of `model`. Throws std::runtime_error if they cannot be made.
std::shared_ptr<const Gates> MakeTinyGates(const Model& model,
                                           const TinyGatesOptions& options = {});

}  // namespace kvbound::testing

#endif  // KVBOUND_TESTING_TINY_GATES_H_
