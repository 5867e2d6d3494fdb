#ifndef KVBOUND_TRAIN_LAYER_OPS_H_
#define KVBOUND_TRAIN_LAYER_OPS_H_

#include <torch/torch.h>

#include <cstdint>

namespace kvbound::train {

using torch::Tensor;

// Pieces of a decoder layer with their own backward passes: fewer passes over memory and fewer
// tensors kept than autograd's. f32 or f64; weights get no gradients.

// x / sqrt(mean(x^2) + eps) * weight over the last dimension. `x` [..., n], `weight` [n].
Tensor RmsNorm(const Tensor& x, const Tensor& weight, double eps);

// silu(gate) * up. `gate_up` [T, 2 n]: gate, then up. Returns [T, n].
Tensor SwiGlu(const Tensor& gate_up);

// Sine and cosine of each position's angles.
struct RopeTable {
  Tensor cos;         // [T, n_rot / 2]
  Tensor sin;         // [T, n_rot / 2]
  bool neox = false;  // pairs (j, j + n_rot / 2); else (2 j, 2 j + 1)
};

// Rotates the first n_rot elements of each head and puts heads first. `rows` [T, n_head * head_dim]
// may be columns of a wider matrix. Returns [n_head, T, head_dim].
Tensor RotateHeads(const Tensor& rows, int64_t head_dim, const RopeTable& table);

}  // namespace kvbound::train

#endif  // KVBOUND_TRAIN_LAYER_OPS_H_
