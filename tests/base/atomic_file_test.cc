#include "base/atomic_file.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "testing/expect_refused.h"
#include "testing/gguf_writer.h"

namespace kvbound {
namespace {

using testing::ExpectRefused;
using testing::MakeTempDir;
namespace fs = std::filesystem;

std::vector<uint8_t> ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

size_t NumFiles(const std::string& dir) {
  return static_cast<size_t>(std::distance(fs::directory_iterator(dir), fs::directory_iterator()));
}

TEST(AtomicFileTest, WritesAllPiecesAndReplaces) {
  const std::string dir = MakeTempDir();
  const std::string path = dir + "/file";
  const std::vector<uint8_t> a = {1, 2, 3}, b = {4}, none;
  ASSERT_TRUE(WriteFileAtomically(path, {a, none, b}).ok());
  EXPECT_EQ(ReadFile(path), (std::vector<uint8_t>{1, 2, 3, 4}));
  ASSERT_TRUE(WriteFileAtomically(path, {b}).ok());
  EXPECT_EQ(ReadFile(path), b);
  EXPECT_EQ(NumFiles(dir), 1u);
}

TEST(AtomicFileTest, RefusesWhatIsNoFile) {
  const std::string dir = MakeTempDir();
  const std::vector<uint8_t> bytes = {1};
  ExpectRefused(WriteFileAtomically("", {bytes}), {"the path of a file"});
  ExpectRefused(WriteFileAtomically(dir, {bytes}), {dir, "a directory"});
  ExpectRefused(WriteFileAtomically("/dev/null", {bytes}), {"/dev/null", "a special file"});
  ExpectRefused(WriteFileAtomically(dir + "/no/file", {bytes}),
                {dir + "/no/file", "cannot create", "No such file"});
  EXPECT_EQ(NumFiles(dir), 0u);
}

// A limit on the size of files stands for a full device.
TEST(AtomicFileTest, NoSpaceLeavesTheOldFile) {
  const std::string dir = MakeTempDir();
  const std::string path = dir + "/file";
  const std::vector<uint8_t> old = {7, 7};
  ASSERT_TRUE(WriteFileAtomically(path, {old}).ok());
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = signal(SIGXFSZ, SIG_IGN);
  const rlimit small = {4096, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const std::vector<uint8_t> large(10000, 1);
  const Status status = WriteFileAtomically(path, {large});
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  signal(SIGXFSZ, handler);
  ExpectRefused(status, {path, "cannot write", "File too large"});
  EXPECT_EQ(ReadFile(path), old);
  EXPECT_EQ(NumFiles(dir), 1u);
}

}  // namespace
}  // namespace kvbound
