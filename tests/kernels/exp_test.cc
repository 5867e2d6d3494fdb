// Of the static target alone: what differs between targets is whether products and sums are fused.
#define HWY_COMPILE_ONLY_STATIC
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/exp-inl.h"

namespace kvbound {
namespace {

float Exp(float x) {
  using namespace HWY_NAMESPACE;  // NOLINT: as kernels have it
  return hn::GetLane(ExpUpToZero(hn::Set(Floats(), x)));
}

TEST(ExpTest, IsOffByLittle) {
  double worst = 0;
  for (float x = -86.9f; x < -1e-9f; x *= 0.9999f) {
    worst = std::max(worst, std::abs(Exp(x) / std::exp(double{x}) - 1));
  }
  EXPECT_LT(worst, 1.5e-7);
}

TEST(ExpTest, IsExactAtItsEnds) {
  EXPECT_EQ(Exp(0.0f), 1.0f);
  EXPECT_EQ(Exp(-0.0f), 1.0f);
  EXPECT_EQ(Exp(-1e-30f), 1.0f);
  EXPECT_EQ(Exp(-87.5f), 0.0f);
  EXPECT_EQ(Exp(-3e38f), 0.0f);
  EXPECT_EQ(Exp(-std::numeric_limits<float>::infinity()), 0.0f);
  EXPECT_EQ(Exp(std::numeric_limits<float>::quiet_NaN()), 0.0f);
}

}  // namespace
}  // namespace kvbound
