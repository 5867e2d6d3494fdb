#ifndef KVBOUND_TRAIN_REPORTS_H_
#define KVBOUND_TRAIN_REPORTS_H_

#include <cstdint>
#include <functional>
#include <string>

namespace kvbound::train {

// Means over the sequences of one step.
struct StepReport {
  int64_t step = 0;  // steps done, this one included
  int64_t n_step = 0;
  int64_t tokens = 0;  // read so far, all processes
  double loss = 0;
  double quality = 0;  // attention (local); KL and next token, weighted (full)
  double capacity = 0;
  double kept = 0;  // local only: tokens that heads still hold, by the soft decay
  double learning_rate = 0;
  double grad_norm = 0;
};

struct EvaluationReport {
  int64_t step = 0;
  double kl = 0;  // to the uncut model under real eviction, nats per token
  bool best = false;
};

struct TrainObserver {
  std::function<bool(const StepReport&)> on_step;  // false: write a checkpoint and stop
  std::function<void(const EvaluationReport&)> on_evaluation;
  std::function<void(const std::string&)> say;  // a line for the log
};

}  // namespace kvbound::train

#endif  // KVBOUND_TRAIN_REPORTS_H_
