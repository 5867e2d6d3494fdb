// Cuts and rebases of the store against a model that holds every key as it was before RoPE.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "kv/key_rotation.h"
#include "kv/kv_type.h"
#include "kv/store.h"
#include "testing/alloc_counter.h"

namespace kvbound {
namespace {

constexpr int32_t kDim = 64;
constexpr int32_t kBudget = 20;
constexpr int32_t kChunk = 9;
constexpr int32_t kLimit = 71;  // RoPE positions

KeyRotation Rotation(bool neox) {
  KeyRotation rotation;
  rotation.neox = neox;
  for (int j = 0; j < 24; ++j) {  // the last 16 values of a head are not rotated
    rotation.frequencies.push_back(std::pow(10000.0, -j / 24.0));
  }
  return rotation;
}

// RoPE in plain loops.
std::vector<double> Rotated(std::vector<double> row, const KeyRotation& rotation, int64_t by) {
  const size_t n = rotation.frequencies.size();
  for (size_t j = 0; j < n; ++j) {
    double& a = row[rotation.neox ? j : 2 * j];
    double& b = row[rotation.neox ? j + n : 2 * j + 1];
    const double angle = static_cast<double>(by) * rotation.frequencies[j];
    const double a0 = a, b0 = b;
    a = a0 * std::cos(angle) - b0 * std::sin(angle);
    b = a0 * std::sin(angle) + b0 * std::cos(angle);
  }
  return row;
}

double Norm(const std::vector<double>& row) {
  double sum = 0;
  for (double x : row) sum += x * x;
  return std::sqrt(sum);
}

// The largest part of its length that a key can lose by one rounding to the type.
double Rounding(KvType type) {
  switch (type) {
    case KvType::kF32:
      return 3e-7;
    case KvType::kF16:
      return std::exp2(-11) + 1e-6;
    case KvType::kBF16:
      return std::exp2(-8);
    case KvType::kQ8_0:
      return 0.012;
    case KvType::kQ4_0:
      return 0.16;
  }
  return 0;
}

struct Key {
  int32_t rope = 0;
  int32_t turns = 0;
};

using Param = std::tuple<KvType, Granularity, bool>;

class RebaseTest : public ::testing::TestWithParam<Param> {
 protected:
  RebaseTest() : rotation_(Rotation(std::get<2>(GetParam()))) {
    layout_.n_layer = 2;
    layout_.n_kv_head = 2;
    layout_.head_dim = kDim;
    layout_.budget = kBudget;
    layout_.chunk = kChunk;
    layout_.n_seq = 2;
    layout_.type_k = std::get<0>(GetParam());
    layout_.type_v = KvType::kF32;
    layout_.v_transposed = false;
    layout_.granularity = std::get<1>(GetParam());
    store_ = *KvStore::Create(
        layout_,
        ggml_backend_dev_buffer_type(ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU)),
        rotation_);
    n_set_ = store_->n_set(kSeq);
    keys_.resize(n_set_);
  }

  static constexpr int32_t kSeq = 1;

  static std::vector<double> RawKey(int32_t head, int32_t position) {
    std::mt19937 rng(static_cast<uint32_t>(head * 1000003 + position));
    std::normal_distribution<double> normal;
    std::vector<double> row(kDim);
    for (double& x : row) x = static_cast<float>(normal(rng));
    return row;
  }

  int32_t SetOf(int32_t head) const { return head * n_set_ / 4; }

  void Write(ggml_tensor* tensor, int32_t kv_head, int32_t slot, const std::vector<float>& row) {
    std::vector<uint8_t> bytes(tensor->nb[1]);
    ggml_quantize_chunk(tensor->type, row.data(), bytes.data(), 0, 1, kDim, nullptr);
    ggml_backend_tensor_set(tensor, bytes.data(),
                            kSeq * tensor->nb[3] + kv_head * tensor->nb[2] + slot * tensor->nb[1],
                            bytes.size());
  }

  // Enters t tokens as a forward pass does.
  void Feed(int32_t t) {
    std::vector<Token> tokens(t);
    for (int32_t i = 0; i < t; ++i) tokens[i] = (seen_ + i) % 1000;
    ASSERT_TRUE(store_->Append(kSeq, tokens, Position{seen_}).ok());
    for (int32_t i = 0; i < t; ++i) {
      const int32_t slot = store_->n(kSeq) - t + i;
      for (int32_t head = 0; head < 4; ++head) {
        const std::vector<double> raw = RawKey(head, seen_ + i);
        const std::vector<double> key = Rotated(raw, rotation_, next_ + i);
        Write(store_->k(head / 2), head % 2, slot, {key.begin(), key.end()});
        Write(store_->v(head / 2), head % 2, slot, {raw.begin(), raw.end()});
      }
      for (auto& set : keys_) set[seen_ + i] = {next_ + i, 0};
    }
    seen_ += t;
    next_ += t;
  }

  // Random survivors; some tokens tend to stay, as good tokens do.
  void Cut(std::mt19937& rng) {
    const int32_t n = store_->n(kSeq);
    const std::span<uint8_t> keep = store_->keep_scratch(kSeq);
    for (int32_t set = 0; set < n_set_; ++set) {
      std::vector<std::pair<double, int32_t>> order;
      for (int32_t slot = 0; slot < n; ++slot) {
        const int32_t position = store_->positions(kSeq, set)[slot].value;
        const bool stays = position < 2 || (position * 7919 + set) % 31 == 0;
        order.emplace_back((stays ? 0.0 : 1.0) + std::generate_canonical<double, 24>(rng), slot);
      }
      std::sort(order.begin(), order.end());
      for (int32_t i = 0; i < n; ++i) {
        keep[static_cast<size_t>(set) * n + order[i].second] = i < kBudget;
        if (i < kBudget) continue;
        keys_[set].erase(store_->positions(kSeq, set)[order[i].second].value);
      }
    }
    ASSERT_TRUE(store_->Keep(kSeq, keep).ok());
    if (next_ + kChunk <= kLimit) return;
    store_->Rebase(kSeq);
    ++n_rebase_;
    for (auto& set : keys_) {
      int32_t rank = 0;
      for (auto& [position, key] : set) {
        if (key.rope != rank) ++key.turns;
        key.rope = rank++;
      }
    }
    next_ = kBudget;
  }

  // Owners always; rows where asked, since that takes a while.
  void Check(bool rows) {
    ASSERT_EQ(store_->next_rope(kSeq).value, next_);
    for (int32_t head = 0; head < 4; ++head) {
      const auto& keys = keys_[SetOf(head)];
      const auto positions = store_->positions(kSeq, SetOf(head));
      const auto ropes = store_->rope_positions(kSeq, SetOf(head));
      ASSERT_EQ(positions.size(), keys.size());
      std::vector<float> k(positions.size() * kDim), v(k.size());
      if (rows) {
        ASSERT_TRUE(store_->ReadKeys(kSeq, head / 2, head % 2, k).ok());
        ASSERT_TRUE(store_->ReadValues(kSeq, head / 2, head % 2, v).ok());
      }
      for (size_t slot = 0; slot < positions.size(); ++slot) {
        const int32_t position = positions[slot].value;
        ASSERT_TRUE(keys.contains(position));
        const Key& key = keys.at(position);
        ASSERT_EQ(ropes[slot].value, key.rope) << "position " << position;
        if (!rows) continue;
        const std::vector<double> raw = RawKey(head, position);
        const std::vector<double> wanted = Rotated(raw, rotation_, key.rope);
        std::vector<double> error(kDim);
        for (int32_t c = 0; c < kDim; ++c) {
          error[c] = k[slot * kDim + c] - wanted[c];
          ASSERT_EQ(v[slot * kDim + c], static_cast<float>(raw[c]));
        }
        const double share = Norm(error) / Norm(raw);
        ASSERT_LE(share, Rounding(layout_.type_k) * (key.turns + 1)) << key.turns << " turns";
        worst_ = std::max(worst_, share);
        most_turns_ = std::max(most_turns_, key.turns);
      }
    }
  }

  const KeyRotation rotation_;
  KvLayout layout_;
  std::unique_ptr<KvStore> store_;
  int32_t n_set_ = 0;
  std::vector<std::map<int32_t, Key>> keys_;  // per set: by position
  int32_t seen_ = 0;
  int32_t next_ = 0;
  int32_t n_rebase_ = 0;
  int32_t most_turns_ = 0;
  double worst_ = 0;
};

std::string NameOf(const ::testing::TestParamInfo<Param>& info) {
  return std::string(KvTypeName(std::get<0>(info.param))) + "_" +
         std::string(GranularityName(std::get<1>(info.param))) +
         (std::get<2>(info.param) ? "_neox" : "_normal");
}

INSTANTIATE_TEST_SUITE_P(
    All, RebaseTest,
    ::testing::Combine(
        ::testing::Values(KvType::kF32, KvType::kF16, KvType::kBF16, KvType::kQ8_0, KvType::kQ4_0),
        ::testing::Values(Granularity::kShared, Granularity::kPerLayer, Granularity::kPerHead),
        ::testing::Bool()),
    NameOf);

TEST_P(RebaseTest, CutsAndRebasesKeepEveryKeyWhereItsRopePositionSays) {
  std::mt19937 rng(7);
  while (seen_ < 20000) {
    ASSERT_NO_FATAL_FAILURE(Feed(kChunk - seen_ % kChunk));
    if (store_->n(kSeq) <= kBudget) continue;
    ASSERT_NO_FATAL_FAILURE(Cut(rng));
    ASSERT_NO_FATAL_FAILURE(Check(seen_ % 100 < kChunk));
    ASSERT_LE(next_ + kChunk, kLimit);
  }
  ASSERT_NO_FATAL_FAILURE(Check(true));
  EXPECT_GT(n_rebase_, 400);
  // A rank only falls, so a key is turned at most once per rank, however long the text.
  EXPECT_LE(most_turns_, kBudget);
  EXPECT_GT(most_turns_, 3);
  RecordProperty("worst_share", std::to_string(worst_));
  EXPECT_EQ(store_->n(0), 0);
}

TEST_P(RebaseTest, RebaseAllocatesNothing) {
  if (!testing::AllocationCounterWorks()) GTEST_SKIP() << "skipped: a sanitizer counts instead";
  std::mt19937 rng(1);
  Feed(kBudget + kChunk);
  Cut(rng);
  const int64_t before = testing::AllocationCount();
  store_->Rebase(kSeq);
  EXPECT_EQ(testing::AllocationCount(), before);
}

TEST_P(RebaseTest, RollbackAndClearTakeTheRopePositionBack) {
  Feed(5);
  const std::vector<Token> tokens = {1, 2, 3};
  ASSERT_TRUE(store_->Append(kSeq, tokens, Position{5}).ok());
  EXPECT_EQ(store_->next_rope(kSeq).value, 8);
  store_->Rollback(kSeq, 3);
  EXPECT_EQ(store_->next_rope(kSeq).value, 5);
  store_->Clear(kSeq, layout_.granularity);
  EXPECT_EQ(store_->next_rope(kSeq).value, 0);
}

}  // namespace
}  // namespace kvbound
