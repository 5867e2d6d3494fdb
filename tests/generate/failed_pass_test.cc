// A forward pass that overflows must leave nothing behind: neither in the session that fed it nor
// in the next one on the same row of the store.

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "kvbound/session.h"
#include "testing/expect_refused.h"
#include "testing/tiny_engine.h"

namespace kvbound::testing {
namespace {

constexpr Token kBad = 7;

void Edit(TinyModel* model, const std::string& name, void (*edit)(std::vector<float>*, int64_t)) {
  for (TinyTensor& tensor : model->tensors) {
    if (tensor.name != name) continue;
    edit(&tensor.values, tensor.dims[0]);
    std::memcpy(tensor.bytes.data(), tensor.values.data(), tensor.bytes.size());
  }
}

// All weights are finite, but the key and the value of kBad overflow: its embedding alone has the
// first dimension, which K and V multiply by nearly the largest float.
TinyModel OverflowingModel() {
  TinyModelOptions options;
  options.n_layer = 1;
  TinyModel model = MakeTinyModel(options);
  Edit(&model, "token_embd.weight", [](std::vector<float>* values, int64_t columns) {
    for (size_t i = 0; i < values->size(); i += columns) (*values)[i] = 0.0f;
    (*values)[kBad * columns] = 32.0f;
  });
  for (const char* name : {"blk.0.attn_k.weight", "blk.0.attn_v.weight"}) {
    Edit(&model, name, [](std::vector<float>* values, int64_t columns) {
      for (size_t i = 0; i < values->size(); i += columns) (*values)[i] = 3e38f;
    });
  }
  return model;
}

class FailedPassTest : public ::testing::TestWithParam<AttentionPath> {
 protected:
  FailedPassTest() {
    EngineOptions options = ExactEngine("window", 12, 6);
    options.attention = GetParam();
    engine_ = MakeEngine(LoadTiny(OverflowingModel()), options);
    session_ = MakeSession(*engine_);
    EXPECT_TRUE(session_->Feed(good_).ok());
    expected_ = CopyLogits(*session_);
  }

  void ExpectAsNew() {
    const Status status = session_->Feed(good_);
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_TRUE(SameBits(CopyLogits(*session_), expected_));
  }

  const std::vector<Token> good_ = {10, 11, 12, 13};
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Session> session_;
  std::vector<float> expected_;
};

INSTANTIATE_TEST_SUITE_P(Attention, FailedPassTest,
                         ::testing::Values(AttentionPath::kFused, AttentionPath::kStock,
                                           AttentionPath::kFlash));

TEST_P(FailedPassTest, AChunkThatOverflowsIsTakenBack) {
  ASSERT_TRUE(session_->Reset().ok());
  const std::vector<Token> bad = {20, 21, kBad, 22};
  const Status status = session_->Feed(bad);
  EXPECT_EQ(status.code(), StatusCode::kCorrupt);
  ExpectRefused(status, {"position 3", "not finite"});
  EXPECT_EQ(session_->stats().tokens_seen, 0);
  EXPECT_TRUE(session_->positions().empty());
  EXPECT_TRUE(session_->logits().empty());
  // One token at a time, so that the other rows of the failed chunk are not overwritten.
  for (Token token : good_) {
    const Status step = StepOne(*engine_, *session_, token);
    ASSERT_TRUE(step.ok()) << step;
  }
  EXPECT_LT(LargestDifference(CopyLogits(*session_), expected_), 1e-4);
}

TEST_P(FailedPassTest, AStepThatOverflowsIsTakenBack) {
  ASSERT_TRUE(StepOne(*engine_, *session_, 14).ok());
  const std::vector<float> next = CopyLogits(*session_);
  ASSERT_TRUE(session_->Reset().ok());
  ExpectAsNew();
  EXPECT_EQ(StepOne(*engine_, *session_, kBad).code(), StatusCode::kCorrupt);
  EXPECT_EQ(session_->stats().tokens_seen, 4);
  ASSERT_TRUE(StepOne(*engine_, *session_, 14).ok());
  EXPECT_TRUE(SameBits(CopyLogits(*session_), next));
}

// The first chunk of the prompt holds the bad token, the last one is refused: the session is of
// no use any more, but a Reset heals it.
TEST_P(FailedPassTest, ResetClearsWhatAnEarlierChunkLeft) {
  ASSERT_TRUE(session_->Reset().ok());
  const std::vector<Token> bad = {20, 21, 22, 23, 24, kBad, 25, 26};
  EXPECT_EQ(session_->Feed(bad).code(), StatusCode::kCorrupt);
  ASSERT_TRUE(session_->Reset().ok());
  ExpectAsNew();
}

TEST_P(FailedPassTest, ANewSessionOnTheSameRowIsClean) {
  ASSERT_TRUE(session_->Reset().ok());
  const std::vector<Token> bad = {20, 21, 22, 23, 24, kBad, 25, 26};
  EXPECT_EQ(session_->Feed(bad).code(), StatusCode::kCorrupt);
  session_.reset();
  session_ = MakeSession(*engine_);
  ExpectAsNew();
}

}  // namespace
}  // namespace kvbound::testing
