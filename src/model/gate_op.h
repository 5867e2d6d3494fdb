#ifndef KVBOUND_MODEL_GATE_OP_H_
#define KVBOUND_MODEL_GATE_OP_H_

#include <cstdint>

#include "ggml.h"
#include "kvbound/gates.h"

namespace kvbound {

// The end of a gate as one operator on the CPU: its last hidden linear, the activation and the
// output. One pass over the weights and no barrier inside, for which the hidden units are cut into
// parts of 32: a thread computes whole parts, and what each adds to the output is added up by the
// reader. So the sums do not depend on the number of threads.
inline constexpr int64_t kGatePart = 32;  // a block of every quantised type

// From this many tokens on, tiled products of whole matrices are faster.
inline constexpr int64_t kGateOpTokens = 16;

// The parts of the output of a gate with `n_hidden` units.
constexpr int64_t GateParts(int64_t n_hidden) { return (n_hidden + kGatePart - 1) / kGatePart; }

struct GateOpWeights {
  ggml_tensor* hidden = nullptr;       // ne = {n_in, n_hidden}
  ggml_tensor* hidden_bias = nullptr;  // ne = {n_hidden}
  ggml_tensor* output = nullptr;       // ne = {n_hidden, n_kv_head}
};

// Whether rows of these weights fit the operator's buffers.
bool GateOpFits(const GateOpWeights& weights);

// x: f32 {n_in, N}. Returns f32 {n_kv_head, GateParts(n_hidden), N}, whose sum over the parts is
// the product with the output matrix.
ggml_tensor* GateOp(ggml_context* context, const GateOpWeights& weights, GateActivation activation,
                    ggml_tensor* x);

}  // namespace kvbound

#endif  // KVBOUND_MODEL_GATE_OP_H_
