#ifndef KVBOUND_TRAIN_LOCAL_H_
#define KVBOUND_TRAIN_LOCAL_H_

#include <cstdint>

#include "train/base_transformer.h"
#include "train/gate_module.h"
#include "train/losses.h"
#include "train/sequence.h"

namespace kvbound::train {

struct LocalOptions {
  int64_t memory = 128;          // M of the capacity loss
  double capacity_weight = 1.0;  // lambda
  CapacityForm form = CapacityForm::kCode;
  CapacityScope scope = CapacityScope::kLocal;
  int64_t exempt = 0;  // first positions of each document that neither decay nor count
  // Query rows used: those where index % stride == offset, and all with row_weight > 1.
  int64_t stride = 4;
  int64_t offset = 0;
  int64_t query_block = 256;  // rows whose attention lives at once
  double grad_scale = 1.0;    // multiplies gradients, not the losses reported
};

struct LocalLoss {
  double total = 0;      // attention + capacity_weight * capacity
  double attention = 0;  // mean of -log of the attention that decay leaves, nats
  double capacity = 0;
  double kept = 0;    // mean of S over used rows from position M on (over all if there are none)
  int64_t n_row = 0;  // rows used: 0 where no token has another one before it
  bool finite() const;
};

// The layer-local objective. With w[t, i] = attention of query t on token i times |v_i|,
// renormalised over i <= t of t's document,
//
//   attention = - mean over layers, heads and rows t of log sum_i w[t, i] beta_i^(t - i)
//
// rows weighted by row_weight, plus the capacity loss (see CapacityLoss) on the same rows. The
// model runs forward only: the gradient with respect to log beta has a closed form, and flows
// through the gates alone. Adds to the `grad` of `gates`' parameters. A loss that is not finite, or
// no row, leaves the gradients untouched. Throws what torch throws.
LocalLoss LocalObjective(const BaseTransformer& base, GateModule& gates, const Sequence& sequence,
                         const LocalOptions& options);

}  // namespace kvbound::train

#endif  // KVBOUND_TRAIN_LOCAL_H_
