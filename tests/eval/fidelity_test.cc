// The metrics beside plain loops in double over logits that the test reads itself.
#include "eval/fidelity.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "eval/contender.h"
#include "testing/tiny_engine.h"

namespace kvbound::eval {
namespace {

using testing::LoadTiny;
using testing::MakeTinyModel;
using testing::StepOne;
using testing::TestTokens;

std::shared_ptr<const Model> Tiny() {
  static const std::shared_ptr<const Model> model = LoadTiny(MakeTinyModel());
  return model;
}

FidelityPolicy Policy(const std::string& name, int32_t budget) {
  FidelityPolicy policy;
  policy.label = name;
  policy.policy.name = name;
  policy.protection = {.sinks = 2, .recent = 0, .pin_prompt = false};
  policy.budget = budget;
  return policy;
}

FidelityOptions Options() {
  FidelityOptions options;
  options.chunk = 8;
  options.skip = 13;  // inside a chunk
  options.n_threads = 1;
  return options;
}

const std::vector<std::vector<Token>>& Texts() {
  static const std::vector<std::vector<Token>> texts = {TestTokens(61, 1), TestTokens(48, 2)};
  return texts;
}

Result<std::vector<FidelityResult>> Measure(const std::vector<FidelityPolicy>& policies,
                                            const FidelityOptions& options = Options()) {
  return MeasureFidelity(Tiny(), Texts(), policies, options);
}

// log softmax of every token's logits, read one token at a time with the same cuts.
std::vector<std::vector<double>> LogProbabilities(Contender contender,
                                                  const std::vector<Token>& text) {
  std::vector<std::vector<double>> rows;
  for (const Token token : text) {
    EXPECT_TRUE(StepOne(*contender.engine, *contender.session, token).ok());
    const std::span<const float> logits = contender.session->logits();
    double sum = 0;
    for (const float z : logits) sum += std::exp(double{z});
    std::vector<double>& row = rows.emplace_back();
    for (const float z : logits) row.push_back(double{z} - std::log(sum));
  }
  return rows;
}

TextFidelity Oracle(const FidelityPolicy& policy, const std::vector<Token>& text) {
  const CacheShape shape{Options().chunk, 1, 1};
  const auto full = LogProbabilities(*MakeUncut(Tiny(), 100, shape), text);
  const auto bounded = LogProbabilities(*MakeContender(Tiny(), policy, shape), text);
  TextFidelity sums;
  for (size_t i = Options().skip; i + 1 < text.size(); ++i) {
    const auto top = [](const std::vector<double>& row) {
      return std::max_element(row.begin(), row.end()) - row.begin();
    };
    for (size_t v = 0; v < full[i].size(); ++v) {
      sums.kl += std::exp(full[i][v]) * (full[i][v] - bounded[i][v]);
    }
    sums.nll -= bounded[i][text[i + 1]];
    sums.full_nll -= full[i][text[i + 1]];
    sums.top1 += top(full[i]) == top(bounded[i]) ? 1 : 0;
    ++sums.n_token;
  }
  for (double* sum : {&sums.kl, &sums.nll, &sums.full_nll, &sums.top1}) *sum /= sums.n_token;
  return sums;
}

TEST(Fidelity, EqualsPlainLoops) {
  const std::vector<FidelityPolicy> policies = {Policy("window", 16), Policy("streaming", 12),
                                                Policy("random", 16)};
  const auto results = Measure(policies);
  ASSERT_TRUE(results.ok()) << results.status();
  ASSERT_EQ(results->size(), policies.size());
  for (size_t p = 0; p < policies.size(); ++p) {
    const FidelityResult& result = (*results)[p];
    SCOPED_TRACE(result.label);
    ASSERT_EQ(result.texts.size(), Texts().size());
    for (size_t i = 0; i < Texts().size(); ++i) {
      const TextFidelity expected = Oracle(policies[p], Texts()[i]);
      const TextFidelity& found = result.texts[i];
      EXPECT_EQ(found.n_token, static_cast<int64_t>(Texts()[i].size()) - 1 - Options().skip);
      EXPECT_EQ(found.n_token, expected.n_token);
      EXPECT_NEAR(found.kl, expected.kl, 1e-3 * expected.kl + 1e-6);
      EXPECT_GT(found.kl, 1e-5);
      EXPECT_NEAR(found.nll, expected.nll, 2e-4);
      EXPECT_NEAR(found.full_nll, expected.full_nll, 2e-4);
      EXPECT_NEAR(found.top1, expected.top1, 0.03);  // rows may be batched otherwise
    }
  }
}

TEST(Fidelity, NothingIsLostWhereNothingIsCut) {
  const auto results = Measure({Policy("streaming", 61), Policy("random", 61)});
  ASSERT_TRUE(results.ok()) << results.status();
  for (const FidelityResult& result : *results) {
    EXPECT_EQ(result.kl(), 0.0);
    EXPECT_EQ(result.delta_nll(), 0.0);
    EXPECT_EQ(result.top1(), 1.0);
    EXPECT_EQ(result.n_cut, 0);
    EXPECT_EQ(result.tokens_kept, 48);  // the last text, whole
  }
}

TEST(Fidelity, PoliciesDoNotDependOnEachOther) {
  const auto both = Measure({Policy("window", 16), Policy("random", 16)});
  const auto alone = Measure({Policy("random", 16)});
  ASSERT_TRUE(both.ok() && alone.ok());
  EXPECT_EQ((*both)[1].kl(), (*alone)[0].kl());
  EXPECT_EQ((*both)[1].nll(), (*alone)[0].nll());
  EXPECT_NE((*both)[0].kl(), (*both)[1].kl());
}

TEST(Fidelity, KeepsTheBudgetsOfAll) {
  const auto results = Measure({Policy("window", 16), Policy("random", 16)});
  ASSERT_TRUE(results.ok());
  for (const FidelityResult& result : *results) {
    EXPECT_EQ(result.tokens_kept, 16);  // 48 tokens end with a cut
    EXPECT_EQ(result.n_cut, 6 + 4);     // at 24, 32, ..., 56, 61; at 24, ..., 48
  }
}

TEST(Fidelity, MeansCountEachTextOnce) {
  FidelityResult result;
  result.texts = {{.kl = 1, .nll = 3, .full_nll = 2, .top1 = 0.5, .n_token = 10},
                  {.kl = 2, .nll = 5, .full_nll = 2, .top1 = 1.0, .n_token = 1000}};
  EXPECT_DOUBLE_EQ(result.kl(), 1.5);
  EXPECT_DOUBLE_EQ(result.delta_nll(), 2.0);
  EXPECT_DOUBLE_EQ(result.top1(), 0.75);
  EXPECT_EQ(FidelityResult().kl(), 0);
}

TEST(Fidelity, ReportsProgressAndStops) {
  int64_t last = 0, total = 0;
  const auto progress = [&](int64_t done, int64_t all) {
    EXPECT_GT(done, last);
    last = done;
    total = all;
    return true;
  };
  ASSERT_TRUE(MeasureFidelity(Tiny(), Texts(), {Policy("window", 16)}, Options(), progress).ok());
  EXPECT_EQ(last, total);
  EXPECT_EQ(total, 2 * (61 + 48));

  const auto stopped = MeasureFidelity(Tiny(), Texts(), {Policy("window", 16)}, Options(),
                                       [](int64_t done, int64_t) { return done < 20; });
  EXPECT_EQ(stopped.status().code(), StatusCode::kCancelled);
}

void ExpectRefused(const Result<std::vector<FidelityResult>>& result, StatusCode code,
                   const std::string& text) {
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.status().code(), code) << result.status();
  EXPECT_NE(result.status().message().find(text), std::string::npos) << result.status();
}

TEST(Fidelity, RefusesBadInput) {
  ExpectRefused(MeasureFidelity(Tiny(), {}, {Policy("window", 16)}, Options()),
                StatusCode::kInvalidArgument, "at least one text, found none");
  ExpectRefused(Measure({}), StatusCode::kInvalidArgument, "at least one policy, found none");
  FidelityOptions options = Options();
  options.skip = 47;
  ExpectRefused(Measure({Policy("window", 16)}, options), StatusCode::kInvalidArgument,
                "text 1: expected at least 49 tokens (skip + 2), found 48");
  options = Options();
  options.chunk = 0;
  ExpectRefused(Measure({Policy("window", 16)}, options), StatusCode::kInvalidArgument,
                "a chunk of at least 1");
  FidelityPolicy crowded = Policy("random", 4);
  crowded.protection.recent = 3;
  ExpectRefused(Measure({crowded}), StatusCode::kOutOfBudget, "random: ");
  ExpectRefused(Measure({Policy("no-such", 16)}), StatusCode::kNotFound, "no-such");
  ExpectRefused(MeasureFidelity(Tiny(), {TestTokens(20), std::vector<Token>(20, 100000)},
                                {Policy("window", 16)}, Options()),
                StatusCode::kInvalidArgument, "text 1: ");
}

}  // namespace
}  // namespace kvbound::eval
