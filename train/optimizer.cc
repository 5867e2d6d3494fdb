#include "train/optimizer.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

namespace kvbound::train {

AdamW::AdamW(std::vector<GateModule::Parameter>* parameters, const AdamOptions& options)
    : parameters_(parameters), options_(options) {
  for (const GateModule::Parameter& parameter : *parameters) {
    first_.push_back(torch::zeros_like(parameter.value.detach()));
    second_.push_back(torch::zeros_like(parameter.value.detach()));
  }
}

void AdamW::Step(double learning_rate) {
  const torch::NoGradGuard no_grad;
  ++n_step_;
  const double correct1 = 1 - std::pow(options_.beta1, n_step_);
  const double correct2 = 1 - std::pow(options_.beta2, n_step_);
  for (size_t i = 0; i < parameters_->size(); ++i) {
    Tensor& value = (*parameters_)[i].value;
    Tensor& grad = value.mutable_grad();
    if (!grad.defined()) continue;
    first_[i].mul_(options_.beta1).add_(grad, 1 - options_.beta1);
    second_[i].mul_(options_.beta2).addcmul_(grad, grad, 1 - options_.beta2);
    if (options_.weight_decay > 0 && value.dim() > 1) {
      value.mul_(1 - learning_rate * options_.weight_decay);
    }
    const Tensor deviation = second_[i].sqrt().div_(std::sqrt(correct2)).add_(options_.epsilon);
    value.addcdiv_(first_[i], deviation, -learning_rate / correct1);
    grad.zero_();
  }
}

void AdamW::Restore(int64_t n_step, std::vector<Tensor> first, std::vector<Tensor> second) {
  n_step_ = n_step;
  first_ = std::move(first);
  second_ = std::move(second);
}

double ClipGradients(const std::vector<GateModule::Parameter>& parameters, double max_norm) {
  const torch::NoGradGuard no_grad;
  double squares = 0;
  for (const GateModule::Parameter& parameter : parameters) {
    const Tensor& grad = parameter.value.grad();
    if (grad.defined()) squares += std::pow(grad.norm().item<double>(), 2);
  }
  const double norm = std::sqrt(squares);
  if (max_norm > 0 && std::isfinite(norm) && norm > max_norm) {
    for (const GateModule::Parameter& parameter : parameters) {
      Tensor grad = parameter.value.grad();
      if (grad.defined()) grad.mul_(max_norm / norm);
    }
  }
  return norm;
}

double Schedule::At(int64_t step) const {
  if (step < n_warmup) {
    return peak * static_cast<double>(step + 1) / static_cast<double>(n_warmup);
  }
  const double span = static_cast<double>(std::max<int64_t>(n_step - n_warmup, 1));
  const double progress = std::min(static_cast<double>(step - n_warmup) / span, 1.0);
  return floor + (peak - floor) * 0.5 * (1 + std::cos(std::numbers::pi * progress));
}

}  // namespace kvbound::train
