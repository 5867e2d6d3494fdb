#include "kernels/dot_q8.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "ggml.h"

namespace kvbound {
namespace {

std::vector<std::byte> Quantised(std::minstd_rand& random, int64_t n_row, int64_t n) {
  std::vector<float> values(n_row * n);
  for (float& x : values) x = static_cast<float>(random() % 2001) / 1000.0f - 1.0f;
  std::vector<std::byte> bytes(ggml_row_size(GGML_TYPE_Q8_0, n) * n_row);
  ggml_quantize_chunk(GGML_TYPE_Q8_0, values.data(), bytes.data(), 0, n_row, n, nullptr);
  return bytes;
}

std::vector<float> Floats(const std::vector<std::byte>& bytes, int64_t n) {
  std::vector<float> values(n);
  ggml_get_type_traits(GGML_TYPE_Q8_0)->to_float(bytes.data(), values.data(), n);
  return values;
}

TEST(DotQ8Test, EqualsPlainLoops) {
  std::minstd_rand random(3);
  for (int32_t n_row : {1, 2, 3, 4, 5, 9, 32}) {
    for (int32_t n_block : {1, 2, 18, 31}) {
      const int64_t n = 32 * n_block;
      const std::vector<std::byte> rows = Quantised(random, n_row, n);
      const std::vector<std::byte> x = Quantised(random, 1, n);
      const std::vector<float> row_values = Floats(rows, n_row * n), x_values = Floats(x, n);
      std::vector<float> out(n_row);
      DotQ8(rows.data(), rows.size() / n_row, n_row, x.data(), n_block, out.data());
      for (int32_t r = 0; r < n_row; ++r) {
        double expected = 0;
        for (int64_t i = 0; i < n; ++i) expected += double{row_values[r * n + i]} * x_values[i];
        EXPECT_NEAR(out[r], expected, 1e-5 * n_block) << n_row << " rows of " << n_block;
      }
    }
  }
}

}  // namespace
}  // namespace kvbound
