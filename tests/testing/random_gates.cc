#include "testing/random_gates.h"

#include <random>
#include <stdexcept>

namespace kvbound::testing {
namespace {

class Generator {
 public:
  explicit Generator(const RandomGatesOptions& options)
      : options_(options), engine_(options.seed) {}

  std::vector<float> Values(int64_t n) {
    std::vector<float> values(static_cast<size_t>(n));
    for (float& value : values) {
      const auto unit = static_cast<float>(engine_() >> 40) / static_cast<float>(1 << 24);
      value = options_.weight_range * (2 * unit - 1);
    }
    return values;
  }

  GateLinear Linear(int64_t n_out, int64_t n_in) {
    GateLinear linear;
    linear.weight = GateMatrix::FromFloats(options_.type, n_out, n_in, Values(n_out * n_in));
    linear.bias = Values(n_out);
    return linear;
  }

 private:
  const RandomGatesOptions& options_;
  std::mt19937_64 engine_;
};

}  // namespace

Gates::Parts RandomGateParts(const RandomGatesOptions& options) {
  Gates::Parts parts;
  parts.base = options.base;
  parts.activation = options.activation;
  parts.tied_output = options.tied_output;
  parts.training = {.method = "local, full",
                    .texts = {"a.txt, 100 bytes, fnv1a 0123456789abcdef", "b.txt"},
                    .tokens = 170000,
                    .steps = 166,
                    .seq_len = 1024,
                    .memory = 128,
                    .seed = 7,
                    .fact_share = 0.6,
                    .loss = 1.25,
                    .capacity_loss = 0.5,
                    .eviction_kl = 0.146};
  Generator generator(options);
  for (int32_t l = 0; l < options.base.n_layer; ++l) {
    GateLayer& layer = parts.layers.emplace_back();
    int64_t n_in = options.base.n_embd;
    for (const int64_t n_out : options.hidden) {
      layer.hidden.push_back(generator.Linear(n_out, n_in));
      n_in = n_out;
    }
    const bool is_copy = options.tied_output && l > 0;
    layer.output =
        is_copy ? parts.layers[0].output : generator.Linear(options.base.n_kv_head, n_in);
    layer.output.bias.assign(static_cast<size_t>(options.base.n_kv_head), options.output_bias);
  }
  return parts;
}

std::shared_ptr<const Gates> MakeRandomGates(const Model& model, RandomGatesOptions options) {
  options.base = DescribeBase(model);
  Result<std::shared_ptr<const Gates>> gates = Gates::Make(RandomGateParts(options));
  if (!gates.ok()) throw std::runtime_error(gates.status().message());
  return *gates;
}

}  // namespace kvbound::testing
