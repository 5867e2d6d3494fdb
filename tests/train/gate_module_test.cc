#include "train/gate_module.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "testing/paths.h"

namespace kvbound::train {
namespace {

// Numbers of a CSV file below its head line.
std::vector<std::vector<double>> ReadCsv(const std::filesystem::path& path) {
  std::ifstream in(path);
  std::vector<std::vector<double>> rows;
  std::string line;
  std::getline(in, line);
  while (std::getline(in, line)) {
    std::vector<double> row;
    std::stringstream cells(line);
    for (std::string cell; std::getline(cells, cell, ',');) {
      row.push_back(std::strtod(cell.c_str(), nullptr));
    }
    rows.push_back(row);
  }
  return rows;
}

std::filesystem::path Case(const char* name) {
  return testing::SharedDir() / "cases" / "open" / "train" / name;
}

double RelativeError(double found, double expected) {
  return std::abs(found - expected) / std::abs(expected);
}

TEST(LogSigmoidTest, KeepsValueAndDerivativeOfSaturatedGates) {
  const std::filesystem::path path = Case("29-log-sigmoid.csv");
  KVBOUND_SKIP_WITHOUT(path);
  const auto rows = ReadCsv(path);
  ASSERT_EQ(rows.size(), 17u);
  for (const std::vector<double>& row : rows) {
    const Tensor x = torch::full({1}, row[0], torch::kFloat).requires_grad_(true);
    const Tensor y = LogSigmoid(x);
    y.backward();
    const double value = y.item<double>();
    const double slope = x.grad().item<double>();
    if (row[0] <= 87) {
      EXPECT_LT(RelativeError(value, row[1]), 1e-6) << "x = " << row[0];
      EXPECT_LT(RelativeError(slope, row[2]), 1e-6) << "x = " << row[0];
    } else if (row[0] <= 103 && slope != 0) {  // denormals, where they are not flushed
      EXPECT_LT(std::abs(slope - row[2]), 2e-45 + 1e-6 * row[2]) << "x = " << row[0];
    }
    EXPECT_GE(slope, 0);
    EXPECT_LE(value, 0);
  }
}

// What the decay of a gate's output is: through log beta it is exact, through a rounded beta not.
TEST(LogSigmoidTest, DecaysExactlyWhereBetaRoundsToOne) {
  const std::filesystem::path path = Case("29-bf16-beta.csv");
  KVBOUND_SKIP_WITHOUT(path);
  const auto rows = ReadCsv(path);
  ASSERT_FALSE(rows.empty());
  for (const std::vector<double>& row : rows) {
    if (row[2] < 1e-37) continue;  // not a normal f32 number
    const double logit = std::log(row[0] / (1 - row[0]));
    const Tensor log_beta = LogSigmoid(torch::full({1}, logit, torch::kFloat));
    const double decay = (log_beta * row[1]).exp().item<double>();
    // The exponent's relative error is f32's: of the decay it is as many times larger as the
    // exponent is.
    EXPECT_LT(RelativeError(decay, row[2]), 1e-6 * (1 + std::abs(std::log(row[2]))))
        << row[0] << " after " << row[1];
  }
}

GateShape SmallShape() {
  GateShape shape;
  shape.n_layer = 3;
  shape.n_embd = 12;
  shape.n_kv_head = 2;
  shape.n_hidden = 8;
  return shape;
}

TEST(GateModuleTest, StartsWithTheSameBitsEverywhere) {
  const GateModule module(SmallShape(), 6, 17);
  const GateModule again(SmallShape(), 6, 17);
  const GateModule other(SmallShape(), 6, 18);
  ASSERT_EQ(module.parameters().size(), 12u);
  EXPECT_EQ(module.parameters()[0].name, "layers.0.linear1.weight");
  EXPECT_EQ(module.parameters()[11].name, "layers.2.bias");
  for (size_t i = 0; i < module.parameters().size(); ++i) {
    EXPECT_TRUE(torch::equal(module.parameters()[i].value, again.parameters()[i].value));
  }
  EXPECT_FALSE(torch::equal(module.parameters()[0].value, other.parameters()[0].value));
  EXPECT_TRUE((module.parameters()[1].value == 0).all().item<bool>());
  EXPECT_TRUE((module.parameters()[3].value == 6).all().item<bool>());
}

TEST(GateModuleTest, StartsNearTheStatedDeviation) {
  GateShape shape = SmallShape();
  shape.n_embd = 300;
  shape.n_hidden = 100;
  const GateModule module(shape, 6, 1);
  const Tensor& weight = module.parameters()[0].value;
  EXPECT_NEAR(weight.std().item<double>(), 0.02, 0.0005);
  EXPECT_NEAR(weight.mean().item<double>(), 0, 0.0005);
}

// One hidden linear, two, and a tied output: what Gates hold and what training holds agree.
TEST(GateModuleTest, SurvivesTheWayThroughGates) {
  for (const int variant : {0, 1, 2}) {
    GateShape shape = SmallShape();
    shape.n_hidden_layer = variant == 0 ? 1 : 2;
    shape.tied_output = variant == 2;
    const GateModule module(shape, 4, 3);
    Gates::Parts parts;
    parts.base.n_layer = shape.n_layer;
    parts.base.n_embd = shape.n_embd;
    parts.base.n_kv_head = shape.n_kv_head;
    parts.tied_output = shape.tied_output;
    parts.layers = module.ToLayers();
    const auto gates = Gates::Make(std::move(parts));
    ASSERT_TRUE(gates.ok()) << gates.status();
    const auto back = GateModule::FromGates(**gates);
    ASSERT_TRUE(back.ok()) << back.status();
    ASSERT_EQ(back->parameters().size(), module.parameters().size());
    for (size_t i = 0; i < module.parameters().size(); ++i) {
      EXPECT_EQ(back->parameters()[i].name, module.parameters()[i].name);
      EXPECT_TRUE(torch::equal(back->parameters()[i].value, module.parameters()[i].value));
    }
    const Tensor x = torch::ones({5, shape.n_embd});
    EXPECT_TRUE(torch::equal(back->LogBeta(1, x), module.LogBeta(1, x)));
    EXPECT_EQ(module.LogBeta(1, x).sizes(), (std::vector<int64_t>{2, 5}));
  }
}

TEST(GateModuleTest, LogBetaStaysF32BehindBf16States) {
  const GateModule module(SmallShape(), 18, 3);
  const Tensor x = torch::ones({5, 12}, torch::kBFloat16);
  const Tensor log_beta = module.LogBeta(0, x);
  EXPECT_EQ(log_beta.scalar_type(), torch::kFloat);
  EXPECT_TRUE((log_beta < 0).all().item<bool>());
  log_beta.sum().backward();
  EXPECT_GT(module.parameters()[3].value.grad().abs().min().item<double>(), 0);
}

}  // namespace
}  // namespace kvbound::train
