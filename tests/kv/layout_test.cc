#include "kv/layout.h"

#include <gtest/gtest.h>

#include <limits>

#include "kv/slot_moves.h"

namespace kvbound {
namespace {

// The default model: 30 layers, 3 kv_heads, head size 64, and 640 slots.
KvLayout Small(KvType k, KvType v) {
  KvLayout layout;
  layout.n_layer = 30;
  layout.n_kv_head = 3;
  layout.head_dim = 64;
  layout.budget = 512;
  layout.chunk = 128;
  layout.type_k = k;
  layout.type_v = v;
  layout.v_transposed = false;
  return layout;
}

struct TypeBytes {
  KvType type;
  uint64_t bytes;  // of K or V of Small(), by hand
};

// Float types: 30 * 3 * 640 * 64 values. q8_0: 30 * up256(3 * 640 * 68 + 476); q4_0: 30 *
// up256(3 * 640 * 36 + 252); the second term is the room behind the last row of 64 up to 512.
constexpr TypeBytes kByHand[] = {
    {KvType::kF32, 14745600}, {KvType::kF16, 7372800},  {KvType::kBF16, 7372800},
    {KvType::kQ8_0, 3932160}, {KvType::kQ4_0, 2081280},
};

TEST(KvLayoutTest, BytesOfEveryTypePair) {
  for (const TypeBytes& k : kByHand) {
    for (const TypeBytes& v : kByHand) {
      const KvLayout layout = Small(k.type, v.type);
      ASSERT_TRUE(layout.Validate().ok()) << layout.Validate();
      EXPECT_EQ(layout.k_bytes(), k.bytes);
      EXPECT_EQ(layout.v_bytes(), v.bytes);
      EXPECT_EQ(layout.hidden_bytes(), 0u);
    }
  }
}

TEST(KvLayoutTest, SequencesMultiplyAndTransposedFloatsTakeTheSame) {
  KvLayout layout = Small(KvType::kF16, KvType::kF32);
  layout.v_transposed = true;
  layout.n_seq = 8;
  EXPECT_EQ(layout.k_bytes(), 8u * 7372800);
  EXPECT_EQ(layout.v_bytes(), 8u * 14745600);
}

TEST(KvLayoutTest, SlotsAreRoundedUpToAGroup) {
  KvLayout layout = Small(KvType::kF16, KvType::kF16);
  layout.budget = 100;
  layout.chunk = 29;
  EXPECT_EQ(layout.max_slots(), 129);
  EXPECT_EQ(layout.n_slot(), 160);
  EXPECT_EQ(layout.k_bytes(), 30u * 3 * 160 * 64 * 2);
}

TEST(KvLayoutTest, TensorsArePaddedToTheAlignment) {
  KvLayout layout = Small(KvType::kF16, KvType::kF16);
  layout.n_layer = 5;
  layout.n_kv_head = 1;
  layout.head_dim = 3;
  layout.budget = 20;
  layout.chunk = 10;
  EXPECT_EQ(layout.k_bytes(), 5u * 256);  // 32 slots * 3 * 2 = 192 bytes a layer
}

TEST(KvLayoutTest, HiddenRows) {
  KvLayout layout = Small(KvType::kF16, KvType::kF16);
  layout.n_hidden = 576;
  EXPECT_EQ(layout.hidden_bytes(), 640u * 576 * 2);
  layout.type_hidden = KvType::kF32;
  layout.n_seq = 2;
  EXPECT_EQ(layout.hidden_bytes(), 2u * 640 * 576 * 4);
}

TEST(KvLayoutTest, Sets) {
  KvLayout layout = Small(KvType::kF16, KvType::kF16);
  EXPECT_EQ(layout.n_set(), 1);
  layout.granularity = Granularity::kPerLayer;
  EXPECT_EQ(layout.n_set(), 30);
  layout.granularity = Granularity::kPerHead;
  EXPECT_EQ(layout.n_set(), 90);
}

TEST(KvLayoutTest, HostBytesGrowWithSetsAndSequences) {
  KvLayout layout = Small(KvType::kF16, KvType::kF16);
  const uint64_t shared = layout.host_bytes();
  layout.granularity = Granularity::kPerHead;
  const uint64_t per_head = layout.host_bytes();
  EXPECT_EQ(per_head - shared, 89u * 640 * (12 + 5));  // 12 bytes a slot, 5 for score and keep
  layout.n_seq = 3;
  EXPECT_EQ(layout.host_bytes() - per_head, 2u * 90 * 640 * 12);
}

TEST(KvLayoutTest, Formulas) {
  KvLayout layout = Small(KvType::kF16, KvType::kQ8_0);
  layout.n_hidden = 576;
  EXPECT_EQ(layout.k_formula(), "30 layers x 3 kv_heads x 640 slots x 64 x f16");
  EXPECT_EQ(layout.v_formula(), "30 layers x 3 kv_heads x 640 slots x 64 x q8_0");
  layout.n_seq = 2;
  EXPECT_EQ(layout.k_formula(), "2 sequences x 30 layers x 3 kv_heads x 640 slots x 64 x f16");
  EXPECT_EQ(layout.hidden_formula(), "2 sequences x 640 slots x 576 x f16");
}

void ExpectRefused(const KvLayout& layout, StatusCode code, std::vector<std::string> words) {
  const Status status = layout.Validate();
  EXPECT_EQ(status.code(), code) << status;
  for (const std::string& word : words) {
    EXPECT_NE(status.message().find(word), std::string::npos) << word << " in: " << status;
  }
}

TEST(KvLayoutTest, RefusesImpossibleShapes) {
  KvLayout layout = Small(KvType::kF16, KvType::kF16);
  layout.budget = 1;
  ExpectRefused(layout, StatusCode::kOutOfBudget, {"budget", "at least 2", "found 1"});
  layout.budget = -5;
  ExpectRefused(layout, StatusCode::kOutOfBudget, {"budget", "found -5"});
  layout = Small(KvType::kF16, KvType::kF16);
  layout.chunk = 0;
  ExpectRefused(layout, StatusCode::kInvalidArgument, {"chunk", "at least 1", "found 0"});
  layout = Small(KvType::kF16, KvType::kF16);
  layout.n_seq = 0;
  ExpectRefused(layout, StatusCode::kInvalidArgument, {"n_seq", "at least 1", "found 0"});
  layout = Small(KvType::kF16, KvType::kF16);
  layout.head_dim = 0;
  ExpectRefused(layout, StatusCode::kInvalidArgument, {"head_dim"});
}

TEST(KvLayoutTest, RefusesSizesBeyondTheLimitsWithoutOverflow) {
  constexpr int32_t kMost = std::numeric_limits<int32_t>::max();
  KvLayout layout = Small(KvType::kF16, KvType::kF16);
  layout.budget = kMost;
  layout.chunk = kMost;
  ExpectRefused(layout, StatusCode::kInvalidArgument, {"budget", "slots"});
  layout.budget = 1 << 20;
  layout.chunk = 1 << 10;
  layout.n_seq = kMost;
  ExpectRefused(layout, StatusCode::kInvalidArgument, {"n_seq", "slots"});
  layout.n_seq = 1;
  layout.n_layer = layout.n_kv_head = layout.head_dim = kMost;
  ExpectRefused(layout, StatusCode::kInvalidArgument, {"budget", "bytes"});
}

TEST(KvLayoutTest, BlockTypesNeedAHeadSizeOfWholeBlocks) {
  for (const int32_t head_dim : {8, 16, 48, 80}) {
    for (const KvType type : {KvType::kQ8_0, KvType::kQ4_0}) {
      const std::string size = std::to_string(head_dim);
      KvLayout layout = Small(type, KvType::kF16);
      layout.head_dim = head_dim;
      ExpectRefused(layout, StatusCode::kUnsupported,
                    {"K", std::string(KvTypeName(type)), size, "32"});
      layout = Small(KvType::kF16, type);
      layout.head_dim = head_dim;
      ExpectRefused(layout, StatusCode::kUnsupported,
                    {"V", std::string(KvTypeName(type)), size, "32"});
    }
  }
  KvLayout layout = Small(KvType::kQ4_0, KvType::kQ8_0);
  layout.head_dim = 96;
  EXPECT_TRUE(layout.Validate().ok());
}

TEST(KvLayoutTest, ATransposedVHasNoBlocks) {
  KvLayout layout = Small(KvType::kF16, KvType::kQ8_0);
  layout.v_transposed = true;
  ExpectRefused(layout, StatusCode::kUnsupported, {"V", "q8_0", "transposed"});
}

TEST(KvLayoutTest, HiddenRowsNeedOneSet) {
  KvLayout layout = Small(KvType::kF16, KvType::kF16);
  layout.n_hidden = 576;
  layout.granularity = Granularity::kPerHead;
  ExpectRefused(layout, StatusCode::kUnsupported, {"hidden", "shared", "per_head"});
}

TEST(KvTypeTest, NamesRoundTripAndOthersAreRefused) {
  for (const TypeBytes& entry : kByHand) {
    const Result<KvType> parsed = ParseKvType(KvTypeName(entry.type));
    ASSERT_TRUE(parsed.ok());
    EXPECT_EQ(*parsed, entry.type);
  }
  for (const char* name : {"", "F16", "q8", "q4_1", "f16 "}) {
    const Status status = ParseKvType(name).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_NE(status.message().find("f32, f16, bf16, q8_0, q4_0"), std::string::npos) << status;
  }
}

}  // namespace
}  // namespace kvbound
