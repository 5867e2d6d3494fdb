#include "testing/tiny_reference.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "testing/tiny_model.h"

namespace kvbound::testing {
namespace {

const std::vector<int32_t> kIds = {260, 271, 265, 283, 259, 262, 262, 280,
                                   13,  267, 1,   274, 269, 261, 278, 266};

int32_t ArgMax(const std::vector<double>& logits) {
  return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

double Distance(const std::vector<double>& a, const std::vector<double>& b) {
  double max = 0.0;
  for (size_t i = 0; i < a.size(); ++i) max = std::max(max, std::fabs(a[i] - b[i]));
  return max;
}

// Numbers from an independent forward pass in another language.
TEST(TinyReferenceTest, MatchesKnownLogits) {
  const std::vector<double> tiny = ReferenceLogits(MakeTinyModel(), kIds);
  EXPECT_EQ(ArgMax(tiny), 149);
  EXPECT_NEAR(tiny[149], 5.325355, 1e-6);
  EXPECT_NEAR(tiny[285], 4.082188, 1e-6);
  TinyModelOptions options;
  options.rope_factors = {1, 2, 4, 8};
  EXPECT_NEAR(ReferenceLogits(MakeTinyModel(options), kIds)[149], 5.398949, 1e-6);
  options = {};
  options.head_dim = 16;
  options.n_rot = 8;
  EXPECT_NEAR(ReferenceLogits(MakeTinyModel(options), kIds)[20], 4.324791, 1e-6);
}

TEST(TinyReferenceTest, SpellingModelSpells) {
  const TinyModel model = MakeSpellingModel();
  std::string text;
  int32_t id = 260;
  for (int i = 0; i < 31; ++i) {
    id = ArgMax(ReferenceLogits(model, {260, id}));
    const int byte = id - 3;
    text += id >= 260 ? model.pieces[static_cast<size_t>(id)].text
                      : std::string(1, static_cast<char>(byte));
  }
  EXPECT_EQ(text, "bcdefghijklmnopqrstuvwxyz\xf0\x9f\x98\xb8\na");
}

// Rotation is relative: moving all positions by the same distance changes nothing.
TEST(TinyReferenceTest, PositionsAreRelative) {
  for (const Arch arch : {Arch::kLlama, Arch::kQwen2, Arch::kQwen3}) {
    TinyModelOptions options;
    options.arch = arch;
    options.qkv_bias = arch != Arch::kQwen3;
    options.rope_scale = 2.0f;
    const TinyModel model = MakeTinyModel(options);
    std::vector<int32_t> moved;
    for (int i = 0; i < 16; ++i) moved.push_back(i + 1000);
    const std::vector<double> logits = ReferenceLogits(model, kIds);
    EXPECT_LT(Distance(logits, ReferenceLogits(model, kIds, moved)), 1e-9);
    moved.back() += 5;
    EXPECT_GT(Distance(logits, ReferenceLogits(model, kIds, moved)), 1e-4);
  }
}

TEST(TinyReferenceTest, ScalingStretchesPositions) {
  TinyModelOptions options;
  const TinyModel plain = MakeTinyModel(options);
  options.rope_scale = 4.0f;
  std::vector<int32_t> stretched;
  for (int i = 0; i < 16; ++i) stretched.push_back(4 * i);
  EXPECT_LT(Distance(ReferenceLogits(plain, kIds),
                     ReferenceLogits(MakeTinyModel(options), kIds, stretched)),
            1e-9);
}

// With one layer, hiding keys equals never having had the tokens.
TEST(TinyReferenceTest, HidingKeysEqualsLeavingTokensOut) {
  TinyModelOptions options;
  options.n_layer = 1;
  const TinyModel model = MakeTinyModel(options);
  const auto kept = [](int i) { return i < 4 || i == 9 || i >= 12; };
  std::vector<int32_t> ids, positions;
  for (int i = 0; i < 16; ++i) {
    if (!kept(i)) continue;
    ids.push_back(kIds[static_cast<size_t>(i)]);
    positions.push_back(i);
  }
  const ReferenceResult hidden = ReferenceForward(
      model, kIds, {}, [&](int, int, int query, int key) { return key <= query && kept(key); });
  EXPECT_LT(Distance(hidden.logits.back(), ReferenceLogits(model, ids, positions)), 1e-12);
}

TEST(TinyReferenceTest, NllOfSpelledText) {
  SpellingOptions options;
  options.strength = [](int k) { return 1.0f + 0.25f * static_cast<float>(k); };
  const TinyModel model = MakeSpellingModel(options);
  for (const int k : {0, 5, 29}) {
    const double strength = 1.0 + 0.25 * k;
    const std::vector<double> logits =
        ReferenceLogits(model, {model.order[static_cast<size_t>(k)]});
    const int32_t next = model.order[static_cast<size_t>(k + 1)];
    EXPECT_NEAR(ReferenceNll(logits, next), std::log(std::exp(strength) + 285) - strength, 5e-3);
  }
}

}  // namespace
}  // namespace kvbound::testing
