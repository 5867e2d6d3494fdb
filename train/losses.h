#ifndef KVBOUND_TRAIN_LOSSES_H_
#define KVBOUND_TRAIN_LOSSES_H_

#include <torch/torch.h>

#include <cstdint>
#include <vector>

namespace kvbound::train {

using torch::Tensor;

// S[h, t] = sum over i <= t of the token's own document of exp((t - i) log_beta[h, i]), t - i being
// a difference of positions: how many whole tokens the head still holds. [H, T], differentiable in
// `log_beta` [H, T]. O(T) memory beside one block; only the causal half of each document is
// computed. The first `exempt` positions of each document neither decay nor count: they are left
// out of the sums, and rows among them have S = 0. `positions` and `document` are i64 [T];
// documents are contiguous, and positions rise by 1 inside each.
Tensor RetentionSum(const Tensor& log_beta, const Tensor& positions, const Tensor& document,
                    int64_t exempt = 0);

// How much S exceeds the memory M. kCode is the official code: max(0, S - M) / max(1, t - M), t
// from 0, mean over the positive entries. kPaper: max(0, S - M) / t, t from 1, mean over positions,
// heads and layers (the paper's text has the sum over heads and layers).
enum class CapacityForm { kCode, kPaper };

// kLocal compares each layer's and head's S with M; kGlobal (DBTrimKV) their sum over all layers
// and heads with M * L * H, and t with t * L * H.
enum class CapacityScope { kLocal, kGlobal };

// `sums` has [H, T] of each layer. Zero where nothing exceeds M. Differentiable scalar, f64 sums
// inside. Exempt rows, where S is 0, never exceed.
Tensor CapacityLoss(const std::vector<Tensor>& sums, const Tensor& positions, int64_t memory,
                    CapacityForm form, CapacityScope scope);

// Loss and its gradient with respect to logits for some rows.
struct LogitLoss {
  double kl_sum = 0;  // of KL(teacher || student) over rows where `use_kl`, nats
  double ce_sum = 0;  // of -log p(target) over rows with a target
  int64_t n_kl = 0;
  int64_t n_ce = 0;
  Tensor grad;  // [rows, V]: of kl_scale * kl_sum + ce_scale * ce_sum; zero for rows that count
                // in neither
};

// Closed form: kl_scale (p_s - p_t) + ce_scale (p_s - onehot). `student` and `teacher` are logits
// [rows, V] (teacher undefined: no KL); `targets` i64 [rows], kIgnoredLabel where none; `use_kl`
// bool [rows]. A logit of -inf has probability 0 and gradient 0 in the row's softmax.
LogitLoss LogitLosses(const Tensor& student, const Tensor& teacher, const Tensor& targets,
                      const Tensor& use_kl, double kl_scale, double ce_scale);

}  // namespace kvbound::train

#endif  // KVBOUND_TRAIN_LOSSES_H_
