// Headers that are wrong in one place: counts, lengths, types, alignment, offsets, truncation.

#include "model/gguf_parser.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "model/gguf_file.h"
#include "testing/expect_refused.h"
#include "testing/gguf_writer.h"

namespace kvbound {
namespace {

using testing::Bytes32;
using testing::Bytes64;
using testing::BytesString;
using testing::ExpectRefused;
using testing::GgufBytes;
using testing::GgufSpec;

constexpr uint32_t kStringType = 8, kArrayType = 9, kU64Type = 10;

// Two keys and two tensors, valid.
GgufSpec SmallSpec() {
  GgufSpec spec;
  spec.Set(testing::StringKey("general.name", "small")).Set(testing::U32Key("x.count", 7));
  spec.tensors = {testing::F32Tensor("first", {3, 5}, std::vector<float>(15, 1.0f)),
                  testing::F32Tensor("second", {4}, {1, 2, 3, 4})};
  return spec;
}

Status ReadStatus(const GgufBytes& bytes) { return GgufFile::FromMemory(bytes, "t.gguf").status(); }
Status ReadStatus(const GgufSpec& spec) { return ReadStatus(BuildGguf(spec)); }

// A file of one key and no tensors, whose record is `record` and nothing more.
GgufBytes OneKey(const std::string& record) {
  const std::string text = "GGUF" + Bytes32(3) + Bytes64(0) + Bytes64(1) + record;
  return GgufBytes(text.begin(), text.end());
}

TEST(GgufParserTest, ReadsASmallFile) {
  for (const uint32_t version : {2u, 3u}) {
    GgufSpec spec = SmallSpec();
    spec.version = version;
    EXPECT_TRUE(ReadStatus(spec).ok()) << ReadStatus(spec);
  }
}

TEST(GgufParserTest, RefusesOtherMagicAndVersions) {
  GgufSpec spec = SmallSpec();
  spec.magic = "GGML";
  ExpectRefused(ReadStatus(spec), {"t.gguf", "'GGUF'", "'GGML'"});
  spec.magic = "GGUF";
  spec.version = 1;
  ExpectRefused(ReadStatus(spec), {"version", "found 1", "rewrite it as version 3"});
  spec.version = 3u << 24;
  ExpectRefused(ReadStatus(spec), {"big-endian"});
  for (const uint32_t version : {0u, 4u, 1000u}) {
    spec.version = version;
    ExpectRefused(ReadStatus(spec), {"version", "expected 2 or 3", std::to_string(version)});
  }
}

TEST(GgufParserTest, RefusesCountsThatTheFileCannotHold) {
  for (const uint64_t count : {uint64_t{1} << 17, uint64_t{1} << 40, uint64_t{1} << 59,
                               std::numeric_limits<uint64_t>::max()}) {
    GgufSpec spec = SmallSpec();
    spec.n_keys = count;
    ExpectRefused(ReadStatus(spec), {"number of keys", std::to_string(count)});
    spec = SmallSpec();
    spec.n_tensors = count;
    ExpectRefused(ReadStatus(spec), {"number of tensors", std::to_string(count)});
  }
}

TEST(GgufParserTest, RefusesLengthsThatTheFileCannotHold) {
  for (const uint64_t n :
       {uint64_t{51}, uint64_t{1} << 31, uint64_t{1} << 62, std::numeric_limits<uint64_t>::max()}) {
    const std::string number = std::to_string(n);
    ExpectRefused(ReadStatus(OneKey(Bytes64(n) + std::string(50, 'k'))), {"key 0 of 1", number});
    ExpectRefused(ReadStatus(OneKey(BytesString("a.text") + Bytes32(kStringType) + Bytes64(n) +
                                    std::string(50, 'x'))),
                  {"'a.text'", number});
    for (const uint32_t element : {0u, 4u, 7u, kStringType, kU64Type, 12u}) {
      ExpectRefused(ReadStatus(OneKey(BytesString("a.list") + Bytes32(kArrayType) +
                                      Bytes32(element) + Bytes64(n) + std::string(50, '\0'))),
                    {"'a.list'", number});
    }
  }
  const GgufBytes second_long =
      OneKey(BytesString("a.list") + Bytes32(kArrayType) + Bytes32(kStringType) + Bytes64(2) +
             BytesString("ok") + Bytes64(1000) + std::string(30, 'x'));
  ExpectRefused(ReadStatus(second_long), {"'a.list'", "element 1", "1000"});
}

TEST(GgufParserTest, RefusesNestedArraysAndUnknownTypesByKey) {
  const std::string nested =
      Bytes32(kArrayType) + Bytes32(kArrayType) + Bytes64(1) + Bytes32(0) + Bytes64(1) + "x";
  ExpectRefused(ReadStatus(OneKey(BytesString("a.nested") + nested)), {"'a.nested'", "arrays"});
  std::string deep = Bytes32(kArrayType);
  for (int i = 0; i < 30000; ++i) deep += Bytes32(kArrayType) + Bytes64(1);
  ExpectRefused(ReadStatus(OneKey(BytesString("a.deep") + deep)), {"'a.deep'"});
  for (const uint32_t type : {13u, 99u, 0xFFFFFFFFu}) {
    const std::string number = std::to_string(type);
    ExpectRefused(ReadStatus(OneKey(BytesString("a.new") + Bytes32(type) + std::string(64, '\0'))),
                  {"'a.new'", number});
    ExpectRefused(ReadStatus(OneKey(BytesString("a.new") + Bytes32(kArrayType) + Bytes32(type) +
                                    Bytes64(1) + std::string(64, '\0'))),
                  {"'a.new'", number});
  }
}

TEST(GgufParserTest, RefusesDuplicateAndEmptyKeys) {
  GgufSpec spec = SmallSpec();
  spec.keys.push_back(testing::U32Key("x.count", 7));
  ExpectRefused(ReadStatus(spec), {"'x.count'", "twice"});
  spec.keys.back() = testing::U32Key("", 7);
  ExpectRefused(ReadStatus(spec), {"key 2 of 3", "0 bytes"});
}

TEST(GgufParserTest, ChecksTheAlignment) {
  for (const uint32_t alignment : {0u, 1u, 3u, 4u, 33u, 1u << 21, 1u << 31}) {
    GgufSpec spec = SmallSpec();
    spec.Set(testing::U32Key("general.alignment", alignment));
    ExpectRefused(ReadStatus(spec), {"'general.alignment'", std::to_string(alignment)});
  }
  GgufSpec spec = SmallSpec();
  for (const testing::GgufKey& key :
       {testing::NumberKey("general.alignment", GgufType::kI32, 32),
        testing::NumberKey("general.alignment", GgufType::kU64, 32),
        testing::NumberKey("general.alignment", GgufType::kF32, 32),
        testing::StringKey("general.alignment", "32"),
        testing::NumbersKey("general.alignment", GgufType::kU32, {32})}) {
    ExpectRefused(ReadStatus(spec.Set(key)), {"'general.alignment'", "u32"});
  }
  for (const uint32_t alignment : {8u, 16u, 64u, 4096u}) {
    spec.alignment = alignment;
    spec.Set(testing::U32Key("general.alignment", alignment));
    const GgufBytes bytes = BuildGguf(spec);
    const Result<GgufFile> file = GgufFile::FromMemory(bytes);
    ASSERT_TRUE(file.ok()) << file.status();
    const GgufTensor* second = file->FindTensor("second");
    float value;
    std::memcpy(&value, second->data + 4, sizeof(value));
    EXPECT_EQ(value, 2.0f);
    EXPECT_EQ(second->offset % alignment, 0u);
  }
}

TEST(GgufParserTest, LoadsOddBooleansOfUnknownKeys) {
  GgufSpec spec = SmallSpec();
  spec.Set(testing::RawKey("x.flag", Bytes32(7) + "\x02"));
  const GgufBytes bytes = BuildGguf(spec);
  const Result<GgufFile> file = GgufFile::FromMemory(bytes);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_TRUE(*file->GetBool("x.flag"));
}

TEST(GgufParserTest, RefusesBadTensorInfosByName) {
  const auto with = [](auto change) {
    GgufSpec spec = SmallSpec();
    change(spec.Tensor("second"));
    return ReadStatus(spec);
  };
  using Spec = testing::GgufTensorSpec;
  ExpectRefused(with([](Spec& t) { t.n_dims = 5; }), {"'second'", "dimensions", "5"});
  ExpectRefused(with([](Spec& t) { t.n_dims = 0; }), {"'second'", "dimensions", "0"});
  ExpectRefused(with([](Spec& t) { t.n_dims = 0xFFFFFFFF; }), {"'second'", "dimensions"});
  ExpectRefused(with([](Spec& t) { t.dims = {0}; }), {"'second'", "dimension 0", "found 0"});
  ExpectRefused(with([](Spec& t) { t.dims = {4, -1}; }), {"'second'", "dimension 1", "-1"});
  for (const int64_t dim : {int64_t{1} << 62, std::numeric_limits<int64_t>::max()}) {
    ExpectRefused(with([&](Spec& t) { t.dims = {dim, dim}; }), {"'second'", "2^63"});
  }
  ExpectRefused(with([](Spec& t) {
                  t.dims = {int64_t{1} << 32, int64_t{1} << 32, 1, 4};
                }),
                {"'second'", "2^63"});
  for (const uint32_t type : {4u, 5u, 36u, 1000u, 0xFFFFFFFFu}) {
    ExpectRefused(with([&](Spec& t) { t.type = type; }), {"'second'", std::to_string(type)});
  }
  ExpectRefused(with([](Spec& t) { t.type = GGML_TYPE_Q4_0; }), {"'second'", "32", "q4_0"});
  ExpectRefused(with([](Spec& t) { t.name = ""; }), {"tensor 1 of 2", "0 bytes"});
  ExpectRefused(with([](Spec& t) { t.name = std::string(64, 'n'); }), {"tensor 1 of 2", "64"});
  ExpectRefused(with([](Spec& t) { t.name = std::string("a\0b", 3); }), {"zero byte"});
  ExpectRefused(with([](Spec& t) { t.name = "first"; }), {"'first'", "twice"});
}

TEST(GgufParserTest, RefusesBadOffsetsByName) {
  const auto at = [](uint64_t offset) {
    GgufSpec spec = SmallSpec();
    spec.Tensor("second").offset = offset;
    return ReadStatus(spec);
  };
  ExpectRefused(at(65), {"'second'", "multiple of 32", "65"});
  ExpectRefused(at(32), {"'second'", "inside tensor 'first'"});
  ExpectRefused(at(0), {"inside tensor"});
  ExpectRefused(at(64 + 32), {"'second'", "16 bytes are missing"});
  ExpectRefused(at(std::numeric_limits<uint64_t>::max() - 31), {"'second'", "inside the file"});
  ExpectRefused(at(uint64_t{1} << 40), {"'second'", "missing"});
}

TEST(GgufParserTest, AllowsGapsAndAnyOrder) {
  GgufSpec spec = SmallSpec();
  spec.Tensor("second").offset = 128;
  spec.tail = std::string(96, '\0');
  EXPECT_TRUE(ReadStatus(spec).ok()) << ReadStatus(spec);
}

// Every prefix of a file is refused, and says that something is missing where that is known.
TEST(GgufParserTest, RefusesEveryTruncation) {
  GgufSpec spec = SmallSpec();
  spec.Set(testing::StringsKey("x.list", {"a", "", "ccc"}))
      .Set(testing::NumbersKey("x.numbers", GgufType::kF64, {1, 2, 3}));
  GgufBytes bytes = BuildGguf(spec);
  bytes.resize(bytes.size() - 16);  // the padding after the last tensor is not needed
  ASSERT_TRUE(ReadStatus(bytes).ok());
  for (size_t size = 0; size < bytes.size(); ++size) {
    // A copy of exact size, so that a sanitizer sees any read past the end.
    const GgufBytes cut(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(size));
    ExpectRefused(ReadStatus(cut), {"t.gguf", "expected", "found"});
  }
  bytes.pop_back();
  ExpectRefused(ReadStatus(bytes), {"'second'", "1 bytes are missing"});
}

// Any single wrong byte gives a result, whichever it is, and no undefined behaviour.
TEST(GgufParserTest, SurvivesEveryFlippedBit) {
  const GgufBytes bytes = BuildGguf(SmallSpec());
  for (size_t i = 0; i < bytes.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      GgufBytes flipped = bytes;
      flipped[i] ^= static_cast<uint8_t>(1 << bit);
      static_cast<void>(ReadStatus(flipped));
    }
  }
}

}  // namespace
}  // namespace kvbound
