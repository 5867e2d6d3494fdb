#ifndef KVBOUND_TRAIN_SEQUENCE_H_
#define KVBOUND_TRAIN_SEQUENCE_H_

#include <torch/torch.h>

#include <string>
#include <vector>

namespace kvbound::train {

using torch::Tensor;

// A label of no target.
inline constexpr int64_t kIgnoredLabel = -100;

// One training sequence: documents packed one after another, each of which sees only itself.
struct Sequence {
  Tensor tokens;                   // i64 [T]
  Tensor positions;                // i64 [T], from 0 in each document; RoPE and ages use them
  Tensor document;                 // i64 [T], 0, 1, ...
  Tensor labels;                   // i64 [T]: the token itself where it is a target, else -100
  Tensor row_weight;               // f32 [T]: of the token's query row in the local objective
  std::vector<std::string> names;  // the documents, for messages
};

}  // namespace kvbound::train

#endif  // KVBOUND_TRAIN_SEQUENCE_H_
