#include "testing/tiny_reference.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>
#include <utility>

#include "base/strings.h"

namespace kvbound::testing {

using Row = ReferencePass::Row;
using Rows = ReferencePass::Rows;

Row ReferencePass::Embedding(int32_t id) const {
  const std::vector<float>& embd = model_.Values("token_embd.weight");
  const auto row = embd.begin() + std::ptrdiff_t{id} * o_.n_embd;
  return {row, row + o_.n_embd};
}

Row ReferencePass::Query(int layer, const Row& x, int32_t position) const {
  const std::string blk = StrCat("blk.", layer, ".");
  Row q = Project(blk + "attn_q", Norm(x, blk + "attn_norm.weight"));
  NormHeads(blk + "attn_q_norm.weight", &q);
  Rotate(position, &q);
  return q;
}

Row ReferencePass::Key(int layer, const Row& x, int32_t position) const {
  const std::string blk = StrCat("blk.", layer, ".");
  Row k = Project(blk + "attn_k", Norm(x, blk + "attn_norm.weight"));
  NormHeads(blk + "attn_k_norm.weight", &k);
  Rotate(position, &k);
  return k;
}

Row ReferencePass::Value(int layer, const Row& x) const {
  const std::string blk = StrCat("blk.", layer, ".");
  return Project(blk + "attn_v", Norm(x, blk + "attn_norm.weight"));
}

Row ReferencePass::Multiply(const std::string& name, const Row& x) const {
  const std::vector<float>& weight = model_.Values(name);
  const size_t columns = x.size();
  Row y(weight.size() / columns);
  for (size_t r = 0; r < y.size(); ++r) {
    for (size_t c = 0; c < columns; ++c) y[r] += weight[r * columns + c] * x[c];
  }
  return y;
}

Row ReferencePass::Project(const std::string& name, const Row& x) const {
  Row y = Multiply(name + ".weight", x);
  if (const TinyTensor* bias = model_.Find(name + ".bias")) {
    for (size_t i = 0; i < y.size(); ++i) y[i] += bias->values[i];
  }
  return y;
}

Row ReferencePass::Norm(const Row& x, const std::string& name) const {
  Row y = x;
  NormSpan(model_.Values(name), y.data());
  return y;
}

void ReferencePass::NormSpan(const std::vector<float>& gain, double* x) const {
  double sum = 0.0;
  for (size_t i = 0; i < gain.size(); ++i) sum += x[i] * x[i];
  const double scale =
      1.0 / std::sqrt(sum / static_cast<double>(gain.size()) + double{model_.rms_eps});
  for (size_t i = 0; i < gain.size(); ++i) x[i] *= scale * gain[i];
}

void ReferencePass::NormHeads(const std::string& name, Row* x) const {
  const TinyTensor* gain = model_.Find(name);
  if (gain == nullptr) return;
  for (size_t at = 0; at < x->size(); at += gain->values.size()) {
    NormSpan(gain->values, x->data() + at);
  }
}

void ReferencePass::Rotate(int32_t position, Row* x) const {
  const int n_rot = model_.n_rot();
  const bool neox = o_.arch != Arch::kLlama;
  for (size_t head = 0; head < x->size(); head += static_cast<size_t>(o_.head_dim)) {
    for (int pair = 0; pair < n_rot / 2; ++pair) {
      double angle =
          position / double{o_.rope_scale} * std::pow(double{o_.freq_base}, -2.0 * pair / n_rot);
      if (!o_.rope_factors.empty()) angle /= o_.rope_factors[static_cast<size_t>(pair)];
      double& a = (*x)[head + static_cast<size_t>(neox ? pair : 2 * pair)];
      double& b = (*x)[head + static_cast<size_t>(neox ? pair + n_rot / 2 : 2 * pair + 1)];
      const double a0 = a, b0 = b;
      a = a0 * std::cos(angle) - b0 * std::sin(angle);
      b = a0 * std::sin(angle) + b0 * std::cos(angle);
    }
  }
}

Row ReferencePass::Attend(int layer, const Row& q, const Rows& k, const Rows& v,
                          const std::function<bool(int kv_head, int j)>& visible) const {
  const int n = static_cast<int>(k.size()), hd = o_.head_dim;
  const int n_group = o_.n_head / o_.n_kv_head;
  Row out(q.size());
  for (int head = 0; head < o_.n_head; ++head) {
    const int kv_head = head / n_group;
    Row weight(static_cast<size_t>(n), -std::numeric_limits<double>::infinity());
    double max = weight[0];
    for (int j = 0; j < n; ++j) {
      if (!visible(kv_head, j)) continue;
      double dot = 0.0;
      for (int c = 0; c < hd; ++c) dot += q[At(head, c)] * k[size_t(j)][At(kv_head, c)];
      weight[size_t(j)] = dot / std::sqrt(static_cast<double>(hd));
      max = std::max(max, weight[size_t(j)]);
    }
    double sum = 0.0;
    for (double& w : weight) sum += w = std::isinf(w) ? 0.0 : std::exp(w - max);
    for (int j = 0; j < n && sum > 0.0; ++j) {
      for (int c = 0; c < hd; ++c) {
        out[At(head, c)] += weight[size_t(j)] / sum * v[size_t(j)][At(kv_head, c)];
      }
    }
  }
  return Multiply(StrCat("blk.", layer, ".attn_output.weight"), out);
}

Row ReferencePass::FeedForward(int layer, const Row& stream) const {
  const std::string blk = StrCat("blk.", layer, ".");
  const Row x = Norm(stream, blk + "ffn_norm.weight");
  Row act = Multiply(blk + "ffn_up.weight", x);
  const Row gate = Multiply(blk + "ffn_gate.weight", x);
  for (size_t i = 0; i < act.size(); ++i) act[i] *= gate[i] / (1.0 + std::exp(-gate[i]));
  return Multiply(blk + "ffn_down.weight", act);
}

Row ReferencePass::Head(const Row& x) const {
  const bool tied = model_.Find("output.weight") == nullptr;
  return Multiply(tied ? "token_embd.weight" : "output.weight", Norm(x, "output_norm.weight"));
}

// The keys of every head turned on by as many positions as `by` says.
Rows MovedKeys(const TinyModel& model, const ReferencePass& pass, Rows k,
               const std::function<int32_t(int kv_head, int key)>& by) {
  const auto hd = static_cast<std::ptrdiff_t>(model.options.head_dim);
  for (int key = 0; key < static_cast<int>(k.size()); ++key) {
    for (int kv_head = 0; kv_head < model.options.n_kv_head; ++kv_head) {
      const int32_t positions = by(kv_head, key);
      if (positions == 0) continue;
      const auto begin = k[size_t(key)].begin() + kv_head * hd;
      Row head(begin, begin + hd);
      pass.Rotate(positions, &head);
      std::copy(head.begin(), head.end(), begin);
    }
  }
  return k;
}

ReferenceResult ReferenceForward(const TinyModel& model, const std::vector<int32_t>& ids,
                                 std::vector<int32_t> positions, const Visible& visible,
                                 const KeyPosition& key_position) {
  if (positions.empty()) {
    positions.resize(ids.size());
    std::iota(positions.begin(), positions.end(), 0);
  }
  const ReferencePass pass(model);
  const size_t n = ids.size();
  ReferenceResult result;
  for (const int32_t id : ids) result.hidden.push_back(pass.Embedding(id));
  for (int layer = 0; layer < model.options.n_layer; ++layer) {
    Rows q(n), k(n), v(n);
    for (size_t t = 0; t < n; ++t) {
      q[t] = pass.Query(layer, result.hidden[t], positions[t]);
      k[t] = pass.Key(layer, result.hidden[t], positions[t]);
      v[t] = pass.Value(layer, result.hidden[t]);
    }
    if (layer + 1 == model.options.n_layer) result.last_input = result.hidden;
    for (size_t t = 0; t < n; ++t) {
      const int query = static_cast<int>(t);
      const auto sees = [&](int kv_head, int key) {
        return visible ? visible(layer, kv_head, query, key) : key <= query;
      };
      const Rows seen = MovedKeys(model, pass, k, [&](int kv_head, int key) {
        if (!key_position || !sees(kv_head, key)) return 0;
        return key_position(layer, kv_head, query, key) - positions[size_t(key)];
      });
      ReferencePass::Add(pass.Attend(layer, q[t], seen, v, sees), &result.hidden[t]);
      ReferencePass::Add(pass.FeedForward(layer, result.hidden[t]), &result.hidden[t]);
    }
    result.keys.push_back(std::move(k));
    result.values.push_back(std::move(v));
  }
  for (const Row& x : result.hidden) result.logits.push_back(pass.Head(x));
  return result;
}

std::vector<double> ReferenceLogits(const TinyModel& model, const std::vector<int32_t>& ids,
                                    const std::vector<int32_t>& positions) {
  return ReferenceForward(model, ids, positions).logits.back();
}

double ReferenceNll(const std::vector<double>& logits, int32_t target) {
  const double max = *std::max_element(logits.begin(), logits.end());
  double sum = 0.0;
  for (const double logit : logits) sum += std::exp(logit - max);
  return max + std::log(sum) - logits[static_cast<size_t>(target)];
}

}  // namespace kvbound::testing
