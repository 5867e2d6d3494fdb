#include "train/gate_module.h"

#include <cmath>
#include <cstring>
#include <numbers>
#include <span>
#include <utility>

#include "base/strings.h"

namespace kvbound::train {
namespace {

constexpr double kInitDeviation = 0.02;

// log sigmoid(x) = min(x, 0) - log1p(exp(-|x|)); its derivative sigmoid(-x) from exp(-|x|) alone,
// so that neither 1 - sigmoid(x) nor an underflow of a product loses it.
class LogSigmoidFunction : public torch::autograd::Function<LogSigmoidFunction> {
 public:
  static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& x) {
    context->save_for_backward({x});
    const Tensor e = torch::exp(-x.abs());
    return x.clamp_max(0) - torch::log1p(e);
  }

  static torch::autograd::tensor_list backward(torch::autograd::AutogradContext* context,
                                               torch::autograd::tensor_list grads) {
    const Tensor x = context->get_saved_variables()[0];
    const Tensor e = torch::exp(-x.abs());
    return {grads[0] * torch::where(x < 0, torch::ones_like(e), e) / (1 + e)};
  }
};

uint64_t NextBits(uint64_t* state) {  // splitmix64
  uint64_t z = *state += 0x9E3779B97F4A7C15;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
  return z ^ (z >> 31);
}

// Normal numbers as sums of uniforms: additions alone, which every machine rounds alike, where
// log and cos differ between C libraries. Twelve uniforms have variance 1.
void FillNormal(uint64_t* state, double deviation, float* values, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    uint64_t sum = 0;  // exact
    for (int j = 0; j < 12; ++j) sum += NextBits(state) >> 24;
    const double normal = static_cast<double>(static_cast<int64_t>(sum) - (int64_t{6} << 40));
    values[i] = static_cast<float>(normal * 0x1p-40 * deviation);
  }
}

uint64_t SeedOf(uint64_t seed, size_t index) {
  uint64_t state = seed * 0xD1342543DE82EF95 + index;
  return NextBits(&state);
}

Tensor Leaf(std::vector<int64_t> shape) {
  return torch::zeros(shape, torch::kFloat).requires_grad_(true);
}

void Fill(Tensor* leaf, std::span<const float> values) {
  std::memcpy(leaf->data_ptr<float>(), values.data(), values.size() * sizeof(float));
}

std::vector<float> FloatsOf(const Tensor& tensor) {
  const Tensor values = tensor.detach().to(torch::kFloat).contiguous();
  const auto* data = values.data_ptr<float>();
  return std::vector<float>(data, data + values.numel());
}

Tensor Activate(GateActivation activation, const Tensor& x) {
  switch (activation) {
    case GateActivation::kGelu:
      return torch::gelu(x, "none");
    case GateActivation::kRelu:
      return torch::relu(x);
    case GateActivation::kSilu:
      break;
  }
  return torch::silu(x);
}

GateLinear LinearOf(const Tensor& weight, const Tensor& bias) {
  const std::vector<float> values = FloatsOf(weight);
  return {GateMatrix::FromFloats(GateType::kF32, weight.size(0), weight.size(1), values),
          FloatsOf(bias)};
}

Result<GateShape> ShapeOf(const Gates& gates) {
  const Gates::Parts& parts = gates.parts();
  const GateLayer& first = parts.layers.front();
  GateShape shape;
  shape.n_layer = gates.n_layer();
  shape.n_embd = parts.base.n_embd;
  shape.n_kv_head = parts.base.n_kv_head;
  shape.n_hidden = static_cast<int32_t>(first.hidden.front().weight.n_row);
  shape.n_hidden_layer = static_cast<int32_t>(first.hidden.size());
  shape.tied_output = parts.tied_output;
  shape.activation = parts.activation;
  for (size_t l = 0; l < parts.layers.size(); ++l) {
    const bool same_depth = parts.layers[l].hidden.size() == first.hidden.size();
    for (const GateLinear& linear : parts.layers[l].hidden) {
      if (same_depth && linear.weight.n_row == shape.n_hidden) continue;
      return InvalidArgument(StrCat("gates: layer ", l, ": expected ", first.hidden.size(),
                                    " hidden linears of ", shape.n_hidden, " rows, found ",
                                    parts.layers[l].hidden.size(), ", one of ", linear.weight.n_row,
                                    "; training needs equal ones"));
    }
  }
  return shape;
}

}  // namespace

Tensor LogSigmoid(const Tensor& x) { return LogSigmoidFunction::apply(x); }

// Per layer: weight and bias of each hidden linear, then the output's, unless it is tied: then
// once, at the end.
GateModule::GateModule(const GateShape& shape) : shape_(shape) {
  const auto add = [&](std::string name, std::vector<int64_t> sizes) {
    parameters_.push_back({std::move(name), Leaf(std::move(sizes))});
  };
  const std::string output = StrCat("linear", shape.n_hidden_layer + 1, ".weight");
  for (int32_t l = 0; l < shape.n_layer; ++l) {
    const std::string prefix = StrCat("layers.", l, ".");
    for (int32_t i = 0; i < shape.n_hidden_layer; ++i) {
      const std::string linear = StrCat(prefix, "linear", i + 1, ".");
      add(linear + "weight", {shape.n_hidden, i == 0 ? shape.n_embd : shape.n_hidden});
      add(linear + "bias", {shape.n_hidden});
    }
    if (shape.tied_output) continue;
    add(prefix + output, {shape.n_kv_head, shape.n_hidden});
    add(prefix + "bias", {shape.n_kv_head});
  }
  if (!shape.tied_output) return;
  add(output, {shape.n_kv_head, shape.n_hidden});
  add("bias", {shape.n_kv_head});
}

GateModule::GateModule(const GateShape& shape, double output_bias, uint64_t seed)
    : GateModule(shape) {
  torch::NoGradGuard no_grad;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    Tensor& value = parameters_[i].value;
    if (value.dim() != 2) continue;
    uint64_t state = SeedOf(seed, i);
    FillNormal(&state, kInitDeviation, value.data_ptr<float>(), value.numel());
  }
  for (int32_t l = 0; l < shape.n_layer; ++l) {
    parameters_[OutputIndex(l) + 1].value.fill_(output_bias);
  }
}

Result<GateModule> GateModule::FromGates(const Gates& gates) {
  KVBOUND_ASSIGN_OR_RETURN(const GateShape shape, ShapeOf(gates));
  GateModule module(shape);
  torch::NoGradGuard no_grad;
  for (int32_t l = 0; l < shape.n_layer; ++l) {
    const GateLayer& layer = gates.parts().layers[static_cast<size_t>(l)];
    for (int32_t i = 0; i < shape.n_hidden_layer; ++i) {
      const GateLinear& linear = layer.hidden[static_cast<size_t>(i)];
      Fill(&module.parameters_[module.HiddenIndex(l, i)].value, linear.weight.ToFloats());
      Fill(&module.parameters_[module.HiddenIndex(l, i) + 1].value, linear.bias);
    }
    Fill(&module.parameters_[module.OutputIndex(l)].value, layer.output.weight.ToFloats());
    Fill(&module.parameters_[module.OutputIndex(l) + 1].value, layer.output.bias);
  }
  return module;
}

std::vector<GateLayer> GateModule::ToLayers() const {
  std::vector<GateLayer> layers;
  for (int32_t l = 0; l < shape_.n_layer; ++l) {
    GateLayer layer;
    for (int32_t i = 0; i < shape_.n_hidden_layer; ++i) {
      const size_t at = HiddenIndex(l, i);
      layer.hidden.push_back(LinearOf(parameters_[at].value, parameters_[at + 1].value));
    }
    const size_t at = OutputIndex(l);
    layer.output = LinearOf(parameters_[at].value, parameters_[at + 1].value);
    layers.push_back(std::move(layer));
  }
  return layers;
}

Tensor GateModule::LogBeta(int32_t layer, const Tensor& normed) const {
  const auto type = parameters_.front().value.scalar_type();
  Tensor x = normed.to(type);
  for (int32_t i = 0; i < shape_.n_hidden_layer; ++i) {
    const size_t at = HiddenIndex(layer, i);
    x = Activate(shape_.activation,
                 torch::addmm(parameters_[at + 1].value, x, parameters_[at].value.t()));
  }
  const size_t at = OutputIndex(layer);
  // [n_kv_head, T] at once: the few rows of the output are the rows of the product.
  const Tensor logits =
      torch::addmm(parameters_[at + 1].value.unsqueeze(1), parameters_[at].value, x.t());
  return LogSigmoid(logits);
}

void GateModule::ToDouble() {
  for (Parameter& parameter : parameters_) {
    parameter.value = parameter.value.detach().to(torch::kDouble).requires_grad_(true);
  }
}

size_t GateModule::HiddenIndex(int32_t layer, int32_t linear) const {
  const int32_t per_layer = 2 * (shape_.n_hidden_layer + (shape_.tied_output ? 0 : 1));
  return static_cast<size_t>(layer * per_layer + 2 * linear);
}

size_t GateModule::OutputIndex(int32_t layer) const {
  return shape_.tied_output ? parameters_.size() - 2 : HiddenIndex(layer, shape_.n_hidden_layer);
}

}  // namespace kvbound::train
