#ifndef KVBOUND_TRAIN_CONFIG_H_
#define KVBOUND_TRAIN_CONFIG_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kvbound/gates.h"
#include "train/losses.h"

namespace kvbound::train {

// kLocal: LocalObjective, forward passes of the model only. kFull: FullObjective, the papers'.
enum class Stage { kLocal, kFull };

struct TrainConfig {
  // -- files
  std::string model;
  std::vector<std::string> texts;
  std::string output;
  std::string init;        // gates to start from; empty: fresh ones
  std::string checkpoint;  // empty: OUTPUT.ckpt
  bool resume = false;
  GateType type = GateType::kQ8_0;  // of the output

  // -- gates; the shape of `init` if there is one
  std::optional<int32_t> n_hidden;        // 512
  std::optional<int32_t> n_hidden_layer;  // 1
  std::optional<bool> tied_output;        // false
  std::optional<double> output_bias;      // 6

  // -- objective
  Stage stage = Stage::kLocal;
  int64_t memory = 128;
  double capacity_weight = 1.0;
  CapacityForm form = CapacityForm::kCode;
  CapacityScope scope = CapacityScope::kLocal;
  int64_t sinks = 4;  // exempt from decay and capacity; forced in evaluation

  // -- data
  int64_t tokens = 500000;
  int64_t seq_len = 1024;
  bool pack = true;
  double fact_share = 0.6;
  uint64_t seed = 1;

  // -- optimiser
  std::optional<double> learning_rate;  // 1e-3 local, 4e-4 full
  double floor = 0.05;                  // lowest learning rate, as a share of the highest
  double warmup = 0.05;                 // share of the steps
  double weight_decay = 0;
  double clip = 1.0;
  int64_t accumulate = 1;  // sequences of one step, per process

  // -- evaluation under real eviction, and checkpoints
  std::vector<std::string> eval_files;
  int32_t n_eval_text = 4;
  int32_t eval_len = 1024;
  int32_t eval_budget = 128;
  int64_t eval_every = 100;
  int64_t checkpoint_every = 50;

  double peak_rate() const { return learning_rate.value_or(stage == Stage::kLocal ? 1e-3 : 4e-4); }
  std::string checkpoint_path() const { return checkpoint.empty() ? output + ".ckpt" : checkpoint; }
};

}  // namespace kvbound::train

#endif  // KVBOUND_TRAIN_CONFIG_H_
