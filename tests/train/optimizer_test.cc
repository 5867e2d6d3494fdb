#include "train/optimizer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace kvbound::train {
namespace {

std::vector<GateModule::Parameter> OneWeight(double value) {
  return {{"w", torch::full({2, 2}, value).requires_grad_()}};
}

TEST(AdamWTest, StepsAsThePaperSays) {
  auto parameters = OneWeight(0.5);
  AdamOptions options;
  options.weight_decay = 0.1;
  AdamW optimizer(&parameters, options);
  double w = 0.5, m = 0, v = 0;
  for (int t = 1; t <= 5; ++t) {
    const double g = 0.3 * t - 1;
    parameters[0].value.mutable_grad() = torch::full({2, 2}, g);
    optimizer.Step(0.01);
    m = 0.9 * m + 0.1 * g;
    v = 0.999 * v + 0.001 * g * g;
    w -= 0.01 * 0.1 * w;
    w -= 0.01 * (m / (1 - std::pow(0.9, t))) / (std::sqrt(v / (1 - std::pow(0.999, t))) + 1e-8);
    EXPECT_NEAR(parameters[0].value[1][1].item<double>(), w, 1e-6) << t;
  }
  EXPECT_EQ(parameters[0].value.grad().abs().sum().item<float>(), 0);
}

// In bf16 the step of 1e-4 from 1.0 would vanish.
TEST(AdamWTest, SmallUpdatesOfLargeWeightsCount) {
  auto parameters = OneWeight(1.0);
  AdamW optimizer(&parameters, {});
  parameters[0].value.mutable_grad() = torch::full({2, 2}, 1e-3);
  optimizer.Step(1e-4);
  EXPECT_NEAR(parameters[0].value[0][0].item<float>(), 1.0f - 1e-4f, 1e-7f);
  EXPECT_EQ(optimizer.first()[0].scalar_type(), torch::kFloat);
}

TEST(AdamWTest, RestoredMomentsGoOnAlike) {
  auto parameters = OneWeight(1.0);
  AdamW optimizer(&parameters, {});
  const auto step = [](std::vector<GateModule::Parameter>* p, AdamW* o, double g) {
    (*p)[0].value.mutable_grad() = torch::full({2, 2}, g);
    o->Step(1e-2);
  };
  step(&parameters, &optimizer, 0.5);
  auto copy = OneWeight(parameters[0].value[0][0].item<double>());
  AdamW other(&copy, {});
  other.Restore(optimizer.n_step(), {optimizer.first()[0].clone()},
                {optimizer.second()[0].clone()});
  step(&parameters, &optimizer, -0.2);
  step(&copy, &other, -0.2);
  EXPECT_TRUE(torch::equal(parameters[0].value, copy[0].value));
}

TEST(ClipGradientsTest, ScalesTheCommonNorm) {
  auto parameters = OneWeight(1.0);
  parameters.push_back({"b", torch::zeros({1}).requires_grad_()});
  parameters[0].value.mutable_grad() = torch::full({2, 2}, 3.0);
  parameters[1].value.mutable_grad() = torch::full({1}, 8.0);
  EXPECT_NEAR(ClipGradients(parameters, 1.0), 10.0, 1e-6);
  EXPECT_NEAR(ClipGradients(parameters, 2.0), 1.0, 1e-6);
  EXPECT_NEAR(parameters[1].value.grad().item<double>(), 0.8, 1e-6);
  parameters[1].value.mutable_grad().fill_(NAN);
  EXPECT_TRUE(std::isnan(ClipGradients(parameters, 1.0)));
}

TEST(ScheduleTest, RisesThenFallsToTheFloor) {
  Schedule schedule{100, 10, 1.0, 0.1};
  EXPECT_DOUBLE_EQ(schedule.At(0), 0.1);
  EXPECT_DOUBLE_EQ(schedule.At(9), 1.0);
  EXPECT_DOUBLE_EQ(schedule.At(10), 1.0);
  EXPECT_NEAR(schedule.At(55), 0.55, 1e-9);
  EXPECT_NEAR(schedule.At(100), 0.1, 1e-9);
  for (int64_t step = 11; step < 100; ++step) EXPECT_LT(schedule.At(step), schedule.At(step - 1));
}

}  // namespace
}  // namespace kvbound::train
