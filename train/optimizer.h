#ifndef KVBOUND_TRAIN_OPTIMIZER_H_
#define KVBOUND_TRAIN_OPTIMIZER_H_

#include <cstdint>
#include <vector>

#include "train/gate_module.h"

namespace kvbound::train {

struct AdamOptions {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0;  // of matrices only
};

// AdamW (arXiv 1711.05101) over the parameters of a gate module, which must outlive it. Parameters
// and moments are f32, whatever the model's type: updates below half a bf16 step must not vanish.
class AdamW {
 public:
  AdamW(std::vector<GateModule::Parameter>* parameters, const AdamOptions& options);

  // One update by the parameters' `grad`, which are zeroed. Parameters without one are left alone.
  void Step(double learning_rate);

  // Updates so far, and the moments in the order of the parameters: what a checkpoint holds.
  int64_t n_step() const { return n_step_; }
  const std::vector<Tensor>& first() const { return first_; }
  const std::vector<Tensor>& second() const { return second_; }
  void Restore(int64_t n_step, std::vector<Tensor> first, std::vector<Tensor> second);

 private:
  std::vector<GateModule::Parameter>* parameters_;
  AdamOptions options_;
  int64_t n_step_ = 0;
  std::vector<Tensor> first_, second_;
};

// Multiplies gradients so that their common norm is at most `max_norm`; 0: never. Returns the norm
// before. One that is not finite leaves the gradients as they are.
double ClipGradients(const std::vector<GateModule::Parameter>& parameters, double max_norm);

// Linear from 0 over `n_warmup` steps, then a cosine from `peak` to `floor` at step `n_step`.
// `step` counts from 0.
struct Schedule {
  int64_t n_step = 1;
  int64_t n_warmup = 0;
  double peak = 1e-3;
  double floor = 0;

  double At(int64_t step) const;
};

}  // namespace kvbound::train

#endif  // KVBOUND_TRAIN_OPTIMIZER_H_
