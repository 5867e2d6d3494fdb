#include "train/layer_ops.h"

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>

#include <array>
#include <cmath>

namespace kvbound::train {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

// Rows of work below which another thread does not pay.
constexpr int64_t kGrainRows = 32;

// Independent partial sums, so that the compiler may vectorise.
constexpr int64_t kLanes = 16;

template <typename T>
T Dot(const T* a, const T* b, int64_t n) {
  std::array<T, kLanes> lanes{};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int64_t j = 0; j < kLanes; ++j) lanes[j] += a[i + j] * b[i + j];
  }
  T sum = 0;
  for (; i < n; ++i) sum += a[i] * b[i];
  for (const T lane : lanes) sum += lane;
  return sum;
}

class RmsNormFunction : public torch::autograd::Function<RmsNormFunction> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& input, const Tensor& weight,
                        double eps) {
    const Tensor x = input.contiguous();
    const int64_t n = x.size(-1);
    const int64_t n_rows = x.numel() / n;
    const Tensor y = torch::empty_like(x);
    const Tensor inverse = torch::empty({n_rows}, x.options());
    AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "RmsNorm", [&] {
      const auto* from = x.data_ptr<scalar_t>();
      const auto* w = weight.data_ptr<scalar_t>();
      auto* to = y.data_ptr<scalar_t>();
      auto* r = inverse.data_ptr<scalar_t>();
      at::parallel_for(0, n_rows, kGrainRows, [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row) {
          const scalar_t* a = from + row * n;
          scalar_t* b = to + row * n;
          const scalar_t mean = Dot(a, a, n) / static_cast<scalar_t>(n);
          const scalar_t scale = 1 / std::sqrt(mean + static_cast<scalar_t>(eps));
          r[row] = scale;
          for (int64_t i = 0; i < n; ++i) b[i] = a[i] * scale * w[i];
        }
      });
    });
    context->save_for_backward({x, inverse, weight});
    return y;
  }

  // With g' = g * weight and u = x / rms: (g' - u mean(g' u)) / rms.
  static tensor_list backward(AutogradContext* context, tensor_list grads) {
    const auto saved = context->get_saved_variables();
    const Tensor& x = saved[0];
    const Tensor grad = grads[0].contiguous();
    const Tensor out = torch::empty_like(x);
    const int64_t n = x.size(-1);
    AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "RmsNormBackward", [&] {
      const auto* from = x.data_ptr<scalar_t>();
      const auto* r = saved[1].data_ptr<scalar_t>();
      const auto* w = saved[2].data_ptr<scalar_t>();
      const auto* g = grad.data_ptr<scalar_t>();
      auto* to = out.data_ptr<scalar_t>();
      at::parallel_for(0, x.numel() / n, kGrainRows, [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row) {
          const scalar_t* a = from + row * n;
          const scalar_t* gr = g + row * n;
          scalar_t* b = to + row * n;
          for (int64_t i = 0; i < n; ++i) b[i] = gr[i] * w[i];
          const scalar_t scale = r[row];
          const scalar_t mean = Dot(b, a, n) / static_cast<scalar_t>(n);
          const scalar_t along = mean * scale * scale;
          for (int64_t i = 0; i < n; ++i) b[i] = scale * (b[i] - a[i] * along);
        }
      });
    });
    return {out, Tensor(), Tensor()};
  }
};

class SwiGluFunction : public torch::autograd::Function<SwiGluFunction> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& gate_up) {
    context->save_for_backward({gate_up});
    const int64_t n = gate_up.size(1) / 2;
    return torch::silu(gate_up.narrow(1, 0, n)).mul_(gate_up.narrow(1, n, n));
  }

  static tensor_list backward(AutogradContext* context, tensor_list grads) {
    const Tensor gate_up = context->get_saved_variables()[0];
    const int64_t n = gate_up.size(1) / 2;
    const Tensor gate = gate_up.narrow(1, 0, n);
    const Tensor out = torch::empty_like(gate_up);
    Tensor of_gate = out.narrow(1, 0, n);
    Tensor of_up = out.narrow(1, n, n);
    at::mul_out(of_up, grads[0], gate_up.narrow(1, n, n));
    at::silu_backward_out(of_gate, of_up, gate);
    at::mul_out(of_up, grads[0], torch::silu(gate));
    return {out};
  }
};

// Where a pair lies in a head.
struct Pairs {
  int64_t n;       // n_rot / 2
  int64_t step;    // from a pair's first element to the next pair's
  int64_t second;  // from a pair's first element to its second
};

Pairs PairsOf(const RopeTable& table) {
  const int64_t n = table.cos.size(1);
  return table.neox ? Pairs{n, 1, n} : Pairs{n, 2, 1};
}

// One head's row turned by (cos, sign * sin); the rest is copied.
template <typename T>
void RotateRow(const T* from, T* to, int64_t head_dim, const Pairs& pairs, const T* cos,
               const T* sin, T sign) {
  for (int64_t j = 0; j < pairs.n; ++j) {
    const int64_t at = j * pairs.step;
    const T a = from[at];
    const T b = from[at + pairs.second];
    const T s = sign * sin[j];
    to[at] = a * cos[j] - b * s;
    to[at + pairs.second] = a * s + b * cos[j];
  }
  for (int64_t j = 2 * pairs.n; j < head_dim; ++j) to[j] = from[j];
}

struct HeadRows {
  Tensor rows;   // [T, n_head * head_dim], columns contiguous
  Tensor heads;  // [n_head, T, head_dim], contiguous
};

void Rotate(const HeadRows& t, const RopeTable& table, bool back) {
  const int64_t n_head = t.heads.size(0);
  const int64_t n_token = t.heads.size(1);
  const int64_t head_dim = t.heads.size(2);
  const int64_t stride = t.rows.stride(0);
  const Pairs pairs = PairsOf(table);
  AT_DISPATCH_FLOATING_TYPES(t.heads.scalar_type(), "RotateHeads", [&] {
    auto* rows = t.rows.data_ptr<scalar_t>();
    auto* heads = t.heads.data_ptr<scalar_t>();
    const auto* cos = table.cos.data_ptr<scalar_t>();
    const auto* sin = table.sin.data_ptr<scalar_t>();
    at::parallel_for(0, n_token, kGrainRows, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        for (int64_t h = 0; h < n_head; ++h) {
          scalar_t* row = rows + i * stride + h * head_dim;
          scalar_t* head = heads + (h * n_token + i) * head_dim;
          const scalar_t* c = cos + i * pairs.n;
          const scalar_t* s = sin + i * pairs.n;
          if (back) {
            RotateRow<scalar_t>(head, row, head_dim, pairs, c, s, -1);
          } else {
            RotateRow<scalar_t>(row, head, head_dim, pairs, c, s, 1);
          }
        }
      }
    });
  });
}

class RotateFunction : public torch::autograd::Function<RotateFunction> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& rows, int64_t head_dim,
                        const Tensor& cos, const Tensor& sin, bool neox) {
    context->save_for_backward({cos, sin});
    context->saved_data["neox"] = neox;
    const int64_t n_head = rows.size(1) / head_dim;
    const Tensor heads = torch::empty({n_head, rows.size(0), head_dim}, rows.options());
    Rotate({rows, heads}, {cos, sin, neox}, false);
    return heads;
  }

  // Rotation is orthogonal up to the table's magnitude, which the table carries both ways.
  static tensor_list backward(AutogradContext* context, tensor_list grads) {
    const auto saved = context->get_saved_variables();
    const Tensor heads = grads[0].contiguous();
    const Tensor rows =
        torch::empty({heads.size(1), heads.size(0) * heads.size(2)}, heads.options());
    Rotate({rows, heads}, {saved[0], saved[1], context->saved_data["neox"].toBool()}, true);
    return {rows, Tensor(), Tensor(), Tensor(), Tensor()};
  }
};

}  // namespace

Tensor RmsNorm(const Tensor& x, const Tensor& weight, double eps) {
  return RmsNormFunction::apply(x, weight, eps);
}

Tensor SwiGlu(const Tensor& gate_up) { return SwiGluFunction::apply(gate_up); }

Tensor RotateHeads(const Tensor& rows, int64_t head_dim, const RopeTable& table) {
  return RotateFunction::apply(rows.stride(1) == 1 ? rows : rows.contiguous(), head_dim, table.cos,
                               table.sin, table.neox);
}

}  // namespace kvbound::train
