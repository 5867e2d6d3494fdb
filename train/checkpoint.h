#ifndef KVBOUND_TRAIN_CHECKPOINT_H_
#define KVBOUND_TRAIN_CHECKPOINT_H_

#include <torch/torch.h>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "kvbound/status.h"

namespace kvbound::train {

using torch::Tensor;

// Training as it stands between two steps. In the file: magic, the length of a JSON header, the
// header, the tensors' values (f32, little-endian) one after the other, FNV-1a 64 over all before.
struct Checkpoint {
  nlohmann::ordered_json config;  // what must be the same to go on, by option name
  nlohmann::ordered_json state;   // counters and losses
  std::vector<std::pair<std::string, Tensor>> tensors;

  // Those whose names start with `prefix`, in order.
  std::vector<Tensor> Tensors(const std::string& prefix) const;
};

// Writes beside `path` and renames, so that `path` holds either the whole new checkpoint or what it
// held before. IoError names the file and the reason (no space left, ...).
Status SaveCheckpoint(const Checkpoint& checkpoint, const std::string& path);

// NotFound, IoError; Corrupt: no checkpoint, or cut short, or changed.
Result<Checkpoint> LoadCheckpoint(const std::string& path);

// Ok if `saved` and `wanted` have the same fields; else InvalidArgument naming `path` and the first
// one that differs, with both values.
Status CheckConfig(const std::string& path, const nlohmann::ordered_json& saved,
                   const nlohmann::ordered_json& wanted);

// Whether a file can be made where `path` is: tried with a file beside it, which is removed.
Status CheckWritable(const std::string& path);

}  // namespace kvbound::train

#endif  // KVBOUND_TRAIN_CHECKPOINT_H_
