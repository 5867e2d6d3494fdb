#include "testing/tiny_gates.h"

#include <cmath>
#include <random>
#include <stdexcept>
#include <vector>

namespace kvbound::testing {
namespace {

class RandomValues {
 public:
  explicit RandomValues(uint64_t seed) : generator_(seed) {}

  // Uniform in [-scale, scale), the same on every machine.
  std::vector<float> Draw(int64_t n, float scale) {
    std::vector<float> values(n);
    for (float& value : values) {
      const auto draw = static_cast<float>(generator_() >> 40);  // 24 bits
      value = scale * (draw / 8388608.0f - 1.0f);
    }
    return values;
  }

 private:
  std::mt19937_64 generator_;
};

}  // namespace

std::shared_ptr<const Gates> MakeTinyGates(const Model& model, const TinyGatesOptions& options) {
  const ModelInfo& info = model.info();
  RandomValues random(options.seed);
  const auto linear = [&](int64_t n_out, int64_t n_in, float mean) {
    GateLinear linear;
    const std::vector<float> weights =
        random.Draw(n_out * n_in, 2.0f / std::sqrt(static_cast<float>(n_in)));
    linear.weight = GateMatrix::FromFloats(options.type, n_out, n_in, weights);
    linear.bias = random.Draw(n_out, 0.5f);
    for (float& bias : linear.bias) bias += mean;
    return linear;
  };
  Gates::Parts parts;
  parts.base = DescribeBase(model);
  parts.activation = options.activation;
  parts.tied_output = options.tied_output;
  parts.training.method = "random";
  for (int32_t i = 0; i < info.n_layer; ++i) {
    GateLayer& layer = parts.layers.emplace_back();
    for (int32_t h = 0; h < options.n_hidden_linear; ++h) {
      layer.hidden.push_back(linear(options.n_hidden, h == 0 ? info.n_embd : options.n_hidden, 0));
    }
    layer.output = i > 0 && options.tied_output
                       ? parts.layers[0].output
                       : linear(info.n_kv_head, options.n_hidden, options.output_bias);
  }
  Result<std::shared_ptr<const Gates>> gates = Gates::Make(std::move(parts));
  if (!gates.ok()) throw std::runtime_error(gates.status().message());
  return *gates;
}

}  // namespace kvbound::testing
