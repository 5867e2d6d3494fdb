#include "train/losses.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "testing/paths.h"
#include "train/sequence.h"

namespace kvbound::train {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

Tensor LogitsOf(const nlohmann::json& rows) {
  std::vector<Tensor> tensors;
  for (const auto& row : rows) {
    std::vector<float> values;
    for (const auto& x : row) {
      values.push_back(x.is_string() ? -std::numeric_limits<float>::infinity() : x.get<float>());
    }
    tensors.push_back(torch::tensor(values));
  }
  return torch::stack(tensors);
}

Tensor NoKl(int64_t n) { return torch::zeros({n}, torch::kBool); }

TEST(LogitLossesTest, AgreesWithTheVectors) {
  const auto path = testing::SharedDir() / "cases" / "open" / "train" / "27-loss-vectors.jsonl";
  KVBOUND_SKIP_WITHOUT(path);
  std::ifstream in(path);
  int n_case = 0;
  for (std::string line; std::getline(in, line);) {
    const auto c = nlohmann::json::parse(line);
    if (!c.contains("logits")) continue;
    ++n_case;
    const Tensor logits = LogitsOf(c["logits"]);
    const Tensor labels = torch::tensor(c["labels"].get<std::vector<int64_t>>());
    const LogitLoss loss = LogitLosses(logits, Tensor(), labels, NoKl(labels.size(0)), 1, 1);
    EXPECT_EQ(loss.n_ce, c["counted"].get<int64_t>()) << line;
    EXPECT_NEAR(loss.ce_sum / std::max<int64_t>(1, loss.n_ce), c["ce"].get<double>(), 1e-6) << line;
    if (!c.contains("grad")) continue;
    EXPECT_LT((loss.grad - LogitsOf(c["grad"])).abs().max().item<double>(), 1e-6) << line;
  }
  EXPECT_EQ(n_case, 3);
}

// The mean of several documents is over tokens: sums and counts add up.
TEST(LogitLossesTest, AddsUpOverBlocks) {
  torch::manual_seed(1);
  const Tensor student = torch::randn({9, 50});
  const Tensor teacher = torch::randn({9, 50});
  const Tensor labels = torch::tensor({1, 2, -100, 4, 5, -100, 7, 8, 9}, torch::kLong);
  const Tensor use_kl = labels != kIgnoredLabel;
  const LogitLoss all = LogitLosses(student, teacher, labels, use_kl, 0.5, 0.25);
  double kl = 0;
  double ce = 0;
  for (int64_t i = 0; i < 9; ++i) {
    const auto at = [&](const Tensor& x) { return x.slice(0, i, i + 1); };
    const LogitLoss one = LogitLosses(at(student), at(teacher), at(labels), at(use_kl), 0.5, 0.25);
    kl += one.kl_sum;
    ce += one.ce_sum;
    EXPECT_TRUE(torch::allclose(one.grad, at(all.grad), 1e-5, 1e-7));
  }
  EXPECT_NEAR(all.kl_sum, kl, 1e-4);
  EXPECT_NEAR(all.ce_sum, ce, 1e-4);
  EXPECT_EQ(all.n_ce, 7);
  EXPECT_EQ(all.n_kl, 7);
}

TEST(LogitLossesTest, GradientIsThatOfAutograd) {
  torch::manual_seed(2);
  const Tensor student = torch::randn({6, 30}, torch::kDouble).requires_grad_(true);
  const Tensor teacher = torch::randn({6, 30}, torch::kDouble);
  const Tensor labels = torch::tensor({1, 2, -100, 4, 5, 3}, torch::kLong);
  const Tensor use_kl = torch::tensor({1, 0, 1, 1, 0, 1}).to(torch::kBool);
  const LogitLoss loss = LogitLosses(student, teacher, labels, use_kl, 0.5, 0.25);
  const Tensor log_student = torch::log_softmax(student, -1);
  const Tensor log_teacher = torch::log_softmax(teacher, -1);
  const Tensor kl =
      ((log_teacher.exp() * (log_teacher - log_student)).sum(-1) * use_kl.to(torch::kDouble)).sum();
  const Tensor ce = torch::nll_loss(log_student, labels, {}, at::Reduction::Sum, kIgnoredLabel);
  (0.5 * kl + 0.25 * ce).backward();
  EXPECT_NEAR(loss.kl_sum, kl.item<double>(), 1e-10);
  EXPECT_NEAR(loss.ce_sum, ce.item<double>(), 1e-10);
  EXPECT_TRUE(torch::allclose(loss.grad, student.grad(), 1e-10, 1e-12));
}

// A row that counts in nothing has gradient 0 even where its logits are no numbers; a logit of
// -inf on both sides is no NaN.
TEST(LogitLossesTest, KeepsNanAndInfinityOut) {
  Tensor student = torch::zeros({2, 4});
  student[0].fill_(std::nan(""));
  student[1][0] = -kInfinity;
  const Tensor teacher = student.clone();
  const Tensor labels = torch::tensor({-100, 2}, torch::kLong);
  const LogitLoss loss = LogitLosses(student, teacher, labels, labels != kIgnoredLabel, 1, 1);
  EXPECT_EQ(loss.kl_sum, 0);
  EXPECT_NEAR(loss.ce_sum, std::log(3.0), 1e-6);
  EXPECT_TRUE((loss.grad[0] == 0).all().item<bool>());
  EXPECT_TRUE(loss.grad.isfinite().all().item<bool>());
  EXPECT_EQ(loss.grad[1][0].item<float>(), 0);
}

struct Packed {
  Tensor positions;
  Tensor document;
};

Packed Pack(const std::vector<int64_t>& lengths) {
  std::vector<Tensor> positions;
  std::vector<Tensor> document;
  for (size_t i = 0; i < lengths.size(); ++i) {
    positions.push_back(torch::arange(lengths[i]));
    document.push_back(torch::full({lengths[i]}, static_cast<int64_t>(i), torch::kLong));
  }
  return {torch::cat(positions), torch::cat(document)};
}

// By the definition, over the whole square.
Tensor PlainSums(const Tensor& log_beta, const Packed& packed, int64_t exempt) {
  const Tensor t = packed.positions.unsqueeze(1);
  const Tensor i = packed.positions.unsqueeze(0);
  const Tensor seen =
      (t >= i)
          .logical_and(i >= exempt)
          .logical_and(packed.document.unsqueeze(1) == packed.document.unsqueeze(0));
  const Tensor decayed = ((t - i).clamp_min(0) * log_beta.unsqueeze(1)).exp();
  return (decayed * seen.to(torch::kDouble)).sum(2);
}

TEST(RetentionSumTest, EqualsTheDefinitionAndItsGradient) {
  torch::manual_seed(3);
  for (const int64_t exempt : {0, 4}) {
    for (const auto& lengths : {std::vector<int64_t>{300}, {1, 2, 129, 1, 200, 3}, {128, 128}}) {
      const Packed packed = Pack(lengths);
      const int64_t n = packed.positions.size(0);
      const Tensor x = -torch::rand({3, n}, torch::kDouble).pow(4).requires_grad_(false);
      const Tensor ours = x.clone().requires_grad_(true);
      const Tensor plain = x.clone().requires_grad_(true);
      const Tensor sums = RetentionSum(ours, packed.positions, packed.document, exempt);
      const Tensor expected = PlainSums(plain, packed, exempt);
      EXPECT_TRUE(torch::allclose(sums, expected, 1e-10, 1e-10));
      const Tensor weights = torch::randn({3, n}, torch::kDouble);
      (sums * weights).sum().backward();
      (expected * weights).sum().backward();
      EXPECT_TRUE(torch::allclose(ours.grad(), plain.grad(), 1e-9, 1e-9));
    }
  }
}

TEST(RetentionSumTest, CountsTokensWhereNothingDecays) {
  const Packed packed = Pack({200, 1});
  const Tensor sums = RetentionSum(torch::zeros({1, 201}), packed.positions, packed.document, 0);
  EXPECT_TRUE(torch::equal(sums[0], (packed.positions + 1).to(torch::kFloat)));
}

TEST(RetentionSumTest, DecaysWithoutUnderflowTrouble) {
  const Packed packed = Pack({150});
  const Tensor x = torch::full({1, 150}, -200.0f).requires_grad_(true);
  const Tensor sums = RetentionSum(x, packed.positions, packed.document, 0);
  sums.sum().backward();
  EXPECT_TRUE((sums == 1).all().item<bool>());
  EXPECT_TRUE(x.grad().isfinite().all().item<bool>());
}

TEST(CapacityLossTest, HasBothForms) {
  // Two layers of one head and four positions, M = 1.
  const Tensor positions = torch::arange(4);
  const std::vector<Tensor> sums = {torch::tensor({{1.0, 2.0, 3.0, 0.5}}),
                                    torch::tensor({{1.0, 1.0, 1.0, 4.0}})};
  const auto loss = [&](CapacityForm form, CapacityScope scope) {
    return CapacityLoss(sums, positions, 1, form, scope).item<double>();
  };
  // Over M: 1 / max(1, 0), 2 / 1 and 3 / 2: three positive entries.
  EXPECT_NEAR(loss(CapacityForm::kCode, CapacityScope::kLocal), (1.0 + 2.0 + 1.5) / 3, 1e-12);
  EXPECT_NEAR(loss(CapacityForm::kPaper, CapacityScope::kLocal), (1.0 / 2 + 2.0 / 3 + 3.0 / 4) / 8,
              1e-12);
  // Sums 2, 3, 4, 4.5 against M L H = 2.
  EXPECT_NEAR(loss(CapacityForm::kCode, CapacityScope::kGlobal), (0.5 + 1.0 + 2.5 / 4) / 3, 1e-12);
  EXPECT_NEAR(loss(CapacityForm::kPaper, CapacityScope::kGlobal), (1.0 / 4 + 2.0 / 6 + 2.5 / 8) / 4,
              1e-12);
}

TEST(CapacityLossTest, IsZeroWhereEverythingFits) {
  const Tensor sums = torch::ones({2, 5}).requires_grad_(true);
  const Tensor loss =
      CapacityLoss({sums}, torch::arange(5), 128, CapacityForm::kCode, CapacityScope::kLocal);
  loss.backward();
  EXPECT_EQ(loss.item<double>(), 0);
  EXPECT_TRUE((sums.grad() == 0).all().item<bool>());
}

}  // namespace
}  // namespace kvbound::train
