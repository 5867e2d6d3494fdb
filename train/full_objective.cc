#include "train/full_objective.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "train/attention.h"

namespace kvbound::train {
namespace {

using LayoutPtr = c10::intrusive_ptr<AttentionLayout>;

// One layer of the student: what goes in is a leaf, so that the way back can go layer by layer.
struct StudentLayer {
  Tensor input;   // [T, n_embd]
  Tensor output;  // with its graph, or undefined when the layer is computed again
  Tensor sums;    // [n_kv_head, T], likewise
};

class Pass {
 public:
  Pass(const BaseTransformer& base, const GateModule& gates, const Sequence& sequence,
       int64_t exempt)
      : base_(base),
        gates_(gates),
        sequence_(sequence),
        exempt_(exempt),
        layout_(c10::make_intrusive<AttentionLayout>(sequence.positions, sequence.document, exempt,
                                                     base.dtype())) {}

  // The teacher's rows before the output matrix. [T, n_embd]
  Tensor Teacher() const {
    torch::NoGradGuard no_grad;
    Tensor x = base_.Embed(sequence_.tokens);
    for (int32_t l = 0; l < base_.hparams().n_layer; ++l) {
      const auto heads = base_.Project(l, base_.AttentionInput(l, x), sequence_.positions);
      x = base_.Finish(l, x, Attention(heads, Tensor(), layout_));
    }
    return base_.FinalNorm(x);
  }

  StudentLayer Run(int32_t layer, const Tensor& x) const {
    StudentLayer result;
    result.input = x;
    const Tensor normed = base_.AttentionInput(layer, x);
    const Tensor log_beta = gates_.LogBeta(layer, normed);
    result.sums = RetentionSum(log_beta, sequence_.positions, sequence_.document, exempt_);
    const auto heads = base_.Project(layer, normed, sequence_.positions);
    result.output = base_.Finish(layer, x, Attention(heads, log_beta.to(base_.dtype()), layout_));
    return result;
  }

 private:
  const BaseTransformer& base_;
  const GateModule& gates_;
  const Sequence& sequence_;
  int64_t exempt_;
  LayoutPtr layout_;
};

// A copy of `x` that a graph starts from. The first layer's input needs no gradient.
Tensor LeafOf(const Tensor& x, bool needs_grad) { return x.detach().requires_grad_(needs_grad); }

// The targets of each row (the next token of the same document), and the rows of KL.
struct Labels {
  Tensor targets;  // i64 [T]
  Tensor use_kl;   // bool [T]
  int64_t n_target = 0;
  int64_t n_kl = 0;
};

Labels LabelsOf(const Sequence& sequence) {
  const int64_t n = sequence.tokens.size(0);
  Labels labels;
  labels.targets = torch::full({n}, kIgnoredLabel, torch::kLong);
  const Tensor& document = sequence.document;
  const Tensor same = document.slice(0, 1) == document.slice(0, 0, n - 1);
  labels.targets.slice(0, 0, n - 1)
      .copy_(torch::where(same, sequence.labels.slice(0, 1),
                          torch::full({}, kIgnoredLabel, torch::kLong)));
  labels.use_kl = sequence.labels != kIgnoredLabel;
  labels.n_target = (labels.targets != kIgnoredLabel).sum().item<int64_t>();
  labels.n_kl = labels.use_kl.sum().item<int64_t>();
  return labels;
}

// KL and next-token loss over the labelled rows, `logit_rows` of them at a time. Returns the
// gradient of the weighted sum with respect to the student's `normed`, [T, n_embd].
Tensor AddLogitLosses(const BaseTransformer& base, const Tensor& normed, const Tensor& teacher,
                      const Labels& labels, const FullOptions& options, FullLoss* loss) {
  torch::NoGradGuard no_grad;
  loss->n_target = labels.n_target;
  loss->n_row = labels.n_kl;
  Tensor grad = torch::zeros_like(normed);
  const double kl_scale =
      options.kl_weight / static_cast<double>(std::max<int64_t>(1, labels.n_kl));
  const double ce_scale =
      options.ce_weight / static_cast<double>(std::max<int64_t>(1, labels.n_target));
  const Tensor rows =
      labels.use_kl.logical_or(labels.targets != kIgnoredLabel).nonzero().squeeze(1);
  double kl_sum = 0;
  double ce_sum = 0;
  for (int64_t begin = 0; begin < rows.numel(); begin += options.logit_rows) {
    const Tensor some = rows.slice(0, begin, std::min(rows.numel(), begin + options.logit_rows));
    const LogitLoss part = LogitLosses(base.Logits(normed.index_select(0, some)),
                                       base.Logits(teacher.index_select(0, some)),
                                       labels.targets.index_select(0, some),
                                       labels.use_kl.index_select(0, some), kl_scale, ce_scale);
    kl_sum += part.kl_sum;
    ce_sum += part.ce_sum;
    if (options.backward) grad.index_copy_(0, some, torch::mm(part.grad, base.head()));
  }
  if (labels.n_kl > 0) loss->kl = kl_sum / static_cast<double>(labels.n_kl);
  if (labels.n_target > 0) loss->ce = ce_sum / static_cast<double>(labels.n_target);
  return grad;
}

// The capacity loss and its gradient with respect to each layer's sums.
std::vector<Tensor> AddCapacityLoss(const std::vector<StudentLayer>& layers,
                                    const Sequence& sequence, const FullOptions& options,
                                    FullLoss* loss) {
  std::vector<Tensor> sums;
  for (const StudentLayer& layer : layers) sums.push_back(LeafOf(layer.sums, options.backward));
  const Tensor capacity =
      CapacityLoss(sums, sequence.positions, options.memory, options.form, options.scope);
  loss->capacity = capacity.item<double>();
  if (!options.backward) return {};
  capacity.backward();
  std::vector<Tensor> grads;
  for (const Tensor& s : sums) grads.push_back(s.grad().mul_(options.capacity_weight));
  return grads;
}

// From the last layer to the first; each layer's graph is freed behind.
void Backward(const Pass& pass, std::vector<StudentLayer>* layers, Tensor grad,
              const std::vector<Tensor>& grad_sums) {
  for (size_t l = layers->size(); l-- > 0;) {
    StudentLayer& layer = (*layers)[l];
    if (!layer.output.requires_grad()) {
      const Tensor input = LeafOf(layer.input, l > 0);
      layer = pass.Run(static_cast<int32_t>(l), input);
    }
    torch::autograd::backward({layer.output, layer.sums}, {grad, grad_sums[l]});
    if (l > 0) grad = layer.input.grad();
    layer = StudentLayer();
  }
}

}  // namespace

bool FullLoss::finite() const { return std::isfinite(total); }

FullLoss FullObjective(const BaseTransformer& base, GateModule& gates, const Sequence& sequence,
                       const FullOptions& options) {
  const Pass pass(base, gates, sequence, options.exempt);
  const Tensor teacher = pass.Teacher();
  std::vector<StudentLayer> layers;
  Tensor x = base.Embed(sequence.tokens);
  for (int32_t l = 0; l < base.hparams().n_layer; ++l) {
    const bool keep = options.backward && !options.checkpoint;
    torch::AutoGradMode grad_mode(keep);
    layers.push_back(pass.Run(l, keep ? LeafOf(x, l > 0) : x));
    x = layers.back().output.detach();
    if (!keep) layers.back().output = x.new_empty({0});
  }

  FullLoss loss;
  const Tensor last = LeafOf(x, options.backward);
  const Tensor normed = base.FinalNorm(last);
  const Tensor grad_normed =
      AddLogitLosses(base, normed.detach(), teacher, LabelsOf(sequence), options, &loss);
  const std::vector<Tensor> grad_sums = AddCapacityLoss(layers, sequence, options, &loss);
  loss.total = options.kl_weight * loss.kl + options.ce_weight * loss.ce +
               options.capacity_weight * loss.capacity;
  if (!options.backward || !loss.finite()) return loss;

  normed.backward(grad_normed * options.grad_scale);
  std::vector<Tensor> scaled;
  for (const Tensor& grad : grad_sums) scaled.push_back(grad * options.grad_scale);
  Backward(pass, &layers, last.grad(), scaled);
  return loss;
}

Tensor StudentLogits(const BaseTransformer& base, const GateModule& gates, const Sequence& sequence,
                     int64_t exempt) {
  torch::NoGradGuard no_grad;
  const Pass pass(base, gates, sequence, exempt);
  Tensor x = base.Embed(sequence.tokens);
  for (int32_t l = 0; l < base.hparams().n_layer; ++l) x = pass.Run(l, x).output;
  return base.Logits(base.FinalNorm(x));
}

}  // namespace kvbound::train
