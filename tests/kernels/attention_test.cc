// The operator against plain loops in double.
#include "kernels/attention.h"

#include <gtest/gtest.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "testing/attention_case.h"

namespace kvbound::testing {
namespace {

constexpr KvType kTypes[] = {KvType::kF32, KvType::kF16, KvType::kBF16, KvType::kQ8_0,
                             KvType::kQ4_0};

double MaxDifference(const std::vector<double>& a, const std::vector<double>& b) {
  double max = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i] == b[i]) continue;  // infinities
    const double difference = std::abs(a[i] - b[i]);
    if (!(difference <= max)) max = difference;  // NaN stays
    if (std::isnan(max)) return max;
  }
  return max;
}

void ExpectOracle(const AttentionCaseOptions& options, int n_thread = 1) {
  SCOPED_TRACE(Describe(options));
  AttentionCase attention(options);
  const AttentionOutputs expected = attention.Oracle(), found = attention.Run(n_thread);
  const AttentionTolerance tolerance = ToleranceOf(options);
  EXPECT_LE(MaxDifference(found.out, expected.out), tolerance.out);
  EXPECT_LE(MaxDifference(found.lse, expected.lse), tolerance.lse);
  if (!options.shape.mass) return;
  EXPECT_LE(MaxDifference(found.mass, expected.mass), tolerance.mass);
  EXPECT_LE(MaxDifference(found.value_mass, expected.value_mass), tolerance.value_mass);
}

AttentionShape Shape(int32_t n_tok, int32_t n_head, int32_t n_kv_head, int32_t head_dim,
                     int32_t max_slots) {
  return {.n_seq = 1,
          .n_tok = n_tok,
          .n_head = n_head,
          .n_kv_head = n_kv_head,
          .head_dim = head_dim,
          .max_slots = max_slots,
          .mass = true};
}

TEST(AttentionTest, EqualsPlainLoopsForEveryPairOfTypes) {
  for (KvType type_k : kTypes) {
    for (KvType type_v : kTypes) {
      for (int32_t n_tok : {1, 7, 40}) {
        ExpectOracle({.shape = Shape(n_tok, 6, 2, 64, 150), .type_k = type_k, .type_v = type_v});
      }
    }
  }
}

TEST(AttentionTest, EqualsPlainLoopsForEveryHeadSize) {
  for (int32_t head_dim : {8, 12, 20, 32, 33, 80, 96, 100, 112, 128, 200, 256}) {
    for (int32_t n_tok : {1, 11}) {
      ExpectOracle({.shape = Shape(n_tok, 4, 2, head_dim, 70), .seed = 5});
      ExpectOracle({.shape = Shape(n_tok, 4, 2, head_dim, 70),
                    .type_k = KvType::kF32,
                    .type_v = KvType::kBF16,
                    .seed = 6});
    }
  }
}

TEST(AttentionTest, EqualsPlainLoopsForEveryLengthOfTheCache) {
  for (int32_t n : {1, 2, 3, 4, 5, 63, 64, 65, 127, 128, 129, 513}) {
    ExpectOracle({.shape = Shape(1, 3, 1, 64, n)});
    ExpectOracle({.shape = Shape(std::min(n, 33), 3, 1, 64, n)});
  }
  for (int32_t n_tok : {1, 9}) ExpectOracle({.shape = Shape(n_tok, 4, 2, 32, 10000)});
}

TEST(AttentionTest, EqualsPlainLoopsForEveryGroupAndChunk) {
  for (int32_t n_group = 1; n_group <= 10; ++n_group) {
    for (int32_t n_tok : {1, 2, 3, 5, 8, 22}) {
      ExpectOracle({.shape = Shape(n_tok, 2 * n_group, 2, 16, 90)});
    }
  }
  ExpectOracle({.shape = Shape(130, 3, 1, 32, 400)});
}

TEST(AttentionTest, HeadsOfUnequalSizeBeginWhereTheySay) {
  for (int32_t n_tok : {1, 5}) {
    AttentionCaseOptions options{.shape = Shape(n_tok, 6, 3, 64, 300)};
    options.shape.n_seq = 2;
    options.n_slot = {300, 17, 129, 5, 64, 128};
    options.first_slot = {0, 9, 100, 1, 0, 33};
    ExpectOracle(options);
  }
}

TEST(AttentionTest, AHeadWithoutSlotsGivesZeros) {
  AttentionCaseOptions options{.shape = Shape(1, 4, 2, 64, 20)};
  options.n_slot = {0, 20};
  ExpectOracle(options);
  options.shape.n_tok = 20;
  ExpectOracle(options);
}

TEST(AttentionTest, TheMaskCanBeFlippedAndHaveAGap) {
  for (int32_t n : {1, 40, 200}) {
    for (int32_t gap : {0, 4, 300}) {
      AttentionCaseOptions options{.shape = Shape(n, 3, 1, 32, n), .shuffled = true};
      for (int32_t i = 0; i < n; ++i) options.visible.push_back({i + 1 + gap, 0});
      ExpectOracle(options);
    }
  }
}

TEST(AttentionTest, AnyWindowMayBeSeen) {
  std::minstd_rand random(4);
  for (bool shuffled : {false, true}) {
    for (int32_t n_tok : {1, 2, 30}) {
      AttentionCaseOptions options{.shape = Shape(n_tok, 3, 1, 64, 300), .shuffled = shuffled};
      for (int32_t i = 0; i < n_tok; ++i) {
        options.visible.push_back(
            {static_cast<int32_t>(random() % 310), static_cast<int32_t>(random() % 310) - 5});
      }
      ExpectOracle(options);
    }
  }
}

TEST(AttentionTest, LargeLogitsStayExact) {
  for (int32_t n_tok : {1, 16}) {
    AttentionCaseOptions options{.shape = Shape(n_tok, 3, 1, 64, 300), .type_k = KvType::kF32};
    options.size = 12.0f;  // logits of some thousands
    SCOPED_TRACE(Describe(options));
    AttentionCase attention(options);
    EXPECT_LE(MaxDifference(attention.Run(1).out, attention.Oracle().out), 2e-3);
  }
}

TEST(AttentionTest, MassAddsUpToTheQueries) {
  for (int32_t n_tok : {1, 2, 50}) {
    AttentionCase attention({.shape = Shape(n_tok, 6, 2, 64, 1500)});
    const std::vector<double> mass = attention.Run(2).mass;
    double sum = 0;
    for (double m : mass) sum += m;
    EXPECT_NEAR(sum, 6.0 * n_tok, 1e-4 * n_tok);
  }
}

TEST(AttentionTest, TheNumberOfThreadsChangesNoBit) {
  for (int32_t n_tok : {1, 4, 90}) {
    AttentionCaseOptions options{.shape = Shape(n_tok, 6, 2, 64, 1500)};
    options.shape.n_seq = 2;
    AttentionCase attention(options);
    const AttentionOutputs one = attention.Run(1);
    for (int n_thread : {2, 3, 16}) {
      const AttentionOutputs many = attention.Run(n_thread);
      EXPECT_EQ(many.out, one.out) << n_thread;
      EXPECT_EQ(many.lse, one.lse) << n_thread;
      EXPECT_EQ(many.mass, one.mass) << n_thread;
      EXPECT_EQ(many.value_mass, one.value_mass) << n_thread;
    }
  }
}

TEST(AttentionTest, RoomForMoreSlotsChangesNoBit) {
  AttentionCaseOptions options{.shape = Shape(1, 3, 1, 64, 700)};
  options.n_slot = {333};
  AttentionCase large(options);
  options.shape.max_slots = 333;
  AttentionCase small(options);
  std::copy_n(large.k_row(0, 0, 0), 333 * 128, small.k_row(0, 0, 0));
  EXPECT_EQ(large.Run(1).lse, small.Run(1).lse);
}

TEST(AttentionTest, ANanIsNotLost) {
  for (int32_t n_tok : {1, 20}) {
    for (bool in_query : {false, true}) {
      AttentionCase attention({.shape = Shape(n_tok, 3, 1, 64, 100), .type_k = KvType::kF32});
      if (in_query) {
        std::ranges::fill(attention.q(), std::nanf(""));
      } else {
        *reinterpret_cast<float*>(attention.k_row(0, 0, 10)) = std::nanf("");
      }
      for (double x : attention.Run(1).out) EXPECT_TRUE(std::isnan(x));
    }
  }
}

#ifndef HWY_COMPILE_ONLY_STATIC
TEST(AttentionTest, EqualsPlainLoopsWithEveryInstructionSetOfThisMachine) {
  for (int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().DeInit();
    SCOPED_TRACE(AttentionTarget());
    EXPECT_STREQ(AttentionTarget(), hwy::TargetName(target));
    for (KvType type : kTypes) {
      for (int32_t n_tok : {1, 2, 30}) {
        ExpectOracle({.shape = Shape(n_tok, 6, 2, 64, 200), .type_k = type, .type_v = type});
      }
    }
    ExpectOracle({.shape = Shape(1, 6, 2, 20, 200)});
    ExpectOracle({.shape = Shape(30, 6, 2, 20, 200), .shuffled = true});
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().DeInit();
}
#endif

}  // namespace
}  // namespace kvbound::testing
