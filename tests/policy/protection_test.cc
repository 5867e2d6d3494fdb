#include "policy/protection.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

namespace kvbound {
namespace {

PolicyInfo Info(int32_t sinks, int32_t recent) {
  PolicyInfo info;
  info.name = "test";
  info.default_protection = {sinks, recent, false};
  return info;
}

ProtectionOptions Given(std::optional<int32_t> sinks, std::optional<int32_t> recent) {
  return {sinks, recent, std::nullopt};
}

void ExpectNumbers(const Result<ProtectedSpans>& spans, int32_t sinks, int32_t recent) {
  ASSERT_TRUE(spans.ok()) << spans.status();
  EXPECT_EQ(spans->protection().sinks, sinks);
  EXPECT_EQ(spans->protection().recent, recent);
}

TEST(ProtectionTest, DefaultsFillWhatIsLeftOpen) {
  ExpectNumbers(ProtectedSpans::Resolve({}, Info(4, 32), 128), 4, 32);
  ExpectNumbers(ProtectedSpans::Resolve(Given(0, {}), Info(4, 32), 128), 0, 32);
  ExpectNumbers(ProtectedSpans::Resolve(Given({}, 0), Info(4, 32), 128), 4, 0);
  ExpectNumbers(ProtectedSpans::Resolve(Given(7, 9), Info(4, 32), 128), 7, 9);
  ExpectNumbers(ProtectedSpans::Resolve({}, Info(0, 0), 128), 0, 0);
}

TEST(ProtectionTest, DefaultsShrinkForASmallBudgetAndAlwaysFit) {
  ExpectNumbers(ProtectedSpans::Resolve({}, Info(4, 32), 32), 4, 8);
  ExpectNumbers(ProtectedSpans::Resolve({}, Info(4, 32), 8), 4, 2);
  ExpectNumbers(ProtectedSpans::Resolve({}, Info(4, 32), 2), 1, 0);
  ExpectNumbers(ProtectedSpans::Resolve(Given(7, {}), Info(4, 32), 8), 7, 0);
  ExpectNumbers(ProtectedSpans::Resolve(Given({}, 6), Info(4, 32), 8), 1, 6);
  for (int32_t budget = 2; budget < 300; ++budget) {
    const Result<ProtectedSpans> spans = ProtectedSpans::Resolve({}, Info(4, 32), budget);
    ASSERT_TRUE(spans.ok()) << budget << ": " << spans.status();
  }
}

TEST(ProtectionTest, NumbersThatFillTheBudgetAreRefusedWithTheNumbers) {
  for (const auto& [sinks, recent] : {std::pair{8, 0}, {0, 8}, {4, 4}, {9, 30}, {2147483647, 5}}) {
    const Status status = ProtectedSpans::Resolve(Given(sinks, recent), Info(4, 32), 8).status();
    EXPECT_EQ(status.code(), StatusCode::kOutOfBudget);
    for (const int32_t number : {8, sinks, recent}) {
      EXPECT_NE(status.message().find(std::to_string(number)), std::string::npos) << status;
    }
  }
  EXPECT_TRUE(ProtectedSpans::Resolve(Given(4, 3), Info(4, 32), 8).ok());
}

TEST(ProtectionTest, NegativeNumbersAreRefusedByName) {
  Status status = ProtectedSpans::Resolve(Given(-1, {}), Info(4, 32), 128).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("sinks"), std::string::npos);
  status = ProtectedSpans::Resolve(Given({}, -7), Info(4, 32), 128).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("recent: expected 0 or more, found -7"), std::string::npos);
}

TEST(ProtectionTest, APolicyCanNeedSinksAndRecentPositions) {
  PolicyInfo info = Info(4, 0);
  info.min_sinks = 1;
  const Status status = ProtectedSpans::Resolve(Given(0, {}), info, 128).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("window"), std::string::npos) << status;
  EXPECT_TRUE(ProtectedSpans::Resolve(Given(1, {}), info, 128).ok());

  info = Info(4, 32);
  info.min_recent = 17;
  ExpectNumbers(ProtectedSpans::Resolve(Given(0, 0), info, 18), 0, 0);
  EXPECT_EQ(ProtectedSpans::Resolve(Given(0, 0), info, 17).status().code(),
            StatusCode::kOutOfBudget);
}

TEST(ProtectionTest, APolicyThatNeverEvictsTakesAnyNumbers) {
  PolicyInfo info = Info(0, 0);
  info.evicts = false;
  ExpectNumbers(ProtectedSpans::Resolve(Given(40, 40), info, 8), 40, 40);
}

TEST(ProtectionTest, PinnedSpansCountOnceAndAreRefusedWhenTheyFillTheBudget) {
  ProtectedSpans spans = *ProtectedSpans::Resolve(Given(4, 3), Info(0, 0), 20);
  EXPECT_EQ(spans.MaxSlots(), 7);
  ASSERT_TRUE(spans.Pin({{2}, {6}}).ok());
  EXPECT_EQ(spans.MaxSlots(), 9);  // 2 and 3 are sinks
  ASSERT_TRUE(spans.Pin({{10}, {13}}).ok());
  ASSERT_TRUE(spans.Pin({{11}, {15}}).ok());
  EXPECT_EQ(spans.MaxSlots(), 14);
  ASSERT_TRUE(spans.Pin({{6}, {10}}).ok());  // joins both neighbours
  EXPECT_EQ(spans.MaxSlots(), 18);
  ASSERT_EQ(spans.pinned().size(), 1u);

  const Status full = spans.Pin({{40}, {42}});
  EXPECT_EQ(full.code(), StatusCode::kOutOfBudget);
  EXPECT_EQ(spans.MaxSlots(), 18);
  EXPECT_FALSE(spans.Contains({40}, 1000));
  EXPECT_EQ(spans.Pin({{5}, {5}}).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(spans.Pin({{-1}, {5}}).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(spans.Pin({{0}, {2147483647}}).code(), StatusCode::kOutOfBudget);
  spans.Unpin();
  EXPECT_EQ(spans.MaxSlots(), 7);
}

TEST(ProtectionTest, ContainsIsTheUnion) {
  std::mt19937 rng(3);
  for (int round = 0; round < 200; ++round) {
    const auto sinks = static_cast<int32_t>(rng() % 6);
    const auto recent = static_cast<int32_t>(rng() % 9);
    ProtectedSpans spans = *ProtectedSpans::Resolve(Given(sinks, recent), Info(0, 0), 100);
    const int32_t seen = 20 + static_cast<int32_t>(rng() % 40);
    std::set<int32_t> expected;
    for (int32_t p = 0; p < sinks; ++p) expected.insert(p);
    std::set<int32_t> old = expected;
    for (int32_t p = seen - recent; p < seen; ++p) expected.insert(p);
    for (int pin = 0; pin < 3; ++pin) {
      const auto begin = static_cast<int32_t>(rng() % 30);
      const int32_t end = begin + 1 + static_cast<int32_t>(rng() % 8);
      ASSERT_TRUE(spans.Pin({{begin}, {end}}).ok());
      for (int32_t p = begin; p < end; ++p) {
        expected.insert(p);
        old.insert(p);
      }
    }
    for (int32_t p = 0; p < seen; ++p) {
      ASSERT_EQ(spans.Contains({p}, seen), expected.contains(p)) << p;
    }
    EXPECT_EQ(spans.MaxSlots(), static_cast<int64_t>(old.size()) + recent);
  }
}

}  // namespace
}  // namespace kvbound
