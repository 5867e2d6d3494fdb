#include "kvbound/prompt_file.h"

#include <gtest/gtest.h>

#include <mutex>
#include <string>
#include <vector>

#include "kvbound/log.h"
#include "testing/gguf_writer.h"

namespace kvbound {
namespace {

using namespace std::string_literals;

Result<std::string> Read(const std::string& bytes) {
  return ReadPromptFile(testing::WriteTemp({bytes.begin(), bytes.end()}, "prompt.txt"));
}

TEST(PromptFile, KeepsEveryByte) {
  for (const std::string& text :
       {"one two"s, "one two\n"s, "one two\n\n"s, "\n"s, "one\r\ntwo\r\n"s, "left\0right"s, "\0"s,
        " \xF0\x9F\x98\xB8 "s, "middle \xEF\xBB\xBF mark"s}) {
    const Result<std::string> read = Read(text);
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(*read, text);
  }
}

TEST(PromptFile, RemovesOneByteOrderMarkWithAWarning) {
  std::vector<std::string> warnings;
  SetLogSink([&](LogLevel level, std::string_view line) {
    if (level == LogLevel::kWarning) warnings.emplace_back(line);
  });
  EXPECT_EQ(*Read("\xEF\xBB\xBFtext"), "text");
  EXPECT_EQ(*Read("\xEF\xBB\xBF\xEF\xBB\xBFtext"), "\xEF\xBB\xBFtext");
  SetLogSink(nullptr);
  ASSERT_EQ(warnings.size(), 2u);
  EXPECT_NE(warnings[0].find("byte order mark"), std::string::npos);
}

TEST(PromptFile, RefusesEmptyText) {
  for (const std::string& text : {""s, "\xEF\xBB\xBF"s}) {
    const Result<std::string> read = Read(text);
    ASSERT_FALSE(read.ok());
    EXPECT_EQ(read.status().code(), StatusCode::kInvalidArgument);
    EXPECT_NE(read.status().message().find("prompt.txt"), std::string::npos);
    EXPECT_NE(read.status().message().find("0 bytes"), std::string::npos);
  }
}

TEST(PromptFile, RefusesBytesThatAreNoTextByOffset) {
  const std::string bad = "ok \xF4\x90\x80\x80 \xFF \xC3( \xED\xA0\x80 end";
  EXPECT_NE(Read(bad).status().message().find("byte 3"), std::string::npos);
  EXPECT_NE(Read("price 5 \xE2\x82").status().message().find("byte 8"), std::string::npos);
  EXPECT_NE(Read("\xEF\xBB\xBF\xFF").status().message().find("byte 3"), std::string::npos);
}

TEST(PromptFile, RefusesWhatCannotBeRead) {
  EXPECT_EQ(ReadPromptFile("/no/such/file").status().code(), StatusCode::kNotFound);
  const Result<std::string> folder = ReadPromptFile(testing::MakeTempDir());
  ASSERT_FALSE(folder.ok());
  EXPECT_EQ(folder.status().code(), StatusCode::kIo);
  const Result<std::string> endless = ReadPromptFile("/dev/zero");
  ASSERT_FALSE(endless.ok());
  EXPECT_NE(endless.status().message().find("at most"), std::string::npos);
}

}  // namespace
}  // namespace kvbound
