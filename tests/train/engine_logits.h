#ifndef KVBOUND_TESTS_TRAIN_ENGINE_LOGITS_H_
#define KVBOUND_TESTS_TRAIN_ENGINE_LOGITS_H_

#include <algorithm>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "testing/tiny_engine.h"
#include "train/attention.h"
#include "train/base_transformer.h"

namespace kvbound::train {

// The plain forward pass in torch. [T, n_vocab]
inline Tensor TorchLogits(const BaseTransformer& base, const std::vector<Token>& tokens) {
  torch::NoGradGuard no_grad;
  const auto n = static_cast<int64_t>(tokens.size());
  const Tensor positions = torch::arange(n);
  const auto layout = c10::make_intrusive<AttentionLayout>(
      positions, torch::zeros({n}, torch::kLong), 0, base.dtype());
  Tensor x = base.Embed(torch::tensor(std::vector<int64_t>(tokens.begin(), tokens.end())));
  for (int32_t l = 0; l < base.hparams().n_layer; ++l) {
    const auto heads = base.Project(l, base.AttentionInput(l, x), positions);
    x = base.Finish(l, x, Attention(heads, Tensor(), layout));
  }
  return base.Logits(base.FinalNorm(x));
}

// Largest distance between the logits of both, relative to the largest logit where that is above
// 1, at several positions. The engine holds f32 weights, K and V.
inline double DistanceToEngine(const std::string& path, const std::vector<Token>& tokens) {
  const auto base = BaseTransformer::Load(path, torch::kFloat);
  if (!base.ok()) throw std::runtime_error(base.status().ToString());
  const Tensor ours = TorchLogits(**base, tokens);

  ModelOptions weights;
  weights.dequantize_f32 = true;
  const auto model = Model::Load(path, weights);
  if (!model.ok()) throw std::runtime_error(model.status().ToString());
  EngineOptions options = testing::ExactEngine("none", static_cast<int32_t>(tokens.size()), 16);
  const auto engine = testing::MakeEngine(*model, options);
  const auto session = testing::MakeSession(*engine);
  double largest = 0;
  const size_t step = std::max<size_t>(1, tokens.size() / 5);
  for (size_t begin = 0; begin < tokens.size(); begin += step) {
    const size_t n = std::min(step, tokens.size() - begin);
    const Status fed = session->Feed(std::span(tokens).subspan(begin, n));
    if (!fed.ok()) throw std::runtime_error(fed.ToString());
    const Tensor theirs = torch::tensor(testing::CopyLogits(*session));
    const Tensor row = ours[static_cast<int64_t>(begin + n - 1)];
    const double scale = std::max(1.0, theirs.abs().max().item<double>());
    largest = std::max(largest, (row - theirs).abs().max().item<double>() / scale);
  }
  return largest;
}

}  // namespace kvbound::train

#endif  // KVBOUND_TESTS_TRAIN_ENGINE_LOGITS_H_
