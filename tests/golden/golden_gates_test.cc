#include "golden/golden_gates.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>

#include "testing/paths.h"

namespace kvbound::golden {
namespace {

float First(const GateMatrix& matrix) {
  float value = 0;
  std::memcpy(&value, matrix.data.data(), sizeof value);
  return value;
}

TEST(GoldenGatesTest, GivesTheBitsOfTheReference) {
  const Gates::Parts parts = MakeGoldenGates({64, 32, 4, 5, 11, 0.25, 0.5});
  ASSERT_EQ(parts.layers.size(), 5u);
  const GateLayer& layer = parts.layers[0];
  EXPECT_EQ(layer.hidden[0].weight.n_row, 32);
  EXPECT_EQ(layer.hidden[0].weight.n_col, 64);
  EXPECT_EQ(First(layer.hidden[0].weight), -0.025778919458389282f);
  EXPECT_EQ(layer.hidden[0].bias[1], 0.2829589247703552f);
  EXPECT_EQ(First(layer.output.weight), -0.04146873950958252f);
  EXPECT_EQ(layer.output.bias[3], 3.880313396453857f);
}

TEST(GoldenGatesTest, ReadsTheArgumentsOfEveryCase) {
  const std::filesystem::path folder = testing::SharedDir() / "data/golden/retention";
  KVBOUND_SKIP_WITHOUT(folder);
  for (const char* name : {"stories260k-train", "stories260k-keep", "smollm2-keep"}) {
    const auto file = CaseFile::Read(folder / (std::string(name) + ".json"), name);
    ASSERT_TRUE(file.ok()) << file.status();
    const auto parts = GoldenGates(*file);
    EXPECT_TRUE(parts.ok()) << parts.status();
  }
}

}  // namespace
}  // namespace kvbound::golden
