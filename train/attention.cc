#include "train/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <utility>

namespace kvbound::train {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

// Smaller blocks skip more of the masked half, larger ones make better products.
constexpr int64_t kBlockRows = 128;

// The query heads of a KV head are rows beside each other: [group * rows, head_dim].
class GroupedAttention {
 public:
  GroupedAttention(const Tensor& q, const Tensor& k, const AttentionLayout::Block& block)
      : block_(block),
        n_group_(q.size(0) / k.size(0)),
        n_row_(block.end - block.begin),
        n_key_(block.end - block.key_begin),
        head_dim_(q.size(2)),
        scale_(1.0 / std::sqrt(static_cast<double>(head_dim_))) {}

  Tensor Queries(const Tensor& q, int64_t kv) const {
    return q.narrow(0, kv * n_group_, n_group_)
        .narrow(1, block_.begin, n_row_)
        .reshape({n_group_ * n_row_, head_dim_});
  }

  Tensor Keys(const Tensor& k, int64_t kv) const {
    return k.select(0, kv).narrow(0, block_.key_begin, n_key_);
  }

  // Columns of [T, n_head * head_dim] as [rows, group, head_dim].
  Tensor OutputRows(const Tensor& out, int64_t kv) const {
    return out.narrow(0, block_.begin, n_row_)
        .view({n_row_, -1, head_dim_})
        .narrow(1, kv * n_group_, n_group_);
  }

  // [group * rows, keys]
  Tensor Weights(const Tensor& queries, const Tensor& keys, const Tensor& log_beta,
                 int64_t kv) const {
    const Tensor logits = torch::mm(queries * scale_, keys.t()).view({n_group_, n_row_, n_key_});
    if (log_beta.numel() > 0) {
      const Tensor bias = block_.age * log_beta.select(0, kv).narrow(0, block_.key_begin, n_key_);
      Masked(bias).add_(block_.mask);
      logits.add_(bias);
    } else {
      Masked(logits).add_(block_.mask);
    }
    return torch::softmax(logits, -1).view({n_group_ * n_row_, n_key_});
  }

  Tensor Masked(const Tensor& columns) const {
    return columns.narrow(-1, block_.mask_begin, n_key_ - block_.mask_begin);
  }

  int64_t n_group() const { return n_group_; }
  int64_t n_row() const { return n_row_; }
  int64_t n_key() const { return n_key_; }
  double scale() const { return scale_; }

 private:
  const AttentionLayout::Block& block_;
  int64_t n_group_;
  int64_t n_row_;
  int64_t n_key_;
  int64_t head_dim_;
  double scale_;
};

class AttentionFunction : public torch::autograd::Function<AttentionFunction> {
 public:
  using LayoutPtr = c10::intrusive_ptr<AttentionLayout>;

  static Tensor forward(AutogradContext* context, const Tensor& q, const Tensor& k, const Tensor& v,
                        const Tensor& log_beta, const LayoutPtr& layout) {
    const int64_t n_token = q.size(1);
    const Tensor out = torch::empty({n_token, q.size(0) * q.size(2)}, q.options());
    std::vector<Tensor> saved = {q, k, v, log_beta};
    for (const AttentionLayout::Block& block : layout->blocks()) {
      const GroupedAttention at(q, k, block);
      for (int64_t kv = 0; kv < k.size(0); ++kv) {
        const Tensor weights = at.Weights(at.Queries(q, kv), at.Keys(k, kv), log_beta, kv);
        const Tensor rows = torch::mm(weights, at.Keys(v, kv));
        at.OutputRows(out, kv).copy_(rows.view({at.n_group(), at.n_row(), -1}).transpose(0, 1));
        saved.push_back(weights);
      }
    }
    context->save_for_backward(saved);
    context->saved_data["layout"] = torch::IValue::make_capsule(layout);
    return out;
  }

  static tensor_list backward(AutogradContext* context, tensor_list grads) {
    const auto saved = context->get_saved_variables();
    const auto layout = c10::static_intrusive_pointer_cast<AttentionLayout>(
        context->saved_data["layout"].toCapsule());
    Gradients to(saved, grads[0].contiguous());
    size_t next = 4;
    for (const AttentionLayout::Block& block : layout->blocks()) {
      for (int64_t kv = 0; kv < saved[1].size(0); ++kv) to.Add(block, kv, saved[next++]);
    }
    return {to.q, to.k, to.v, to.log_beta, Tensor()};
  }

 private:
  struct Gradients {
    Gradients(const std::vector<Tensor>& saved, Tensor grad)
        : inputs(saved),
          of_out(std::move(grad)),
          q(torch::empty_like(saved[0])),
          k(torch::zeros_like(saved[1])),
          v(torch::zeros_like(saved[2])),
          log_beta(torch::zeros_like(saved[3])) {}

    void Add(const AttentionLayout::Block& block, int64_t kv, const Tensor& weights) {
      const GroupedAttention at(inputs[0], inputs[1], block);
      const Tensor queries = at.Queries(inputs[0], kv).mul_(at.scale());
      const Tensor keys = at.Keys(inputs[1], kv);
      const Tensor of_rows =
          at.OutputRows(of_out, kv).transpose(0, 1).reshape({at.n_group() * at.n_row(), -1});
      at.Keys(v, kv).addmm_(weights.t(), of_rows);
      const Tensor of_weights = torch::mm(of_rows, at.Keys(inputs[2], kv).t());
      const Tensor of_logits =
          at::_softmax_backward_data(of_weights, weights, -1, weights.scalar_type());
      q.narrow(0, kv * at.n_group(), at.n_group())
          .narrow(1, block.begin, at.n_row())
          .copy_(torch::mm(of_logits, keys).mul_(at.scale()).view({at.n_group(), at.n_row(), -1}));
      at.Keys(k, kv).addmm_(of_logits.t(), queries);
      if (log_beta.numel() == 0) return;
      const Tensor of_bias = of_logits.view({at.n_group(), at.n_row(), at.n_key()}).sum(0);
      log_beta.select(0, kv)
          .narrow(0, block.key_begin, at.n_key())
          .add_(of_bias.mul_(block.age).sum(0));
    }

    const std::vector<Tensor>& inputs;  // q, k, v, log_beta
    Tensor of_out;
    Tensor q;
    Tensor k;
    Tensor v;
    Tensor log_beta;
  };
};

// The first token of each token's document.
std::vector<int64_t> DocumentBegins(const Tensor& document) {
  const Tensor ids = document.contiguous();
  const auto* id = ids.data_ptr<int64_t>();
  std::vector<int64_t> begins(static_cast<size_t>(ids.numel()));
  for (size_t i = 1; i < begins.size(); ++i) {
    begins[i] = id[i] == id[i - 1] ? begins[i - 1] : static_cast<int64_t>(i);
  }
  return begins;
}

}  // namespace

AttentionLayout::AttentionLayout(const Tensor& positions, const Tensor& document, int64_t exempt,
                                 torch::Dtype dtype) {
  torch::NoGradGuard no_grad;
  const int64_t n_token = positions.size(0);
  const std::vector<int64_t> begins = DocumentBegins(document);
  const Tensor place = torch::arange(n_token);
  for (int64_t begin = 0; begin < n_token; begin += kBlockRows) {
    Block block;
    block.begin = begin;
    block.end = std::min(n_token, begin + kBlockRows);
    block.key_begin = begins[static_cast<size_t>(begin)];
    const bool one_document = begins[static_cast<size_t>(block.end - 1)] == block.key_begin;
    block.mask_begin = one_document ? begin - block.key_begin : 0;
    const auto rows = [&](const Tensor& x) { return x.slice(0, begin, block.end).unsqueeze(1); };
    const auto columns = [&](const Tensor& x) { return x.slice(0, block.key_begin, block.end); };
    const Tensor hidden =
        (rows(document) != columns(document)).logical_or(rows(place) < columns(place));
    const Tensor fixed = hidden.logical_or(columns(positions) < exempt);
    block.age = (rows(positions) - columns(positions)).masked_fill(fixed, 0).to(dtype);
    block.mask = torch::zeros(hidden.sizes(), dtype)
                     .masked_fill(hidden, -std::numeric_limits<double>::infinity())
                     .slice(1, block.mask_begin)
                     .contiguous();
    blocks_.push_back(std::move(block));
  }
}

Tensor Attention(const BaseTransformer::Heads& heads, const Tensor& log_beta,
                 const c10::intrusive_ptr<AttentionLayout>& layout) {
  // Autograd takes no undefined inputs: an empty one stands for none.
  const Tensor decay = log_beta.defined() ? log_beta : heads.q.new_empty({0});
  return AttentionFunction::apply(heads.q, heads.k, heads.v, decay, layout);
}

}  // namespace kvbound::train
