#include "model/gate_op.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <numbers>

#include "ggml-cpu.h"
#include "kernels/dot_q8.h"

namespace kvbound {
namespace {

constexpr size_t kMaxRowBytes = size_t{32} << 10;  // of one column, on a thread's stack

template <size_t kBytes>
struct RowBuffer {
  alignas(64) std::array<std::byte, kBytes> bytes;
};

// Rows of a matrix times a column, by ggml's dot products but for q8_0.
class RowProduct {
 public:
  explicit RowProduct(const ggml_tensor* matrix)
      : matrix_(matrix), traits_(ggml_get_type_traits_cpu(matrix->type)) {}

  // `x` in the type that the dot product takes, kept in `buffer` if that is not f32.
  template <size_t kBytes>
  const void* Convert(const float* x, int64_t n, RowBuffer<kBytes>* buffer) const {
    if (traits_->vec_dot_type == GGML_TYPE_F32) return x;
    ggml_get_type_traits_cpu(traits_->vec_dot_type)->from_float(x, buffer->bytes.data(), n);
    return buffer->bytes.data();
  }

  // out[i] = elements [first, first + n) of row `row` + i times the n values at `x`.
  void Dot(int64_t row, int64_t n_row, int64_t first, int64_t n, const void* x, float* out) const {
    const size_t stride = matrix_->nb[1];
    const std::byte* at = static_cast<const std::byte*>(matrix_->data) + row * stride +
                          ggml_row_size(matrix_->type, first);
    if (matrix_->type == GGML_TYPE_Q8_0) {
      DotQ8(at, stride, static_cast<int32_t>(n_row), static_cast<const std::byte*>(x),
            static_cast<int32_t>(n / ggml_blck_size(GGML_TYPE_Q8_0)), out);
      return;
    }
    for (int64_t i = 0; i < n_row; ++i, at += stride) {
      traits_->vec_dot(static_cast<int>(n), &out[i], 0, at, 0, x, 0, 1);
    }
  }

 private:
  const ggml_tensor* matrix_;
  const ggml_type_traits_cpu* traits_;
};

float Activate(GateActivation activation, float x) {
  switch (activation) {
    case GateActivation::kSilu:
      return x / (1.0f + std::exp(-x));
    case GateActivation::kGelu:
      return 0.5f * x * (1.0f + std::erf(x / std::numbers::sqrt2_v<float>));
    case GateActivation::kRelu:
      return std::max(x, 0.0f);
  }
  return x;
}

template <GateActivation kActivation>
void Compute(ggml_tensor* dst, int thread, int n_thread, void* /*unused*/) {
  const ggml_tensor* x = dst->src[0];
  const ggml_tensor* hidden = dst->src[1];
  const auto* bias = static_cast<const float*>(dst->src[2]->data);
  const ggml_tensor* output = dst->src[3];
  const RowProduct hidden_product(hidden), output_product(output);
  const int64_t n_hidden = hidden->ne[1], n_head = output->ne[1], n_part = dst->ne[1];
  RowBuffer<kMaxRowBytes> column_buffer;
  for (int64_t token = 0; token < x->ne[1]; ++token) {
    const auto* x_row =
        reinterpret_cast<const float*>(static_cast<const std::byte*>(x->data) + token * x->nb[1]);
    const void* column = hidden_product.Convert(x_row, x->ne[0], &column_buffer);
    for (int64_t part = thread; part < n_part; part += n_thread) {
      const int64_t first = part * kGatePart;
      const int64_t n_unit = std::min(kGatePart, n_hidden - first);
      std::array<float, kGatePart> units;
      hidden_product.Dot(first, n_unit, 0, x->ne[0], column, units.data());
      for (int64_t i = 0; i < n_unit; ++i) {
        units[i] = Activate(kActivation, units[i] + bias[first + i]);
      }
      RowBuffer<kGatePart * sizeof(float)> unit_buffer;
      const void* converted = output_product.Convert(units.data(), n_unit, &unit_buffer);
      float* out = static_cast<float*>(dst->data) + (token * n_part + part) * n_head;
      output_product.Dot(0, n_head, first, n_unit, converted, out);
    }
  }
}

ggml_custom_op_t Operator(GateActivation activation) {
  switch (activation) {
    case GateActivation::kSilu:
      return Compute<GateActivation::kSilu>;
    case GateActivation::kGelu:
      return Compute<GateActivation::kGelu>;
    case GateActivation::kRelu:
      return Compute<GateActivation::kRelu>;
  }
  return nullptr;
}

}  // namespace

bool GateOpFits(const GateOpWeights& weights) {
  const ggml_type type = ggml_get_type_traits_cpu(weights.hidden->type)->vec_dot_type;
  return ggml_row_size(type, weights.hidden->ne[0]) <= kMaxRowBytes;
}

ggml_tensor* GateOp(ggml_context* context, const GateOpWeights& weights, GateActivation activation,
                    ggml_tensor* x) {
  std::array<ggml_tensor*, 4> args = {x, weights.hidden, weights.hidden_bias, weights.output};
  return ggml_custom_4d(context, GGML_TYPE_F32, weights.output->ne[1],
                        GateParts(weights.hidden->ne[1]), x->ne[1], 1, args.data(), args.size(),
                        Operator(activation), GGML_N_TASKS_MAX, nullptr);
}

}  // namespace kvbound
