#include "policy/select.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <random>

#include "testing/alloc_counter.h"

namespace kvbound {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// A cache that is nothing but positions, the same number in every set.
class PositionsView : public CacheView {
 public:
  PositionsView(std::vector<std::vector<Position>> sets, int32_t budget, int64_t seen)
      : sets_(std::move(sets)), budget_(budget), seen_(seen) {}

  int32_t n_layer() const override { return 1; }
  int32_t n_kv_head() const override { return n_set(); }
  int32_t head_dim() const override { return 1; }
  int32_t n_set() const override { return static_cast<int32_t>(sets_.size()); }
  int32_t n_slot() const override { return static_cast<int32_t>(sets_[0].size()); }
  int32_t budget() const override { return budget_; }
  int64_t tokens_seen() const override { return seen_; }
  std::span<const Position> positions(int32_t set) const override { return sets_[set]; }
  std::span<const Token> tokens(int32_t) const override { return {}; }
  std::span<const float> log_beta(int32_t, int32_t) const override { return {}; }
  std::span<const float> attention_mass(int32_t, int32_t) const override { return {}; }
  Status ReadKeys(int32_t, int32_t, std::span<float>) const override {
    return Unsupported("no keys");
  }
  SlotScorer* scorer() const override { return nullptr; }

 private:
  std::vector<std::vector<Position>> sets_;
  int32_t budget_;
  int64_t seen_;
};

ProtectedSpans Protect(int32_t sinks, int32_t recent, int32_t budget) {
  return *ProtectedSpans::Resolve({sinks, recent, false}, PolicyInfo{}, budget);
}

std::vector<uint8_t> MustSelect(const CacheView& view, const std::vector<float>& scores,
                                const ProtectedSpans& protection) {
  std::vector<int32_t> order(view.n_slot());
  std::vector<uint8_t> keep(scores.size(), 9);
  const Status status = Select(view, scores, protection, order, keep);
  EXPECT_TRUE(status.ok()) << status;
  return keep;
}

// By definition: a slot stays iff it is protected, or fewer than the free room are better.
std::vector<uint8_t> SlowSelect(const CacheView& view, const std::vector<float>& scores,
                                const ProtectedSpans& protection) {
  const int32_t n = view.n_slot();
  std::vector<uint8_t> keep(scores.size());
  for (int32_t set = 0; set < view.n_set(); ++set) {
    const auto positions = view.positions(set);
    const auto is_protected = [&](int32_t slot) {
      return protection.Contains(positions[slot], view.tokens_seen());
    };
    int32_t room = std::min(n, view.budget());
    for (int32_t slot = 0; slot < n; ++slot) room -= is_protected(slot) ? 1 : 0;
    for (int32_t slot = 0; slot < n; ++slot) {
      int32_t better = 0;
      for (int32_t other = 0; other < n; ++other) {
        if (is_protected(other)) continue;
        const float a = scores[set * n + other], b = scores[set * n + slot];
        better += a > b || (a == b && positions[other] < positions[slot]) ? 1 : 0;
      }
      keep[set * n + slot] = is_protected(slot) || better < room ? 1 : 0;
    }
  }
  return keep;
}

TEST(SelectTest, MatchesASlowOracleWithTiesAndProtection) {
  std::mt19937 rng(99);
  for (int round = 0; round < 400; ++round) {
    const int32_t n_set = 1 + static_cast<int32_t>(rng() % 4);
    const int32_t n = 1 + static_cast<int32_t>(rng() % 60);
    const int32_t budget = 2 + static_cast<int32_t>(rng() % 40);
    const int64_t seen = n + static_cast<int32_t>(rng() % 50);
    std::vector<std::vector<Position>> sets(n_set);
    for (auto& set : sets) {
      std::vector<int32_t> all(seen);
      std::iota(all.begin(), all.end(), 0);
      std::shuffle(all.begin(), all.end(), rng);
      for (int32_t i = 0; i < n; ++i) set.push_back({all[i]});
    }
    const int32_t sinks = static_cast<int32_t>(rng() % (budget / 2));
    const int32_t recent = static_cast<int32_t>(rng() % (budget / 2));
    ProtectedSpans protection = Protect(sinks, recent, budget);
    const int32_t begin = static_cast<int32_t>(rng() % seen);
    (void)protection.Pin({{begin}, {begin + 3}}).ok();  // where the budget allows it
    const PositionsView view(sets, budget, seen);
    std::vector<float> scores(n_set * n);
    const uint32_t n_value = round % 2 == 0 ? 5 : 100000;  // many ties, or few
    for (float& score : scores) {
      score = static_cast<float>(rng() % n_value);
      if (score == 0) score = rng() % 2 == 0 ? kInfinity : -kInfinity;
    }
    const std::vector<uint8_t> keep = MustSelect(view, scores, protection);
    ASSERT_EQ(keep, SlowSelect(view, scores, protection));
    for (int32_t set = 0; set < n_set; ++set) {
      ASSERT_EQ(std::count(keep.begin() + set * n, keep.begin() + (set + 1) * n, 1),
                std::min(n, budget));
    }
  }
}

TEST(SelectTest, TheLowerPositionWinsATieWhateverTheSlotOrder) {
  const PositionsView view({{{9}, {3}, {5}, {1}}, {{1}, {5}, {3}, {9}}}, 2, 20);
  EXPECT_EQ(MustSelect(view, std::vector<float>(8, 0.5f), Protect(0, 0, 2)),
            (std::vector<uint8_t>{0, 1, 0, 1, 1, 0, 1, 0}));
}

TEST(SelectTest, ProtectedSlotsStayWhateverTheyScore) {
  const PositionsView view({{{0}, {1}, {2}, {3}, {4}, {5}}}, 4, 6);
  ProtectedSpans protection = Protect(1, 1, 4);
  ASSERT_TRUE(protection.Pin({{2}, {3}}).ok());
  EXPECT_EQ(MustSelect(view, {-kInfinity, 5, -kInfinity, 6, kInfinity, -kInfinity}, protection),
            (std::vector<uint8_t>{1, 0, 1, 0, 1, 1}));
}

TEST(SelectTest, KeepsAllWithinTheBudget) {
  const PositionsView view({{{4}, {2}}}, 2, 20);
  EXPECT_EQ(MustSelect(view, {1, 2}, Protect(0, 0, 2)), (std::vector<uint8_t>{1, 1}));
}

TEST(SelectTest, NanIsRefusedByPlace) {
  const PositionsView view({{{7}, {8}, {11}}, {{7}, {8}, {12}}}, 2, 20);
  std::vector<float> scores = {1, 2, 3, 4, 5, std::numeric_limits<float>::quiet_NaN()};
  std::vector<int32_t> order(3);
  std::vector<uint8_t> keep(6);
  const Status status = Select(view, scores, Protect(0, 0, 2), order, keep);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("set 1, slot 2, position 12"), std::string::npos) << status;
}

TEST(SelectTest, AllocatesNothing) {
  if (!testing::AllocationCounterWorks()) GTEST_SKIP() << "skipped: a sanitizer counts instead";
  std::vector<Position> positions(640);
  for (int32_t i = 0; i < 640; ++i) positions[i] = {i};
  const PositionsView view({positions, positions}, 512, 640);
  std::vector<float> scores(1280);
  for (size_t i = 0; i < scores.size(); ++i) scores[i] = static_cast<float>(i * 7919 % 641);
  std::vector<int32_t> order(640);
  std::vector<uint8_t> keep(1280);
  const ProtectedSpans protection = Protect(4, 32, 512);
  const int64_t before = testing::AllocationCount();
  const bool ok = Select(view, scores, protection, order, keep).ok();
  EXPECT_EQ(testing::AllocationCount(), before);
  EXPECT_TRUE(ok);
}

}  // namespace
}  // namespace kvbound
