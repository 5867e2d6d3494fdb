#include "text/utf8.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace kvbound {
namespace {

using namespace std::string_literals;

TEST(Utf8, ReadsEveryScalarValue) {
  for (uint32_t c = 0; c < 0x110000; ++c) {
    if (c >= 0xD800 && c < 0xE000) continue;
    const std::string bytes = EncodeUtf8(c);
    const Utf8Unit unit = ReadUtf8(bytes);
    ASSERT_TRUE(unit.valid) << c;
    ASSERT_EQ(unit.length, bytes.size()) << c;
    ASSERT_EQ(unit.code_point, c);
  }
}

TEST(Utf8, RefusesIllFormedBytesByOffset) {
  struct Case {
    std::string bytes;
    size_t offset;
  };
  const std::vector<Case> cases = {
      {"\xF4\x90\x80\x80"s, 0},      // beyond U+10FFFF
      {"ab\xF5\x80\x80\x80"s, 2},    // no such first byte
      {"\xC0\xAF"s, 0},              // overlong
      {"\xC1\xBF"s, 0},              //
      {"\xE0\x9F\xBF"s, 0},          //
      {"\xF0\x8F\xBF\xBF"s, 0},      //
      {"x\xED\xA0\x80"s, 1},         // surrogate
      {"\xED\xBF\xBF"s, 0},          //
      {"\x80"s, 0},                  // continuation alone
      {"12345678\xFF"s, 8},          // after a whole machine word
      {"1234567\xC3\xA9\xC3("s, 9},  // second byte missing
      {"price 5 \xE2\x82"s, 8},      // cut off
      {"\xF0\x9F\x98\xB8\xF0\x9F\x98"s, 4},
  };
  for (const Case& c : cases) EXPECT_EQ(FindInvalidUtf8(c.bytes), c.offset) << c.bytes;
  EXPECT_EQ(FindInvalidUtf8("plain, \0 and \xF0\x9F\x98\xB8\xC3\xA9"s), std::string::npos);
  EXPECT_EQ(FindInvalidUtf8(""), std::string::npos);
}

TEST(Utf8, StretchesAreMaximal) {
  EXPECT_EQ(ReadUtf8("\xF0\x9F\x98").length, 3u);
  EXPECT_TRUE(ReadUtf8("\xF0\x9F\x98").incomplete);
  EXPECT_EQ(ReadUtf8("\xF0\x9F\x98x").length, 3u);
  EXPECT_FALSE(ReadUtf8("\xF0\x9F\x98x").incomplete);
  EXPECT_EQ(ReadUtf8("\xF4\x90\x80\x80").length, 1u);
  EXPECT_EQ(ReadUtf8("\xED\xA0\x80").length, 1u);
}

TEST(Utf8, MessageGivesNameOffsetAndBytes) {
  EXPECT_TRUE(CheckUtf8("p.txt", "fine").ok());
  const Status status = CheckUtf8("p.txt", "ok \xF4\x90\x80\x80 more");
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), "p.txt: byte 3: expected UTF-8, found F4 90 80 80 ...");
  EXPECT_NE(CheckUtf8("p", "5 \xE2\x82").message().find("byte 2"), std::string::npos);
  EXPECT_NE(CheckUtf8("p", "5 \xE2\x82").message().find("cuts off"), std::string::npos);
}

}  // namespace
}  // namespace kvbound
