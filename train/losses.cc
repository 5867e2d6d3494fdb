#include "train/losses.h"

#include <algorithm>
#include <utility>

#include "train/sequence.h"

namespace kvbound::train {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

constexpr int64_t kSumRows = 128;  // of a retention block
// Rows of logits worked on at a time: their few copies stay in the cache.
constexpr int64_t kCachedLogits = int64_t{1} << 18;

// Rows begin..end - 1 of a document, and its tokens that count in them.
struct SumBlock {
  int64_t begin;
  int64_t end;
  int64_t key_begin;
  int64_t n_key;
};

std::vector<SumBlock> SumBlocks(const Tensor& document, int64_t exempt) {
  const Tensor ids = document.contiguous();
  const auto* id = ids.data_ptr<int64_t>();
  const int64_t n = ids.numel();
  std::vector<SumBlock> blocks;
  for (int64_t begin = 0; begin < n;) {
    int64_t end = begin + 1;
    while (end < n && id[end] == id[begin]) ++end;
    const int64_t first = std::min(end, begin + exempt);
    for (int64_t row = first; row < end; row += kSumRows) {
      const int64_t row_end = std::min(end, row + kSumRows);
      blocks.push_back({row, row_end, first, row_end - first});
    }
    begin = end;
  }
  return blocks;
}

class RetentionSumFunction : public torch::autograd::Function<RetentionSumFunction> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& log_beta, const Tensor& document,
                        int64_t exempt) {
    const Tensor x = log_beta.contiguous();
    const Tensor sums = torch::zeros_like(x);
    for (const SumBlock& block : SumBlocks(document, exempt)) {
      Tensor ages;
      const Tensor weights = Weights(x, block, &ages);
      sums.slice(1, block.begin, block.end).copy_(weights.sum(2));
    }
    context->save_for_backward({x, document});
    context->saved_data["exempt"] = exempt;
    return sums;
  }

  // d S_t / d log_beta_i = (t - i) beta_i^(t - i)
  static tensor_list backward(AutogradContext* context, tensor_list grads) {
    const auto saved = context->get_saved_variables();
    const Tensor& x = saved[0];
    const Tensor out = torch::zeros_like(x);
    for (const SumBlock& block : SumBlocks(saved[1], context->saved_data["exempt"].toInt())) {
      Tensor ages;
      const Tensor weights = Weights(x, block, &ages);
      weights.mul_(ages);
      const Tensor grad = grads[0].slice(1, block.begin, block.end).unsqueeze(1);
      out.narrow(1, block.key_begin, block.n_key).add_(torch::bmm(grad, weights).squeeze(1));
    }
    return {out, Tensor(), Tensor()};
  }

 private:
  // beta_i^(t - i), 0 where i > t: [H, rows, keys]. `ages` [rows, keys], 0 where i > t.
  static Tensor Weights(const Tensor& x, const SumBlock& block, Tensor* ages) {
    const int64_t n_row = block.end - block.begin;
    const int64_t before = block.begin - block.key_begin;
    const auto options = x.options();
    *ages = (torch::arange(block.begin, block.end, options).unsqueeze(1) -
             torch::arange(block.key_begin, block.key_begin + block.n_key, options))
                .clamp_min_(0);
    Tensor weights = ages->mul(x.narrow(1, block.key_begin, block.n_key).unsqueeze(1)).exp_();
    weights.narrow(2, before, n_row).tril_();
    return weights;
  }
};

// Excess over the memory at each time, unscaled by counts; `scale` is 1 or L * H.
Tensor Excess(const Tensor& sums, const Tensor& positions, int64_t memory, CapacityForm form,
              int64_t scale) {
  const Tensor over = torch::relu(sums.to(torch::kDouble) - static_cast<double>(memory * scale));
  const Tensor divisor = form == CapacityForm::kCode ? (positions - memory).clamp_min(1)
                                                     : (positions + 1).clamp_min(1);
  return over / (divisor * scale).to(torch::kDouble);
}

int64_t CountPositive(const Tensor& values) {
  torch::NoGradGuard no_grad;
  return (values > 0).sum().item<int64_t>();
}

// What LogitLosses adds up for some rows, all of which count.
struct RowBlock {
  Tensor student;  // [rows, V]
  Tensor teacher;  // [rows, V] or undefined
  Tensor targets;  // [rows]
  Tensor use_kl;   // [rows]
};

void AddKl(const RowBlock& block, const Tensor& log_student, const Tensor& grad, double kl_scale,
           LogitLoss* loss) {
  const Tensor on = block.use_kl;
  const Tensor log_teacher = torch::log_softmax(block.teacher, -1);
  const Tensor teacher = log_teacher.exp();
  // Where the teacher has probability 0 the term is 0, whatever the logs are.
  const Tensor terms = teacher * (log_teacher - log_student);
  terms.masked_fill_(teacher == 0, 0);
  const Tensor per_row = terms.sum(-1).to(torch::kDouble).masked_select(on);
  loss->kl_sum += per_row.sum().item<double>();
  loss->n_kl += per_row.numel();
  grad.addcmul_(teacher, on.to(teacher.scalar_type()).unsqueeze(1), -kl_scale);
}

void AddCe(const RowBlock& block, const Tensor& log_student, const Tensor& grad, double ce_scale,
           LogitLoss* loss) {
  const Tensor has = block.targets != kIgnoredLabel;
  const Tensor at = block.targets.clamp_min(0).unsqueeze(1);
  const Tensor per_row = log_student.gather(1, at).squeeze(1).to(torch::kDouble).masked_select(has);
  loss->ce_sum -= per_row.sum().item<double>();
  loss->n_ce += per_row.numel();
  grad.scatter_add_(1, at, has.to(grad.scalar_type()).mul_(-ce_scale).unsqueeze(1));
}

void AddRows(const RowBlock& block, double kl_scale, double ce_scale, Tensor grad,
             LogitLoss* loss) {
  const Tensor log_student = torch::log_softmax(block.student, -1);
  const bool has_teacher = block.teacher.defined();
  Tensor scale = (block.targets != kIgnoredLabel).to(torch::kDouble) * ce_scale;
  if (has_teacher) scale = scale + block.use_kl.to(torch::kDouble) * kl_scale;
  at::exp_out(grad, log_student);
  grad.mul_(scale.to(grad.scalar_type()).unsqueeze(1));
  if (has_teacher) AddKl(block, log_student, grad, kl_scale, loss);
  AddCe(block, log_student, grad, ce_scale, loss);
}

}  // namespace

Tensor RetentionSum(const Tensor& log_beta, const Tensor& /*positions*/, const Tensor& document,
                    int64_t exempt) {
  return RetentionSumFunction::apply(log_beta, document, exempt);
}

Tensor CapacityLoss(const std::vector<Tensor>& sums, const Tensor& positions, int64_t memory,
                    CapacityForm form, CapacityScope scope) {
  const auto n_layer = static_cast<int64_t>(sums.size());
  const int64_t n_head = sums.front().size(0);
  std::vector<Tensor> parts;
  if (scope == CapacityScope::kLocal) {
    for (const Tensor& s : sums) parts.push_back(Excess(s, positions, memory, form, 1));
  } else {
    Tensor all = sums.front().sum(0);
    for (size_t l = 1; l < sums.size(); ++l) all = all + sums[l].sum(0);
    parts.push_back(Excess(all, positions, memory, form, n_layer * n_head));
  }
  Tensor total = torch::zeros({}, torch::kDouble);
  int64_t count = 0;
  for (const Tensor& part : parts) {
    total = total + part.sum();
    count += form == CapacityForm::kCode ? CountPositive(part) : part.numel();
  }
  return total / static_cast<double>(std::max<int64_t>(count, 1));
}

LogitLoss LogitLosses(const Tensor& student, const Tensor& teacher, const Tensor& targets,
                      const Tensor& use_kl, double kl_scale, double ce_scale) {
  torch::NoGradGuard no_grad;
  LogitLoss loss;
  loss.grad = torch::zeros_like(student);
  Tensor used = targets != kIgnoredLabel;
  if (teacher.defined()) used = used.logical_or(use_kl);
  const Tensor rows = used.nonzero().squeeze(1);
  const int64_t n = rows.numel();
  const bool all = n == student.size(0);
  const int64_t step = std::max<int64_t>(2, kCachedLogits / std::max<int64_t>(student.size(1), 1));
  for (int64_t begin = 0; begin < n; begin += step) {
    const int64_t end = std::min(n, begin + step);
    const Tensor some = rows.slice(0, begin, end);
    const auto pick = [&](const Tensor& x) {
      if (!x.defined()) return x;
      return all ? x.slice(0, begin, end) : x.index_select(0, some);
    };
    Tensor grad = all ? loss.grad.slice(0, begin, end)
                      : torch::empty({end - begin, student.size(1)}, student.options());
    AddRows({pick(student), pick(teacher), pick(targets), pick(use_kl)}, kl_scale, ce_scale, grad,
            &loss);
    if (!all) loss.grad.index_copy_(0, some, grad);
  }
  return loss;
}

}  // namespace kvbound::train
