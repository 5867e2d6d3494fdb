#ifndef KVBOUND_TRAIN_FULL_OBJECTIVE_H_
#define KVBOUND_TRAIN_FULL_OBJECTIVE_H_

#include <cstdint>
#include <string>

#include "train/base_transformer.h"
#include "train/gate_module.h"
#include "train/losses.h"
#include "train/sequence.h"

namespace kvbound::train {

struct FullOptions {
  int64_t memory = 128;    // M of the capacity loss
  double kl_weight = 0.5;  // the official code's "fwkl_ntp": (KL + next token) / 2
  double ce_weight = 0.5;
  double capacity_weight = 1.0;  // lambda
  CapacityForm form = CapacityForm::kCode;
  CapacityScope scope = CapacityScope::kLocal;
  int64_t exempt = 0;        // first positions of each document that neither decay nor count
  int64_t logit_rows = 128;  // rows whose logits live at once
  bool checkpoint = true;    // keep only each layer's input and compute the layer again on the way
                             // back; false keeps every activation
  double grad_scale = 1.0;   // multiplies gradients, not the losses reported
  bool backward = true;      // false: losses only, no gradients
};

struct FullLoss {
  double total = 0;  // kl_weight * kl + ce_weight * ce + capacity_weight * capacity
  double kl = 0;     // mean of KL(teacher || student) over labelled tokens' rows, nats
  double ce = 0;     // mean of -log p over targets that have a token before them in the document
  double capacity = 0;
  int64_t n_target = 0;  // terms of ce
  int64_t n_row = 0;     // terms of kl
  bool finite() const;   // total is neither NaN nor infinite

  // Nothing was labelled: kl and ce are exactly 0 and only the capacity term has gradients.
  bool no_target() const { return n_target == 0 && n_row == 0; }
};

// TRIM-KV's objective (arXiv 2512.03324): the student is the frozen model whose attention logits
// get (t - i) * log_beta[kv head, i], the teacher the same model without. The teacher's logits are
// computed beside the student's for `logit_rows` rows at a time, and the gradient of the logits has
// a closed form, so nothing of size T x n_vocab exists. Adds to the `grad` of `gates`' parameters
// (undefined ones are made); layer by layer, so a caller needs no backward call. Throws what torch
// throws. A loss that is not finite leaves the gradients untouched.
FullLoss FullObjective(const BaseTransformer& base, GateModule& gates, const Sequence& sequence,
                       const FullOptions& options);

// The student's logits [T, n_vocab], to compare with other implementations.
Tensor StudentLogits(const BaseTransformer& base, const GateModule& gates, const Sequence& sequence,
                     int64_t exempt = 0);

}  // namespace kvbound::train

#endif  // KVBOUND_TRAIN_FULL_OBJECTIVE_H_
