#include "model/loaded_gates.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/strings.h"
#include "ggml-alloc.h"
#include "model/gate_op.h"
#include "model/gate_type.h"

namespace kvbound {
namespace {

Status CheckSize(const Gates& gates, const char* what, int64_t expected, int64_t found) {
  if (expected == found) return Status::Ok();
  return InvalidArgument(StrCat(gates.path().empty() ? "gates" : gates.path(), ": expected ", what,
                                " ", expected, " as in the model, found ", found));
}

}  // namespace

Result<std::unique_ptr<LoadedGates>> LoadedGates::Make(std::shared_ptr<const Gates> gates,
                                                       const LoadedModel& model,
                                                       Weights::Mode mode) {
  const HParams& hp = model.hparams();
  const GateLayer& first = gates->parts().layers.front();
  KVBOUND_RETURN_IF_ERROR(CheckSize(*gates, "layers", hp.n_layer, gates->n_layer()));
  const GateMatrix& reads = first.hidden.empty() ? first.output.weight : first.hidden[0].weight;
  KVBOUND_RETURN_IF_ERROR(CheckSize(*gates, "input width", hp.n_embd, reads.n_col));
  KVBOUND_RETURN_IF_ERROR(CheckSize(*gates, "KV heads", hp.n_kv_head, first.output.weight.n_row));
  std::unique_ptr<LoadedGates> loaded(new LoadedGates(std::move(gates)));
  loaded->Declare();
  KVBOUND_RETURN_IF_ERROR(loaded->Place(ggml_backend_dev_buffer_type(model.device()), mode));
  return loaded;
}

void LoadedGates::Declare() {
  const Gates::Parts& parts = gates_->parts();
  const size_t n_tensor = parts.layers.size() * (2 * parts.layers[0].hidden.size() + 1);
  context_.reset(ggml_init({n_tensor * ggml_tensor_overhead(), nullptr, /*no_alloc=*/true}));
  const auto matrix = [this](const GateMatrix& m) {
    ggml_tensor* t = ggml_new_tensor_2d(context_.get(), GateGgmlType(m.type), m.n_col, m.n_row);
    entries_.push_back({t, m.data.data()});
    return t;
  };
  const auto vector = [this](const std::vector<float>& v) {
    ggml_tensor* t =
        ggml_new_tensor_1d(context_.get(), GGML_TYPE_F32, static_cast<int64_t>(v.size()));
    entries_.push_back({t, v.data()});
    return t;
  };
  for (const GateLayer& source : parts.layers) {
    Layer& layer = layers_.emplace_back();
    for (const GateLinear& hidden : source.hidden) {
      layer.hidden.push_back({matrix(hidden.weight), vector(hidden.bias)});
    }
    const bool shared = parts.tied_output && layers_.size() > 1;
    layer.output.weight = shared ? layers_[0].output.weight : matrix(source.output.weight);
  }
}

Status LoadedGates::Place(ggml_backend_buffer_type_t type, Weights::Mode mode) {
  const uint64_t alignment = ggml_backend_buft_get_alignment(type);
  for (const Entry& e : entries_) {
    const uint64_t size = ggml_backend_buft_get_alloc_size(type, e.tensor);
    bytes_ += (size + alignment - 1) / alignment * alignment;
  }
  if (mode == Weights::Mode::kShapesOnly) {
    for (const Entry& e : entries_) e.tensor->data = reinterpret_cast<void*>(uintptr_t{4096});
    return Status::Ok();
  }
  buffer_.reset(ggml_backend_buft_alloc_buffer(type, bytes_));
  if (buffer_ == nullptr) {
    return OutOfBudget(
        StrCat("gates: no room for ", bytes_, " bytes in ", ggml_backend_buft_name(type)));
  }
  ggml_backend_buffer_set_usage(buffer_.get(), GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
  ggml_tallocr place = ggml_tallocr_new(buffer_.get());
  for (const Entry& e : entries_) {
    if (ggml_tallocr_alloc(&place, e.tensor) != GGML_STATUS_SUCCESS) {
      return Internal("gates: a tensor does not fit its buffer");
    }
    ggml_backend_tensor_set(e.tensor, e.data, 0, ggml_nbytes(e.tensor));
  }
  return Status::Ok();
}

size_t LoadedGates::OutputSize(const Gates& gates, int64_t max_tokens) {
  const GateLayer& layer = gates.parts().layers.front();
  const int64_t in_parts = kGateOpTokens * GateParts(layer.output.weight.n_col);
  return std::max(max_tokens, in_parts) * layer.output.weight.n_row;
}

std::span<float> LoadedGates::LogBeta(int32_t layer, std::span<float> outputs,
                                      int64_t n_part) const {
  const std::vector<float>& bias = gates_->parts().layers[layer].output.bias;
  const size_t n_head = bias.size();
  const std::span<float> log_beta = outputs.first(outputs.size() / n_part);
  for (size_t i = 0; i < log_beta.size(); ++i) {
    const size_t token = i / n_head, head = i % n_head;
    float x = bias[head];
    for (int64_t part = 0; part < n_part; ++part) {
      x += outputs[(token * n_part + part) * n_head + head];
    }
    log_beta[i] = std::min(x, 0.0f) - std::log1p(std::exp(-std::abs(x)));
  }
  return log_beta;
}

}  // namespace kvbound
