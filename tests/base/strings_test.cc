#include "base/strings.h"

#include <gtest/gtest.h>

#include <string>

namespace kvbound {
namespace {

TEST(StrCat, JoinsTextAndNumbers) {
  EXPECT_EQ(StrCat("expected ", 4, ", found ", -1), "expected 4, found -1");
}

TEST(Printable, LeavesTextAlone) {
  EXPECT_EQ(Printable("llama.block_count"), "llama.block_count");
  EXPECT_EQ(Printable("caf\xC3\xA9 \xF0\x9F\x98\xB8"), "caf\xC3\xA9 \xF0\x9F\x98\xB8");
  EXPECT_EQ(Printable(""), "");
}

TEST(Printable, EscapesControlCharacters) {
  EXPECT_EQ(Printable(std::string("a\0b\n\x1b[2J\x7f", 9)), "a\\x00b\\x0a\\x1b[2J\\x7f");
  EXPECT_EQ(Printable("\xC2\x9B"
                      "0m"),
            "\\xc2\\x9b0m")
      << "the C1 form of ESC [";
}

TEST(Printable, EscapesInvalidUtf8ByteByByte) {
  EXPECT_EQ(Printable("\xFF"), "\\xff");
  EXPECT_EQ(Printable("\xE2\x82"), "\\xe2\\x82") << "cut";
  EXPECT_EQ(Printable("\xC0\x80"), "\\xc0\\x80") << "overlong";
  EXPECT_EQ(Printable("\xED\xA0\x80"), "\\xed\\xa0\\x80") << "surrogate";
  EXPECT_EQ(Printable("\xF4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80") << "beyond U+10FFFF";
}

TEST(Printable, CutsBetweenCharacters) {
  EXPECT_EQ(Printable(std::string(100, 'x'), 10), std::string(10, 'x') + "...");
  EXPECT_EQ(Printable("abc\xC3\xA9", 4), "abc...");
  EXPECT_EQ(Printable("abcd", 4), "abcd");
}

}  // namespace
}  // namespace kvbound
