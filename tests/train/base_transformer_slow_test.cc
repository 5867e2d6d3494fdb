// The default model in torch against the engine.

#include <gtest/gtest.h>

#include "testing/paths.h"
#include "train/engine_logits.h"

namespace kvbound::train {
namespace {

TEST(BaseTransformerSlowTest, HasTheLogitsOfTheEngine) {
  const std::filesystem::path path = testing::DefaultModel();
  KVBOUND_SKIP_WITHOUT(path);
  std::vector<Token> tokens;
  for (Token t = 0; t < 150; ++t) tokens.push_back(100 + (t * t * 37) % 20000);
  EXPECT_LT(DistanceToEngine(path.string(), tokens), 1e-4);
}

}  // namespace
}  // namespace kvbound::train
