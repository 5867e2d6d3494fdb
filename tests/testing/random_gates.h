#ifndef KVBOUND_TESTING_RANDOM_GATES_H_
#define KVBOUND_TESTING_RANDOM_GATES_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "kvbound/gates.h"
#include "kvbound/model.h"

namespace kvbound::testing {

struct RandomGatesOptions {
  BaseModel base = {.architecture = "llama",
                    .name = "tiny",
                    .n_layer = 2,
                    .n_embd = 32,
                    .n_kv_head = 2,
                    .n_vocab = 286,
                    .norm_hash = 0};
  std::vector<int64_t> hidden = {64};  // sizes of the hidden linears
  bool tied_output = false;
  GateType type = GateType::kF32;
  GateActivation activation = GateActivation::kSilu;
  float weight_range = 0.5f;  // weights and hidden biases are uniform in +- this
  float output_bias = 1.0f;
  uint64_t seed = 1;
};

// Gates with random but fixed weights, the same on every machine. A training record is there.
Gates::Parts RandomGateParts(const RandomGatesOptions& options = {});

// The same for `model`; options.base is not used. Throws std::runtime_error if they cannot be made.
std::shared_ptr<const Gates> MakeRandomGates(const Model& model, RandomGatesOptions options = {});

}  // namespace kvbound::testing

#endif  // KVBOUND_TESTING_RANDOM_GATES_H_
