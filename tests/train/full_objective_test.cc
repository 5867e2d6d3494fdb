#include "train/full_objective.h"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "testing/tiny_engine.h"

namespace kvbound::train {
namespace {

Sequence Pack(const std::vector<int64_t>& lengths, uint64_t seed = 1) {
  std::vector<Tensor> positions;
  std::vector<Tensor> document;
  int64_t n = 0;
  for (size_t i = 0; i < lengths.size(); ++i) {
    positions.push_back(torch::arange(lengths[i]));
    document.push_back(torch::full({lengths[i]}, static_cast<int64_t>(i), torch::kLong));
    n += lengths[i];
  }
  const std::vector<Token> tokens = testing::TestTokens(static_cast<int32_t>(n), seed);
  Sequence sequence;
  sequence.tokens = torch::tensor(std::vector<int64_t>(tokens.begin(), tokens.end()));
  sequence.positions = torch::cat(positions);
  sequence.document = torch::cat(document);
  sequence.labels = sequence.tokens.clone();
  sequence.row_weight = torch::ones({n});
  return sequence;
}

class FullObjectiveTest : public ::testing::Test {
 protected:
  void Load(torch::Dtype dtype) {
    testing::TinyModelOptions options;
    auto base = BaseTransformer::Load(testing::MakeTinyModel(options).Write(), dtype);
    ASSERT_TRUE(base.ok()) << base.status();
    base_ = std::move(*base);
  }

  // Gates that forget at visible rates.
  GateModule Gates(bool tied = false) const {
    GateShape shape;
    shape.n_layer = base_->hparams().n_layer;
    shape.n_embd = base_->hparams().n_embd;
    shape.n_kv_head = base_->hparams().n_kv_head;
    shape.n_hidden = 8;
    shape.n_hidden_layer = tied ? 2 : 1;
    shape.tied_output = tied;
    GateModule gates(shape, 2, 5);
    torch::NoGradGuard no_grad;
    for (auto& parameter : gates.parameters()) {
      if (parameter.value.dim() == 2) parameter.value.mul_(15);
    }
    if (base_->dtype() == torch::kDouble) gates.ToDouble();
    return gates;
  }

  static std::vector<Tensor> Grads(GateModule& gates) {
    std::vector<Tensor> grads;
    for (auto& parameter : gates.parameters()) {
      EXPECT_TRUE(parameter.value.grad().defined()) << parameter.name;
      grads.push_back(parameter.value.grad().clone());
      parameter.value.mutable_grad() = Tensor();
    }
    return grads;
  }

  std::unique_ptr<BaseTransformer> base_;
};

FullOptions SmallOptions() {
  FullOptions options;
  options.memory = 6;
  options.logit_rows = 7;
  return options;
}

// Every parameter's gradient along a random direction, packed documents included.
TEST_F(FullObjectiveTest, GradientIsThatOfFiniteDifferences) {
  Load(torch::kDouble);
  torch::manual_seed(7);
  for (const bool global : {false, true}) {
    FullOptions options = SmallOptions();
    options.exempt = global ? 2 : 0;
    options.form = global ? CapacityForm::kPaper : CapacityForm::kCode;
    options.scope = global ? CapacityScope::kGlobal : CapacityScope::kLocal;
    const Sequence sequence = Pack({23, 1, 17});
    GateModule gates = Gates(global);
    FullObjective(*base_, gates, sequence, options);
    const std::vector<Tensor> grads = Grads(gates);
    options.backward = false;
    for (size_t i = 0; i < grads.size(); ++i) {
      Tensor& value = gates.parameters()[i].value;
      const Tensor direction = torch::randn_like(value);
      const double step = 1e-5;
      const auto at = [&](double distance) {
        torch::NoGradGuard no_grad;
        value.add_(direction, distance);
        const double total = FullObjective(*base_, gates, sequence, options).total;
        value.sub_(direction, distance);
        return total;
      };
      const double slope = (at(step) - at(-step)) / (2 * step);
      const double expected = (grads[i] * direction).sum().item<double>();
      EXPECT_NEAR(slope, expected, 1e-6 * std::max(1e-2, std::abs(expected)))
          << gates.parameters()[i].name;
    }
  }
}

TEST_F(FullObjectiveTest, RecomputedLayersGiveTheSameGradients) {
  Load(torch::kFloat);
  const Sequence sequence = Pack({150, 60});
  FullOptions options = SmallOptions();
  GateModule gates = Gates();
  options.checkpoint = false;
  const FullLoss kept = FullObjective(*base_, gates, sequence, options);
  const std::vector<Tensor> expected = Grads(gates);
  options.checkpoint = true;
  options.grad_scale = 0.5;
  const FullLoss recomputed = FullObjective(*base_, gates, sequence, options);
  EXPECT_EQ(kept.total, recomputed.total);
  const std::vector<Tensor> found = Grads(gates);
  for (size_t i = 0; i < found.size(); ++i) {
    EXPECT_TRUE(torch::allclose(found[i] * 2, expected[i], 1e-4, 1e-8));
  }
}

// A document packed behind another gives what it gives alone.
TEST_F(FullObjectiveTest, PackedDocumentsDoNotSeeEachOther) {
  Load(torch::kFloat);
  const Sequence both = Pack({140, 50});
  const GateModule gates = Gates();
  const Tensor logits = StudentLogits(*base_, gates, both);
  Sequence second = Pack({50});
  second.tokens = both.tokens.slice(0, 140).clone();
  EXPECT_TRUE(
      torch::allclose(logits.slice(0, 140), StudentLogits(*base_, gates, second), 1e-4, 1e-5));
}

TEST_F(FullObjectiveTest, MeansAreOverLabelledTokens) {
  Load(torch::kFloat);
  Sequence sequence = Pack({10, 1, 8});
  GateModule gates = Gates();
  FullOptions options = SmallOptions();
  options.backward = false;
  FullLoss loss = FullObjective(*base_, gates, sequence, options);
  EXPECT_EQ(loss.n_row, 19);
  EXPECT_EQ(loss.n_target, 16);  // no first token of a document
  sequence.labels.slice(0, 0, 5).fill_(kIgnoredLabel);
  loss = FullObjective(*base_, gates, sequence, options);
  EXPECT_EQ(loss.n_row, 14);
  EXPECT_EQ(loss.n_target, 12);
}

TEST_F(FullObjectiveTest, NoLabelsGiveExactlyZero) {
  Load(torch::kFloat);
  Sequence sequence = Pack({1, 1, 1, 30});
  sequence.labels.fill_(kIgnoredLabel);
  GateModule gates = Gates();
  FullOptions options = SmallOptions();
  options.capacity_weight = 0;
  const FullLoss loss = FullObjective(*base_, gates, sequence, options);
  EXPECT_TRUE(loss.no_target());
  EXPECT_EQ(loss.total, 0);
  for (const Tensor& grad : Grads(gates)) EXPECT_TRUE((grad == 0).all().item<bool>());
}

TEST_F(FullObjectiveTest, ALossThatIsNotFiniteLeavesGradientsAlone) {
  Load(torch::kFloat);
  GateModule gates = Gates();
  {
    torch::NoGradGuard no_grad;
    gates.parameters()[0].value.fill_(std::nan(""));
  }
  const FullLoss loss = FullObjective(*base_, gates, Pack({20}), SmallOptions());
  EXPECT_FALSE(loss.finite());
  for (const auto& parameter : gates.parameters()) EXPECT_FALSE(parameter.value.grad().defined());
}

// With gates that never forget the student is the teacher.
TEST_F(FullObjectiveTest, WithoutForgettingNothingDiverges) {
  Load(torch::kFloat);
  GateModule gates = Gates();
  {
    torch::NoGradGuard no_grad;
    for (auto& parameter : gates.parameters()) {
      parameter.value.fill_(parameter.value.size(0) == 2 && parameter.value.dim() == 1 ? 60 : 0);
    }
  }
  FullOptions options = SmallOptions();
  options.memory = 100;
  const FullLoss loss = FullObjective(*base_, gates, Pack({40}), options);
  EXPECT_LT(loss.kl, 1e-7);
  EXPECT_EQ(loss.capacity, 0);
}

}  // namespace
}  // namespace kvbound::train
