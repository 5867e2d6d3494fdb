#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "cli/values.h"

namespace kvbound::cli {
namespace {

TEST(ParseInt, TakesTheWholeTextAndTheRange) {
  EXPECT_EQ(*ParseInt("-1", "a number", -1, 10), -1);
  EXPECT_EQ(*ParseInt("10", "a number", -1, 10), 10);
  for (const char* bad :
       {"", "x", "1x", " 1", "1 ", "11", "-2", "1.5", "0x1", "9223372036854775808"}) {
    EXPECT_FALSE(ParseInt(bad, "a number", -1, 10).ok()) << bad;
  }
}

TEST(ParseInt, SaysWhatWasExpectedAndFound) {
  constexpr int64_t kMax = std::numeric_limits<int32_t>::max();
  EXPECT_EQ(ParseInt("1", "a number of slots", 2, kMax).status().message(),
            "expected a number of slots >= 2, found '1'");
  EXPECT_EQ(ParseInt("3", "a version", 0, 2).status().message(),
            "expected a version from 0 to 2, found '3'");
  EXPECT_EQ(ParseInt("\x1b[2J", "a version", 0, 2).status().message(),
            "expected a version from 0 to 2, found '\\x1b[2J'");
}

TEST(ParseFloat, RefusesWhatIsNoFiniteNumberInRange) {
  EXPECT_FLOAT_EQ(*ParseFloat("0.95", "a probability", 0, 1), 0.95f);
  for (const char* bad : {"", "nan", "inf", "-inf", "1.1", "-0.1", "0,5", "1e99", "0.5f"}) {
    EXPECT_FALSE(ParseFloat(bad, "a probability", 0, 1).ok()) << bad;
  }
}

TEST(ParseSize, KnowsBinaryAndDecimalUnits) {
  EXPECT_EQ(*ParseSize("67108864"), 67108864u);
  EXPECT_EQ(*ParseSize("64MiB"), 67108864u);
  EXPECT_EQ(*ParseSize("1.5GiB"), 1610612736u);
  EXPECT_EQ(*ParseSize("2MB"), 2000000u);
  EXPECT_EQ(*ParseSize("1kB"), 1000u);
  for (const char* bad :
       {"", "MiB", "0", "-1MiB", "64 MiB", "64mib", "1e3", "99999999999TiB", "1.2.3MiB"}) {
    EXPECT_FALSE(ParseSize(bad).ok()) << bad;
  }
}

TEST(ParseLogitBias, IsWrittenAsInLlamaCpp) {
  EXPECT_EQ(*ParseLogitBias("15043+1"), std::pair(Token{15043}, 1.0f));
  EXPECT_EQ(*ParseLogitBias("15043-0.5"), std::pair(Token{15043}, -0.5f));
  EXPECT_EQ(ParseLogitBias("7-inf")->second, -std::numeric_limits<float>::infinity());
  for (const char* bad : {"", "7", "+1", "-7+1", "7+", "7+-1", "7+nan", "x+1", "7=1"}) {
    EXPECT_FALSE(ParseLogitBias(bad).ok()) << bad;
  }
}

TEST(ParseTokens, IsAListOfIds) {
  EXPECT_EQ(*ParseTokens("1, 2,3"), (std::vector<Token>{1, 2, 3}));
  for (const char* bad : {"", "1,", ",1", "1;2", "-1", "1,99999999999"}) {
    EXPECT_FALSE(ParseTokens(bad).ok()) << bad;
  }
}

TEST(Unescape, KnowsTheUsualNames) {
  EXPECT_EQ(Unescape("a\\nb\\tc\\\\d\\\"\\'"), "a\nb\tc\\d\"'");
  EXPECT_EQ(Unescape("\\x41\\xe2\\x82\\xac"), "A\xe2\x82\xac");
  EXPECT_EQ(Unescape("\\q \\x4 \\"), "\\q \\x4 \\") << "anything else stays";
}

TEST(Human, Numbers) {
  EXPECT_EQ(HumanBytes(0), "0 B");
  EXPECT_EQ(HumanBytes(1536), "1.50 KiB");
  EXPECT_EQ(HumanBytes(67108864), "64.00 MiB");
  EXPECT_EQ(Grouped(0), "0");
  EXPECT_EQ(Grouped(1234567), "1,234,567");
  EXPECT_EQ(Grouped(-123456), "-123,456");
}

}  // namespace
}  // namespace kvbound::cli
