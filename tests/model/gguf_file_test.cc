#include "model/gguf_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "base/strings.h"
#include "testing/expect_refused.h"
#include "testing/gguf_writer.h"

namespace kvbound {
namespace {

using testing::ExpectRefused;
using testing::GgufBytes;
using testing::GgufSpec;

GgufSpec TypedSpec() {
  GgufSpec spec;
  spec.Set(testing::NumberKey("n.u8", GgufType::kU8, 200))
      .Set(testing::NumberKey("n.i8", GgufType::kI8, -3))
      .Set(testing::NumberKey("n.u16", GgufType::kU16, 60000))
      .Set(testing::NumberKey("n.i32", GgufType::kI32, 70000))
      .Set(testing::NumberKey("n.u64", GgufType::kU64, 9007199254740992.0))
      .Set(testing::RawKey("n.max", testing::Bytes32(10) + testing::Bytes64(~uint64_t{0})))
      .Set(testing::F32Key("n.f32", 0.5f))
      .Set(testing::NumberKey("n.f64", GgufType::kF64, 0.1))
      .Set(testing::BoolKey("b", true))
      .Set(testing::StringKey("s", std::string("\xc3\xa9\0z", 4)))
      .Set(testing::StringsKey("s.list", {"one", "", "three"}))
      .Set(testing::NumbersKey("n.list", GgufType::kI16, {-1, 2, 3}))
      .Set(testing::NumbersKey("n.none", GgufType::kU32, {}));
  spec.tensors = {testing::F32Tensor("weights", {2, 3}, {1, 2, 3, 4, 5, 6})};
  return spec;
}

class GgufFileTest : public ::testing::Test {
 protected:
  const GgufBytes bytes_ = BuildGguf(TypedSpec());
  const Result<GgufFile> file_ = GgufFile::FromMemory(bytes_, "t.gguf");
};

TEST_F(GgufFileTest, ReadsEveryType) {
  ASSERT_TRUE(file_.ok()) << file_.status();
  EXPECT_EQ(*file_->GetU64("n.u8"), 200u);
  EXPECT_EQ(*file_->GetU64("n.u16"), 60000u);
  EXPECT_EQ(*file_->GetU64("n.i32"), 70000u);
  EXPECT_EQ(*file_->GetU64("n.u64"), uint64_t{1} << 53);
  EXPECT_EQ(*file_->GetU64("n.max"), std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(*file_->GetF64("n.f32"), 0.5);
  EXPECT_EQ(*file_->GetF64("n.f64"), 0.1);
  EXPECT_TRUE(*file_->GetBool("b"));
  EXPECT_EQ(*file_->GetString("s"), std::string("\xc3\xa9\0z", 4));
  EXPECT_EQ(file_->GetStrings("s.list")->ToVector(),
            (std::vector<std::string_view>{"one", "", "three"}));
  const GgufNumbers numbers = *file_->GetNumbers("n.list");
  ASSERT_EQ(numbers.size(), 3u);
  EXPECT_EQ(numbers.AsInt(0), -1);
  EXPECT_EQ(numbers.AsDouble(2), 3.0);
  EXPECT_EQ(file_->GetNumbers("n.none")->size(), 0u);
}

TEST_F(GgufFileTest, NamesKeyExpectedAndFound) {
  ASSERT_TRUE(file_.ok());
  ExpectRefused(file_->GetU64("absent").status(), {"t.gguf", "'absent'", "integer", "missing"});
  ExpectRefused(file_->GetU64("n.i8").status(), {"'n.i8'", ">= 0", "-3"});
  ExpectRefused(file_->GetU64("n.f32").status(), {"'n.f32'", "integer", "f32"});
  ExpectRefused(file_->GetU64("b").status(), {"'b'", "integer", "bool"});
  ExpectRefused(file_->GetF64("n.u8").status(), {"'n.u8'", "float", "u8"});
  ExpectRefused(file_->GetString("s.list").status(), {"'s.list'", "array of 3 string"});
  ExpectRefused(file_->GetStrings("n.list").status(), {"'n.list'", "array of 3 i16"});
  ExpectRefused(file_->GetNumbers("s.list").status(), {"'s.list'", "numbers"});
  ExpectRefused(file_->GetBool("n.u8").status(), {"'n.u8'", "bool", "u8"});
}

TEST_F(GgufFileTest, FallsBackOnlyWhenAbsent) {
  ASSERT_TRUE(file_.ok());
  EXPECT_EQ(*file_->GetU64Or("absent", 5), 5u);
  EXPECT_EQ(*file_->GetF64Or("absent", 0.25), 0.25);
  EXPECT_EQ(*file_->GetStringOr("absent", "none"), "none");
  EXPECT_TRUE(*file_->GetBoolOr("absent", true));
  EXPECT_EQ(*file_->GetU64Or("n.u8", 5), 200u);
  EXPECT_FALSE(file_->GetU64Or("s", 5).ok());
  EXPECT_FALSE(file_->GetBoolOr("n.u8", true).ok());
}

TEST_F(GgufFileTest, DescribesTensors) {
  ASSERT_TRUE(file_.ok());
  const GgufTensor* tensor = file_->FindTensor("weights");
  ASSERT_NE(tensor, nullptr);
  EXPECT_EQ(tensor->n_dims, 2);
  EXPECT_EQ(tensor->ShapeText(), "[2, 3]");
  EXPECT_EQ(tensor->n_bytes, 24u);
  EXPECT_EQ(tensor->n_elements(), 6u);
  EXPECT_EQ(tensor->data, bytes_.data() + tensor->offset);
  EXPECT_EQ(file_->FindTensor("other"), nullptr);
}

TEST_F(GgufFileTest, MappedAndReadFilesAreEqual) {
  const std::string path = testing::WriteTemp(bytes_);
  for (const bool mmap : {true, false}) {
    Result<GgufFile> opened = GgufFile::Open(path, {.mmap = mmap});
    ASSERT_TRUE(opened.ok()) << opened.status();
    const GgufFile file = std::move(*opened);  // views survive a move
    EXPECT_EQ(file.path(), path);
    ASSERT_EQ(file.shards().size(), 1u);
    EXPECT_EQ(file.shards()[0].size(), bytes_.size());
    EXPECT_EQ(file.shards()[0].backing(),
              mmap ? FileBytes::Backing::kMapped : FileBytes::Backing::kOwned);
    EXPECT_EQ(std::memcmp(file.FindTensor("weights")->data, file_->FindTensor("weights")->data, 24),
              0);
    EXPECT_EQ(*file.GetU64("n.u16"), 60000u);
  }
}

TEST(GgufFileOpenTest, RefusesWhatIsNoRegularFile) {
  const std::string dir = testing::MakeTempDir();
  ExpectRefused(GgufFile::Open(dir).status(), {dir, "directory"});
  ExpectRefused(GgufFile::Open(dir + "/absent.gguf").status(), {"absent.gguf", "no such file"});
  const std::string pipe = dir + "/pipe.gguf";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  ExpectRefused(GgufFile::Open(pipe).status(), {"pipe.gguf", "regular file"});
  testing::WriteFile(dir + "/empty.gguf", {});
  for (const bool mmap : {true, false}) {
    ExpectRefused(GgufFile::Open(dir + "/empty.gguf", {.mmap = mmap}).status(),
                  {"empty.gguf", "empty file"});
  }
  const std::string secret = testing::WriteTemp(BuildGguf(TypedSpec()));
  ASSERT_EQ(chmod(secret.c_str(), 0), 0);
  if (geteuid() != 0) ExpectRefused(GgufFile::Open(secret).status(), {secret, "cannot open"});
}

class ShardTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (uint32_t i = 0; i < 3; ++i) {
      GgufSpec& spec = specs_[i];
      if (i == 0) spec.Set(testing::StringKey("general.name", "sharded"));
      spec.Set(testing::NumberKey("split.no", GgufType::kU16, i))
          .Set(testing::NumberKey("split.count", GgufType::kU16, 3))
          .Set(testing::NumberKey("split.tensors.count", GgufType::kI32, 3));
      spec.tensors = {testing::F32Tensor(StrCat("t", i), {2}, {static_cast<float>(i), 0.5f})};
    }
  }

  std::string Path(int number) const { return StrCat(dir_, "/m-0000", number, "-of-00003.gguf"); }

  Result<GgufFile> WriteAndOpen() const {
    for (int i = 0; i < 3; ++i) testing::WriteFile(Path(i + 1), BuildGguf(specs_[i]));
    return GgufFile::Open(Path(1));
  }

  const std::string dir_ = testing::MakeTempDir();
  GgufSpec specs_[3];
};

TEST_F(ShardTest, OpensAllShards) {
  const Result<GgufFile> file = WriteAndOpen();
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->shards().size(), 3u);
  EXPECT_EQ(*file->GetString("general.name"), "sharded");
  for (int i = 0; i < 3; ++i) {
    const GgufTensor* tensor = file->FindTensor(StrCat("t", i));
    ASSERT_NE(tensor, nullptr);
    EXPECT_EQ(tensor->shard, i);
    float value;
    std::memcpy(&value, tensor->data, sizeof(value));
    EXPECT_EQ(value, static_cast<float>(i));
  }
}

TEST_F(ShardTest, NamesAMissingShard) {
  ASSERT_TRUE(WriteAndOpen().ok());
  ASSERT_EQ(unlink(Path(3).c_str()), 0);
  ExpectRefused(GgufFile::Open(Path(1)).status(), {Path(3), "shard 3 of 3", "no such file"});
}

TEST_F(ShardTest, RefusesAnotherShardThanTheFirst) {
  ASSERT_TRUE(WriteAndOpen().ok());
  ExpectRefused(GgufFile::Open(Path(2)).status(), {Path(2), "split.no", Path(1)});
}

TEST_F(ShardTest, RefusesAWrongName) {
  ASSERT_TRUE(WriteAndOpen().ok());
  const std::string renamed = dir_ + "/renamed.gguf";
  testing::WriteFile(renamed, BuildGguf(specs_[0]));
  ExpectRefused(GgufFile::Open(renamed).status(), {renamed, "-00001-of-00003.gguf"});
}

TEST_F(ShardTest, ChecksEveryShard) {
  specs_[1].Set(testing::NumberKey("split.no", GgufType::kU16, 2));
  ExpectRefused(WriteAndOpen().status(), {Path(2), "split.no", "expected 1", "found 2"});
  specs_[1].Drop("split.no");
  ExpectRefused(WriteAndOpen().status(), {Path(2), "split.no", "no such key"});
  SetUp();
  specs_[2].Set(testing::NumberKey("split.count", GgufType::kU16, 4));
  ExpectRefused(WriteAndOpen().status(), {Path(3), "split.count", "expected 3", "found 4"});
  SetUp();
  specs_[0].Set(testing::NumberKey("split.tensors.count", GgufType::kI32, 4));
  ExpectRefused(WriteAndOpen().status(), {"split.tensors.count", "3", "found 4"});
  SetUp();
  specs_[2].tensors[0].name = "t0";
  ExpectRefused(WriteAndOpen().status(), {Path(3), "'t0'", "earlier shard"});
  SetUp();
  specs_[2].tensors[0].dims = {200};
  ExpectRefused(WriteAndOpen().status(), {Path(3), "'t2'", "missing"});
}

TEST_F(ShardTest, RefusesShardsInMemory) {
  const GgufBytes bytes = BuildGguf(specs_[0]);
  ExpectRefused(GgufFile::FromMemory(bytes).status(), {"split.count", "3"});
}

}  // namespace
}  // namespace kvbound
