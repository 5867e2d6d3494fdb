// Greedy text of the default model against the llama library's own forward pass.

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "llama.h"
#include "testing/llama_peer.h"
#include "testing/paths.h"
#include "testing/tiny_engine.h"

namespace kvbound::testing {
namespace {

constexpr int32_t kTokens = 200;
constexpr int32_t kContext = 256;
constexpr int32_t kThreads = 2;

struct Choice {
  Token best = 0;
  double gap = 0.0;  // to the second highest logit
};

Choice Choose(std::vector<float> logits) {
  const auto best = std::ranges::max_element(logits);
  const Token token = static_cast<Token>(best - logits.begin());
  const double highest = *best;
  *best = -1e30f;
  return {token, highest - *std::ranges::max_element(logits)};
}

LlamaPeer MakePeer(bool fused) {
  return LlamaPeer(DefaultModel(), kContext, KvType::kF16, kThreads,
                   [fused](llama_context_params& params) {
                     if (fused) params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_ENABLED;
                   });
}

class PeerTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    KVBOUND_SKIP_WITHOUT(DefaultModel());
    auto model = Model::Load(DefaultModel(), {});
    ASSERT_TRUE(model.ok()) << model.status();
    const auto prompt = (*model)->tokenizer().Encode(GetParam());
    ASSERT_TRUE(prompt.ok()) << prompt.status();
    prompt_ = *prompt;
    model_ = *model;
  }

  // Ours and the peer's first difference among 200 greedy tokens, if any.
  struct Comparison {
    int32_t n_equal = 0;
    double gap = 0.0;      // the smaller one, at the first difference
    double largest = 0.0;  // difference of any logit so far
  };

  Comparison Compare(AttentionPath attention) {
    EngineOptions options;
    options.policy.name = "none";
    options.budget = kContext;
    options.chunk = 64;
    options.n_threads = kThreads;
    options.attention = attention;
    const auto engine = MakeEngine(model_, options);
    const auto session = MakeSession(*engine);
    EXPECT_TRUE(session->Feed(prompt_).ok());
    LlamaPeer peer = MakePeer(attention == AttentionPath::kFlash);
    std::vector<float> theirs = peer.Feed(prompt_);
    Comparison result;
    for (; result.n_equal < kTokens; ++result.n_equal) {
      const std::vector<float> ours = CopyLogits(*session);
      result.largest = std::max(result.largest, LargestDifference(ours, theirs));
      const Choice our_choice = Choose(ours), their_choice = Choose(theirs);
      if (our_choice.best != their_choice.best) {
        result.gap = std::min(our_choice.gap, their_choice.gap);
        break;
      }
      text_.push_back(our_choice.best);
      EXPECT_TRUE(StepOne(*engine, *session, our_choice.best).ok());
      theirs = peer.Feed({&our_choice.best, 1});
    }
    RecordProperty("equal_tokens", result.n_equal);
    RecordProperty("gap_at_first_difference", std::to_string(result.gap));
    RecordProperty("largest_logit_difference", std::to_string(result.largest));
    return result;
  }

  // How far the library's own two kinds of attention are apart over the text of Compare.
  double PeerNoise() const {
    LlamaPeer plain = MakePeer(false), fused = MakePeer(true);
    double noise = LargestDifference(plain.Feed(prompt_), fused.Feed(prompt_));
    for (const Token token : text_) {
      noise = std::max(noise, LargestDifference(plain.Feed({&token, 1}), fused.Feed({&token, 1})));
    }
    return noise;
  }

  std::shared_ptr<const Model> model_;
  std::vector<Token> prompt_;
  std::vector<Token> text_;
};

INSTANTIATE_TEST_SUITE_P(
    Prompts, PeerTest,
    ::testing::Values("Once upon a time, in a small village by the sea, there lived a clockmaker",
                      "The three most important facts about the planet Mars are:\n1."),
    [](const auto& info) { return "prompt" + std::to_string(info.index); });

TEST_P(PeerTest, FusedAttentionGivesThePeersText) {
  const Comparison result = Compare(AttentionPath::kFlash);
  if (result.n_equal < kTokens) {
    EXPECT_LT(result.gap, 1e-2) << "after " << result.n_equal;
  }
}

// Products of 4-bit weights round the activations to 8 bits, so that another order of summation in
// attention moves logits by up to 1: the library's own two kinds of attention do, too. A first
// difference is explained by a gap below 1e-2, or well below what lies between those two.
TEST_P(PeerTest, PlainAttentionGivesThePeersTextUpToItsOwnNoise) {
  const Comparison result = Compare(AttentionPath::kStock);
  const double noise = PeerNoise();
  RecordProperty("peer_noise", std::to_string(noise));
  if (result.n_equal < kTokens) {
    EXPECT_LT(result.gap, std::max(1e-2, noise / 4)) << "after " << result.n_equal;
  }
  EXPECT_LT(result.largest, 2 * noise);
}

}  // namespace
}  // namespace kvbound::testing
