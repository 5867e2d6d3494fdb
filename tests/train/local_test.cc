#include "train/local.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "testing/tiny_engine.h"

namespace kvbound::train {
namespace {

Sequence Pack(const std::vector<int64_t>& lengths) {
  std::vector<Tensor> positions, document;
  int64_t n = 0;
  for (size_t i = 0; i < lengths.size(); ++i) {
    positions.push_back(torch::arange(lengths[i]));
    document.push_back(torch::full({lengths[i]}, static_cast<int64_t>(i), torch::kLong));
    n += lengths[i];
  }
  const std::vector<Token> tokens = testing::TestTokens(static_cast<int32_t>(n), 1);
  Sequence sequence;
  sequence.tokens = torch::tensor(std::vector<int64_t>(tokens.begin(), tokens.end()));
  sequence.positions = torch::cat(positions);
  sequence.document = torch::cat(document);
  sequence.labels = sequence.tokens.clone();
  sequence.row_weight = torch::ones({n});
  return sequence;
}

struct Case {
  std::string name;
  CapacityForm form;
  CapacityScope scope;
};

class LocalObjectiveTest : public ::testing::TestWithParam<Case> {
 protected:
  LocalObjectiveTest() {
    auto base = BaseTransformer::Load(testing::MakeTinyModel().Write(), torch::kDouble);
    EXPECT_TRUE(base.ok()) << base.status();
    base_ = std::move(*base);
    sequence_ = Pack({23, 1, 2, 14});
    sequence_.row_weight.slice(0, 19, 23).fill_(3.0f);
    options_.memory = 5;
    options_.exempt = 2;
    options_.query_block = 8;
    options_.offset = 1;
    options_.form = GetParam().form;
    options_.scope = GetParam().scope;
  }

  // Gates that forget at visible rates.
  GateModule Gates(bool tied = false) const {
    GateShape shape;
    shape.n_layer = base_->hparams().n_layer;
    shape.n_embd = base_->hparams().n_embd;
    shape.n_kv_head = base_->hparams().n_kv_head;
    shape.n_hidden = 8;
    shape.tied_output = tied;
    GateModule gates(shape, 2, 5);
    torch::NoGradGuard no_grad;
    for (auto& parameter : gates.parameters()) {
      if (parameter.value.dim() == 2) parameter.value.mul_(15);
    }
    gates.ToDouble();
    return gates;
  }

  bool Uses(int64_t t) const {
    return sequence_.positions[t].item<int64_t>() > 0 &&
           (t % options_.stride == options_.offset || sequence_.row_weight[t].item<double>() > 1);
  }

  // The definition, token by token.
  struct Sums {
    double log = 0, weight = 0;
    std::vector<std::vector<double>> kept;  // [layer * head][used row]
  };

  void AddHead(const BaseTransformer::Heads& heads, const Tensor& log_beta, int64_t head,
               Sums* sums) const {
    const int64_t n_group = base_->hparams().n_group();
    const double scale = 1 / std::sqrt(static_cast<double>(base_->hparams().head_dim));
    std::vector<double>& kept = sums->kept.emplace_back();
    for (int64_t t = 0; t < sequence_.tokens.size(0); ++t) {
      if (!Uses(t)) continue;
      const int64_t position = sequence_.positions[t].item<int64_t>();
      const double weight = sequence_.row_weight[t].item<double>();
      double s = 0;
      for (int64_t g = 0; g < n_group; ++g) {
        double whole = 0, left = 0;
        for (int64_t p = 0; p <= position; ++p) {
          const int64_t i = t - position + p;
          const double logit =
              scale * heads.q[head * n_group + g][t].dot(heads.k[head][i]).item<double>();
          const double mass = std::exp(logit) * heads.v[head][i].norm().item<double>();
          const double rate = p < options_.exempt ? 0 : log_beta[head][i].item<double>();
          const double beta = std::exp(rate * static_cast<double>(position - p));
          whole += mass;
          left += mass * beta;
          if (g == 0 && p >= options_.exempt) s += beta;
        }
        sums->log -= weight * std::log(left / whole);
        sums->weight += weight;
      }
      kept.push_back(s);
    }
  }

  double Excess(double s, int64_t position) const {
    const double over = std::max(0.0, s - static_cast<double>(options_.memory));
    return options_.form == CapacityForm::kCode
               ? over / static_cast<double>(std::max<int64_t>(1, position - options_.memory))
               : over / static_cast<double>(position + 1);
  }

  double Capacity(const Sums& sums) const {
    std::vector<std::vector<double>> rows = sums.kept;
    if (options_.scope == CapacityScope::kGlobal) {
      std::vector<double> mean(rows[0].size());
      for (const auto& row : rows) {
        for (size_t i = 0; i < row.size(); ++i) mean[i] += row[i] / rows.size();
      }
      rows = {mean};
    }
    double sum = 0, positive = 0, all = 0;
    for (const auto& row : rows) {
      size_t i = 0;
      for (int64_t t = 0; t < sequence_.tokens.size(0); ++t) {
        if (!Uses(t)) continue;
        const double excess = Excess(row[i++], sequence_.positions[t].item<int64_t>());
        sum += excess;
        positive += excess > 0;
        all += 1;
      }
    }
    EXPECT_GT(positive, 0);
    return sum / (options_.form == CapacityForm::kCode ? positive : all);
  }

  std::unique_ptr<BaseTransformer> base_;
  Sequence sequence_;
  LocalOptions options_;
};

TEST_P(LocalObjectiveTest, EqualsTheDefinitionInPlainLoops) {
  GateModule gates = Gates();
  const LocalLoss loss = LocalObjective(*base_, gates, sequence_, options_);
  torch::NoGradGuard no_grad;
  Sums sums;
  Tensor x = base_->Embed(sequence_.tokens);
  for (int32_t layer = 0; layer < base_->hparams().n_layer; ++layer) {
    const Tensor normed = base_->AttentionInput(layer, x);
    const auto heads = base_->Project(layer, normed, sequence_.positions);
    const Tensor log_beta = gates.LogBeta(layer, normed);
    for (int64_t h = 0; h < base_->hparams().n_kv_head; ++h) AddHead(heads, log_beta, h, &sums);
    const int64_t n_group = base_->hparams().n_group();
    Tensor scores = torch::matmul(heads.q, heads.k.repeat_interleave(n_group, 0).transpose(1, 2)) /
                    std::sqrt(static_cast<double>(base_->hparams().head_dim));
    const Tensor seen = (sequence_.document.unsqueeze(1) == sequence_.document.unsqueeze(0)).tril();
    scores.masked_fill_(~seen, -INFINITY);
    const Tensor out = torch::matmul(scores.softmax(-1), heads.v.repeat_interleave(n_group, 0));
    x = base_->Finish(layer, x, out.permute({1, 0, 2}).flatten(1));
  }
  EXPECT_NEAR(loss.attention, sums.log / sums.weight, 1e-9 * sums.log / sums.weight);
  EXPECT_NEAR(loss.capacity, Capacity(sums), 1e-9);
  EXPECT_EQ(loss.total, loss.attention + loss.capacity);
}

TEST_P(LocalObjectiveTest, GradientIsTheFiniteDifference) {
  for (const bool tied : {false, true}) {
    GateModule gates = Gates(tied);
    options_.grad_scale = 0.5;
    LocalObjective(*base_, gates, sequence_, options_);
    std::vector<Tensor> grads;
    for (auto& parameter : gates.parameters()) grads.push_back(parameter.value.grad().clone());
    for (size_t p = 0; p < grads.size(); ++p) {
      Tensor flat;
      {
        torch::NoGradGuard no_grad;
        flat = gates.parameters()[p].value.detach().view({-1});
      }
      for (const int64_t i : {int64_t{0}, flat.numel() / 2, flat.numel() - 1}) {
        const double value = flat[i].item<double>();
        constexpr double kStep = 1e-6;
        flat[i] = value + kStep;
        const double above = LocalObjective(*base_, gates, sequence_, options_).total;
        flat[i] = value - kStep;
        const double below = LocalObjective(*base_, gates, sequence_, options_).total;
        flat[i] = value;
        const double expected = 0.5 * (above - below) / (2 * kStep);
        EXPECT_NEAR(grads[p].view({-1})[i].item<double>(), expected,
                    1e-6 * std::abs(expected) + 1e-9)
            << gates.parameters()[p].name << " " << i;
      }
    }
  }
}

TEST_P(LocalObjectiveTest, BlocksDoNotChangeIt) {
  GateModule gates = Gates();
  const double blocks = LocalObjective(*base_, gates, sequence_, options_).total;
  options_.query_block = 1000;
  EXPECT_NEAR(LocalObjective(*base_, gates, sequence_, options_).total, blocks, 1e-12);
}

TEST_P(LocalObjectiveTest, NothingToLearnFromLeavesGradientsAlone) {
  GateModule gates = Gates();
  const LocalLoss loss = LocalObjective(*base_, gates, Pack({1, 1, 1}), options_);
  EXPECT_EQ(loss.n_row, 0);
  EXPECT_EQ(loss.total, 0);
  for (const auto& parameter : gates.parameters()) EXPECT_FALSE(parameter.value.grad().defined());
}

TEST_P(LocalObjectiveTest, MemoryLongerThanEveryDocumentCostsNothing) {
  GateModule gates = Gates();
  options_.memory = 1000;
  const LocalLoss loss = LocalObjective(*base_, gates, sequence_, options_);
  EXPECT_EQ(loss.capacity, 0);
  EXPECT_TRUE(loss.finite());
  EXPECT_GT(loss.attention, 0);
}

INSTANTIATE_TEST_SUITE_P(
    Forms, LocalObjectiveTest,
    ::testing::Values(Case{"CodeLocal", CapacityForm::kCode, CapacityScope::kLocal},
                      Case{"PaperLocal", CapacityForm::kPaper, CapacityScope::kLocal},
                      Case{"CodeGlobal", CapacityForm::kCode, CapacityScope::kGlobal},
                      Case{"PaperGlobal", CapacityForm::kPaper, CapacityScope::kGlobal}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace kvbound::train
