#include "train/local.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

namespace kvbound::train {
namespace {

// Query rows [begin, end) and the keys [first_key, end) that any of them sees.
struct Block {
  int64_t begin = 0, end = 0, first_key = 0;
  int64_t first_masked = 0;  // keys before it are seen by every row
  Tensor mask;               // [rows, end - first_masked]: 0 or -inf
  // Of the r rows that the objective uses:
  Tensor rows;        // i64 [r], from `begin`
  Tensor age;         // [r, keys], >= 0
  Tensor counts;      // [r, keys]: 1 where the key is seen and counts for the capacity
  Tensor weight;      // [r]
  Tensor position;    // [r]
  Tensor per_excess;  // [r]: what an excess over M is multiplied by
  bool used = false;  // r > 0

  int64_t n_row() const { return end - begin; }
  int64_t n_key() const { return end - first_key; }
};

struct LayerState {
  Tensor log_beta;           // [n_kv_head, T], part of the graph
  Tensor decay;              // the same, detached, 0 where exempt
  Tensor grad_attention;     // [n_kv_head, T]: of the sum of -weight * log
  Tensor grad_capacity;      // [n_kv_head, T]: of the sum of excesses
  std::vector<Tensor> sums;  // S [n_kv_head, r] of each used block
};

class LocalPass {
 public:
  LocalPass(const BaseTransformer& base, GateModule& gates, const Sequence& sequence,
            const LocalOptions& options)
      : base_(base),
        gates_(gates),
        sequence_(sequence),
        options_(options),
        n_token_(sequence.tokens.size(0)),
        n_kv_head_(base.hparams().n_kv_head),
        n_group_(base.hparams().n_group()),
        head_dim_(base.hparams().head_dim),
        type_(gates.parameters().front().value.scalar_type()) {
    const torch::NoGradGuard no_grad;
    positions_ = sequence.positions.to(type_);
    not_exempt_ = (sequence.positions >= options.exempt).to(type_);
    const Tensor sampled = torch::arange(n_token_).remainder(options.stride) == options.offset;
    const Tensor used = (sampled | (sequence.row_weight > 1)) & (sequence.positions > 0);
    for (int64_t begin = 0; begin < n_token_; begin += options.query_block) {
      blocks_.push_back(MakeBlock(begin, used));
    }
    n_row_ = used.sum().item<int64_t>();
    weight_sum_ = (sequence.row_weight * used).sum(torch::kDouble).item<double>();
  }

  LocalLoss Run() {
    LocalLoss loss;
    loss.n_row = n_row_;
    if (n_row_ == 0) return loss;
    ForwardLayers();
    if (options_.scope == CapacityScope::kGlobal) {
      AddGlobalCapacity();
    } else {
      for (LayerState& layer : layers_) AddLocalCapacity(&layer);
    }
    const double n_log = n_head() * static_cast<double>(n_group_) * weight_sum_;
    loss.attention = attention_sum_ / n_log;
    loss.capacity = n_excess_ > 0 ? excess_sum_ / n_excess_ : 0.0;
    loss.total = loss.attention + options_.capacity_weight * loss.capacity;
    loss.kept = MeanKept();
    if (loss.finite()) {
      Backward(options_.grad_scale / n_log,
               n_excess_ > 0 ? options_.grad_scale * options_.capacity_weight / n_excess_ : 0.0);
    }
    return loss;
  }

 private:
  double n_head() const {
    return static_cast<double>(base_.hparams().n_layer) * static_cast<double>(n_kv_head_);
  }

  Tensor Visible(const Tensor& rows, int64_t first, int64_t end) const {
    const Tensor keys = torch::arange(first, end);
    return (rows.unsqueeze(1) >= keys.unsqueeze(0)) &
           (sequence_.document.index_select(0, rows).unsqueeze(1) ==
            sequence_.document.index_select(0, keys).unsqueeze(0));
  }

  Block MakeBlock(int64_t begin, const Tensor& used) const {
    Block block;
    block.begin = begin;
    block.end = std::min(begin + options_.query_block, n_token_);
    block.first_key = begin - sequence_.positions[begin].item<int64_t>();
    const bool one_document = sequence_.document[begin].item<int64_t>() ==
                              sequence_.document[block.end - 1].item<int64_t>();
    block.first_masked = one_document ? begin : block.first_key;
    block.mask = torch::zeros({block.n_row(), block.end - block.first_masked}, base_.dtype());
    block.mask.masked_fill_(
        ~Visible(torch::arange(begin, block.end), block.first_masked, block.end), -INFINITY);

    block.rows = used.slice(0, begin, block.end).nonzero().squeeze(1);
    block.used = block.rows.size(0) > 0;
    const Tensor rows = block.rows + begin;
    block.position = positions_.index_select(0, rows);
    block.age =
        (block.position.unsqueeze(1) - positions_.slice(0, block.first_key, block.end).unsqueeze(0))
            .clamp_min_(0);
    block.counts = Visible(rows, block.first_key, block.end).to(type_) *
                   not_exempt_.slice(0, block.first_key, block.end);
    block.weight = sequence_.row_weight.index_select(0, rows).to(type_);
    block.per_excess = options_.form == CapacityForm::kCode
                           ? (block.position - options_.memory).clamp_min(1).reciprocal()
                           : (block.position + 1).reciprocal();
    return block;
  }

  void ForwardLayers() {
    const torch::NoGradGuard no_grad;
    Tensor x = base_.Embed(sequence_.tokens);
    for (int32_t layer = 0; layer < base_.hparams().n_layer; ++layer) {
      const Tensor normed = base_.AttentionInput(layer, x);
      LayerState& state = layers_.emplace_back();
      {
        const torch::AutoGradMode with_grad(true);
        state.log_beta = gates_.LogBeta(layer, normed);
      }
      state.decay = state.log_beta.detach() * not_exempt_;
      state.grad_attention = torch::zeros_like(state.decay);
      state.grad_capacity = torch::zeros_like(state.decay);
      const Tensor attended = Attend(base_.Project(layer, normed, sequence_.positions), &state);
      // Nothing reads what the last layer gives.
      if (layer + 1 < base_.hparams().n_layer) x = base_.Finish(layer, x, attended);
    }
  }

  // A tensor of this shape in memory that is used again and again: fresh pages cost more than the
  // arithmetic.
  Tensor Scratch(Tensor* memory, torch::IntArrayRef shape) const {
    int64_t n = 1;
    for (const int64_t size : shape) n *= size;
    if (!memory->defined() || memory->numel() < n) *memory = torch::empty({n}, base_.dtype());
    return memory->narrow(0, 0, n).view(shape);
  }

  // Attention in blocks of query rows, the objective beside it. [T, n_head * head_dim]
  Tensor Attend(const BaseTransformer::Heads& heads, LayerState* state) {
    const double scale = 1.0 / std::sqrt(static_cast<double>(head_dim_));
    const Tensor q = heads.q.view({n_kv_head_, n_group_, n_token_, head_dim_});
    const Tensor value_norm = heads.v.norm(2, -1).to(type_);  // [n_kv_head, T]
    Tensor attended = torch::empty({n_token_, n_kv_head_, n_group_, head_dim_}, base_.dtype());
    for (const Block& block : blocks_) {
      const int64_t n_row = block.n_row();
      const int64_t n_key = block.n_key();
      Tensor scores = Scratch(&scores_, {n_kv_head_, n_group_ * n_row, n_key});
      const Tensor rows = (q.slice(2, block.begin, block.end) * scale)
                              .reshape({n_kv_head_, n_group_ * n_row, head_dim_});
      at::bmm_out(scores, rows, heads.k.slice(1, block.first_key, block.end).transpose(1, 2));
      scores.view({n_kv_head_, n_group_, n_row, n_key})
          .slice(3, block.first_masked - block.first_key, n_key)
          .add_(block.mask);
      Tensor weights = Scratch(&weights_, {n_kv_head_, n_group_ * n_row, n_key});
      at::_softmax_out(weights, scores, -1, false);
      const Tensor out = at::bmm(weights, heads.v.slice(1, block.first_key, block.end));
      attended.slice(0, block.begin, block.end)
          .copy_(out.view({n_kv_head_, n_group_, n_row, head_dim_}).permute({2, 0, 1, 3}));
      if (!block.used) continue;
      const Tensor used =
          weights.view({n_kv_head_, n_group_, n_row, n_key}).index_select(2, block.rows).to(type_);
      AddAttention(block, used, value_norm.slice(1, block.first_key, block.end), state);
    }
    return attended.view({n_token_, n_kv_head_ * n_group_ * head_dim_});
  }

  // beta^age of the block's used rows. [n_kv_head, r, keys]
  Tensor Remaining(const Block& block, const LayerState& state) const {
    return (state.decay.slice(1, block.first_key, block.end).unsqueeze(1) * block.age).exp_();
  }

  // `attention` [n_kv_head, n_group, r, keys]: of the used rows. `value_norm` [n_kv_head, keys].
  void AddAttention(const Block& block, const Tensor& attention, const Tensor& value_norm,
                    LayerState* state) {
    Tensor remaining = Remaining(block, *state);
    state->sums.push_back((remaining * block.counts).sum(-1));
    remaining.mul_(value_norm.unsqueeze(1));
    const double tiny = type_ == torch::kDouble ? 1e-300 : 1e-30;
    const Tensor whole = at::matmul(attention.flatten(1, 2), value_norm.unsqueeze(2))
                             .view({n_kv_head_, n_group_, -1})
                             .clamp_min_(tiny);
    const Tensor left = (attention * remaining.unsqueeze(1)).sum(-1).clamp_min_(tiny);
    attention_sum_ +=
        ((whole.log() - left.log()) * block.weight).sum(torch::kDouble).item<double>();

    const Tensor factor = block.weight / left;  // [n_kv_head, n_group, r]
    Tensor mixed = attention.select(1, 0) * factor.select(1, 0).unsqueeze(2);
    for (int64_t g = 1; g < n_group_; ++g) {
      mixed.addcmul_(attention.select(1, g), factor.select(1, g).unsqueeze(2));
    }
    AddAgeSum(block, mixed.mul_(remaining), -torch::ones({1, block.rows.size(0)}, type_),
              &state->grad_attention);
  }

  // grad[h, i] += sum over rows t of factor[h, t] * terms[h, t, i] * (t - i).
  void AddAgeSum(const Block& block, const Tensor& terms, const Tensor& factor,
                 Tensor* grad) const {
    // Two rows of one product: sums of terms and of t * terms. Positions count from the middle, so
    // that little is lost where they are subtracted.
    const double middle = block.position.mean().item<double>();
    const Tensor heads_factor = factor.expand({n_kv_head_, factor.size(-1)});
    const Tensor both = torch::stack({heads_factor, heads_factor * (block.position - middle)}, 1);
    const Tensor sums = at::bmm(both, terms);  // [n_kv_head, 2, keys]
    const Tensor key = positions_.slice(0, block.first_key, block.end) - middle;
    grad->slice(1, block.first_key, block.end).add_(sums.select(1, 1) - key * sums.select(1, 0));
  }

  // `factor` [n_kv_head, r] or [1, r]: d loss / d S, not yet divided by n_excess_.
  void AddCapacityGrad(const Block& block, const Tensor& factor, LayerState* state) const {
    AddAgeSum(block, Remaining(block, *state).mul_(block.counts), factor, &state->grad_capacity);
  }

  // Adds to the sum and the count of excesses; returns their derivative with respect to `sums`.
  Tensor AddExcess(const Block& block, const Tensor& sums) {
    const Tensor over = sums - static_cast<double>(options_.memory);
    const Tensor positive = over > 0;
    excess_sum_ += (over.clamp_min(0) * block.per_excess).sum(torch::kDouble).item<double>();
    n_excess_ += static_cast<double>(
        options_.form == CapacityForm::kCode ? positive.sum().item<int64_t>() : sums.numel());
    return positive.to(type_) * block.per_excess;
  }

  template <typename Visit>
  void ForUsedBlocks(const Visit& visit) const {
    size_t i = 0;
    for (const Block& block : blocks_) {
      if (block.used) visit(block, i++);
    }
  }

  void AddLocalCapacity(LayerState* layer) {
    const torch::NoGradGuard no_grad;
    ForUsedBlocks([&](const Block& block, size_t i) {
      const Tensor factor = AddExcess(block, layer->sums[i]);
      if (factor.any().item<bool>()) AddCapacityGrad(block, factor, layer);
    });
  }

  void AddGlobalCapacity() {
    const torch::NoGradGuard no_grad;
    ForUsedBlocks([&](const Block& block, size_t i) {
      Tensor mean = torch::zeros({1, block.rows.size(0)}, type_);
      for (const LayerState& layer : layers_) mean += layer.sums[i].sum(0, /*keepdim=*/true);
      const Tensor factor = AddExcess(block, mean / n_head()) / n_head();
      if (!factor.any().item<bool>()) return;
      for (LayerState& layer : layers_) AddCapacityGrad(block, factor, &layer);
    });
  }

  double MeanKept() const {
    double late = 0, n_late = 0, all = 0, n_all = 0;
    ForUsedBlocks([&](const Block& block, size_t i) {
      const Tensor is_late = (block.position >= static_cast<double>(options_.memory)).to(type_);
      n_late += is_late.sum(torch::kDouble).item<double>() * n_head();
      n_all += static_cast<double>(block.rows.size(0)) * n_head();
      for (const LayerState& layer : layers_) {
        late += (layer.sums[i] * is_late).sum(torch::kDouble).item<double>();
        all += layer.sums[i].sum(torch::kDouble).item<double>();
      }
    });
    return n_late > 0 ? late / n_late : all / n_all;
  }

  void Backward(double attention_scale, double capacity_scale) {
    std::vector<Tensor> outputs, grads;
    for (LayerState& layer : layers_) {
      outputs.push_back(layer.log_beta);
      grads.push_back(
          (layer.grad_attention * attention_scale + layer.grad_capacity * capacity_scale) *
          not_exempt_);
    }
    torch::autograd::backward(outputs, grads);
  }

  const BaseTransformer& base_;
  GateModule& gates_;
  const Sequence& sequence_;
  const LocalOptions& options_;
  const int64_t n_token_, n_kv_head_, n_group_, head_dim_;
  const torch::ScalarType type_;  // of the gates and of the objective

  Tensor positions_;   // [T]
  Tensor not_exempt_;  // [T], 0 or 1
  std::vector<Block> blocks_;
  std::vector<LayerState> layers_;
  Tensor scores_, weights_;  // scratch
  int64_t n_row_ = 0;
  double weight_sum_ = 0;
  double attention_sum_ = 0;
  double excess_sum_ = 0;
  double n_excess_ = 0;
};

}  // namespace

bool LocalLoss::finite() const { return std::isfinite(total); }

LocalLoss LocalObjective(const BaseTransformer& base, GateModule& gates, const Sequence& sequence,
                         const LocalOptions& options) {
  return LocalPass(base, gates, sequence, options).Run();
}

}  // namespace kvbound::train
