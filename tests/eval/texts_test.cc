#include "eval/texts.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "testing/tiny_engine.h"

namespace kvbound::eval {
namespace {

using testing::LoadTiny;
using testing::MakeTinyModel;

const Tokenizer& Tiny() {
  static const std::shared_ptr<const Model> model = LoadTiny(MakeTinyModel());
  return model->tokenizer();
}

std::string Write(const std::string& name, const std::string& bytes) {
  const std::string path = ::testing::TempDir() + name;
  std::ofstream(path, std::ios::binary) << bytes;
  return path;
}

// Counts up, so that a window shows where it begins.
std::string Letters(size_t n) {
  std::string text;
  for (size_t i = 0; i < n; ++i) text += static_cast<char>(i % 7 == 6 ? ' ' : 'a' + i % 26);
  return text;
}

TEST(PlainText, LeavesOutGutenbergsLicence) {
  EXPECT_EQ(
      PlainText("\xef\xbb\xbfThe Project Gutenberg EBook\r\n\r\n*** START OF THIS BOOK ***\r\n"
                "Chapter 1\r\nIt was.\r\n*** END OF THIS BOOK ***\r\nLicence\r\n"),
      "Chapter 1\nIt was.");
  EXPECT_EQ(PlainText("*** START OF THE BOOK ***\nAll of it"), "All of it");
}

TEST(PlainText, LeavesOtherTextsAsTheyAre) {
  const std::string text = "He wrote *** START OF in a line.\n = Title = \n*** END OF it\n";
  EXPECT_EQ(PlainText(text), text);
  EXPECT_EQ(PlainText(""), "");
  EXPECT_EQ(PlainText("\xef\xbb\xbfWords\r\n"), "Words\n");
}

TEST(CutWindows, AreDisjointAndSpreadOverEachFile) {
  const std::string a = Write("windows_a.txt", Letters(1000));
  const std::string b = Write("windows_b.txt", Letters(400));
  const auto windows = CutWindows(Tiny(), {a, b}, 5, 50);
  ASSERT_TRUE(windows.ok()) << windows.status();
  ASSERT_EQ(windows->size(), 5u);
  for (size_t i = 0; i < 5; ++i) {
    const TextWindow& window = (*windows)[i];
    EXPECT_EQ(window.file, i < 3 ? a : b);
    EXPECT_EQ(window.tokens.size(), 50u);
    EXPECT_EQ(window.tokens[0] == *Tiny().Bos(), Tiny().AddsBos());
  }
  const int64_t n_text = Tiny().AddsBos() ? 49 : 50;
  for (size_t i : {1, 2, 4}) {
    EXPECT_GE((*windows)[i].begin, (*windows)[i - 1].begin + n_text);
  }
  const int64_t step = (*windows)[1].begin - (*windows)[0].begin;
  EXPECT_NEAR(static_cast<double>((*windows)[2].begin - (*windows)[1].begin), step, 1);
  EXPECT_NEAR(static_cast<double>((*windows)[0].begin), (step - n_text) / 2.0, 1);
}

TEST(CutWindows, HoldTheFilesTokens) {
  const std::string text = Letters(300);
  const auto windows = CutWindows(Tiny(), {Write("windows_c.txt", text)}, 2, 60);
  ASSERT_TRUE(windows.ok()) << windows.status();
  const auto all = Tiny().Encode(text, {.add_special = false, .parse_special = false});
  ASSERT_TRUE(all.ok());
  for (const TextWindow& window : *windows) {
    const size_t n_special = Tiny().AddsBos() ? 1 : 0;
    for (size_t i = n_special; i < window.tokens.size(); ++i) {
      EXPECT_EQ(window.tokens[i], (*all)[window.begin + i - n_special]);
    }
  }
}

TEST(CutWindows, FillAFileThatIsJustLongEnough) {
  const std::string text = Letters(120);
  const auto all = Tiny().Encode(text, {.add_special = false, .parse_special = false});
  const int32_t length = static_cast<int32_t>(all->size()) / 2 + (Tiny().AddsBos() ? 1 : 0);
  const std::string file = Write("windows_d.txt", text);
  EXPECT_TRUE(CutWindows(Tiny(), {file}, 2, length).ok());
  EXPECT_FALSE(CutWindows(Tiny(), {file}, 2, length + 1).ok());
}

void ExpectRefused(const Result<std::vector<TextWindow>>& result, StatusCode code,
                   const std::string& text) {
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.status().code(), code) << result.status();
  EXPECT_NE(result.status().message().find(text), std::string::npos) << result.status();
}

TEST(CutWindows, RefuseBadInput) {
  const std::string text = Write("windows_short.txt", Letters(30));
  ExpectRefused(CutWindows(Tiny(), {text, text}, 4, 50), StatusCode::kInvalidArgument,
                "windows_short.txt: expected at least ");
  ExpectRefused(CutWindows(Tiny(), {"/no/such.txt"}, 1, 50), StatusCode::kNotFound, "/no/such.txt");
  ExpectRefused(CutWindows(Tiny(), {Write("windows_empty.txt", "")}, 1, 50),
                StatusCode::kInvalidArgument, "windows_empty.txt");
  ExpectRefused(CutWindows(Tiny(), {Write("windows_bytes.txt", "ab\xff\xfe")}, 1, 50),
                StatusCode::kInvalidArgument, "windows_bytes.txt");
  ExpectRefused(CutWindows(Tiny(), {}, 1, 50), StatusCode::kInvalidArgument, "expected files");
  ExpectRefused(CutWindows(Tiny(), {text}, 0, 50), StatusCode::kInvalidArgument, "expected files");
  ExpectRefused(CutWindows(Tiny(), {text}, 1, 1), StatusCode::kInvalidArgument, "expected files");
}

}  // namespace
}  // namespace kvbound::eval
