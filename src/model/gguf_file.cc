#include "model/gguf_file.h"

#include <cstdio>
#include <optional>
#include <utility>

#include "base/strings.h"
#include "model/gguf_parser.h"

namespace kvbound {
namespace {

constexpr std::string_view kSplitNo = "split.no";
constexpr std::string_view kSplitCount = "split.count";
constexpr std::string_view kSplitTensors = "split.tensors.count";

// "PREFIX-00002-of-00005.gguf" taken apart.
struct ShardName {
  std::string prefix;
  uint64_t number = 0;  // from 1
  uint64_t count = 0;
};

std::optional<ShardName> ParseShardName(const std::string& path) {
  constexpr size_t kSuffix = std::string_view("-00001-of-00001.gguf").size();
  if (path.size() <= kSuffix) return std::nullopt;
  const std::string suffix = path.substr(path.size() - kSuffix);
  unsigned number = 0, count = 0;
  int length = 0;
  if (std::sscanf(suffix.c_str(), "-%5u-of-%5u.gguf%n", &number, &count, &length) != 2 ||
      length != static_cast<int>(kSuffix)) {
    return std::nullopt;
  }
  return ShardName{path.substr(0, path.size() - kSuffix), number, count};
}

std::string FormatShardName(std::string_view prefix, uint64_t number, uint64_t count) {
  char suffix[64];
  std::snprintf(suffix, sizeof(suffix), "-%05u-of-%05u.gguf", static_cast<unsigned>(number),
                static_cast<unsigned>(count));
  return StrCat(prefix, suffix);
}

Result<FileBytes> OpenBytes(const std::string& path, const GgufOpenOptions& options) {
  return options.mmap ? FileBytes::Map(path) : FileBytes::Read(path);
}

// A later shard must say which one it is.
Status CheckShardKey(const FileBytes& bytes, const GgufHeader& header, std::string_view key,
                     uint64_t expected) {
  std::string found = "no such key";
  for (const auto& [name, value] : header.metadata) {
    if (name != key) continue;
    found = value.TypeName();
    if (!value.IsInteger()) break;
    const int64_t number = GgufNumbers(value).AsInt(0);
    if (number == static_cast<int64_t>(expected)) return Status::Ok();
    found = StrCat(number);
  }
  return Corrupt(StrCat(bytes.path(), ": key '", key, "': expected ", expected, ", found ", found));
}

bool IsString(const GgufValue& value) { return value.type == GgufType::kString; }
bool IsBool(const GgufValue& value) { return value.type == GgufType::kBool; }
bool IsInteger(const GgufValue& value) { return value.IsInteger(); }
bool IsFloat(const GgufValue& value) { return value.IsFloat(); }
bool IsStringArray(const GgufValue& value) {
  return value.type == GgufType::kArray && value.element == GgufType::kString;
}
bool IsNumberArray(const GgufValue& value) {
  return value.type == GgufType::kArray && GgufTypeBytes(value.element) > 0;
}

}  // namespace

std::string GgufTensor::ShapeText() const {
  std::string text = "[";
  for (int i = 0; i < n_dims; ++i) text += StrCat(i == 0 ? "" : ", ", ne[i]);
  return text + "]";
}

Result<GgufFile> GgufFile::Open(const std::string& path, const GgufOpenOptions& options) {
  KVBOUND_ASSIGN_OR_RETURN(FileBytes bytes, OpenBytes(path, options));
  GgufFile file;
  KVBOUND_RETURN_IF_ERROR(file.AddShard(std::move(bytes), 1));
  KVBOUND_RETURN_IF_ERROR(file.OpenOtherShards(options));
  return file;
}

Result<GgufFile> GgufFile::FromMemory(std::span<const uint8_t> bytes, std::string name) {
  GgufFile file;
  KVBOUND_RETURN_IF_ERROR(file.AddShard(FileBytes::Borrow(bytes, std::move(name)), 1));
  KVBOUND_ASSIGN_OR_RETURN(const uint64_t count, file.GetU64Or(kSplitCount, 1));
  if (count > 1) {
    return file.KeyError(kSplitCount, "1 for a file in memory", StrCat(count));
  }
  return file;
}

Status GgufFile::AddShard(FileBytes bytes, uint64_t n_shards) {
  KVBOUND_ASSIGN_OR_RETURN(GgufHeader header, ParseGguf(bytes));
  const bool is_first = shards_.empty();
  const int shard = static_cast<int>(shards_.size());
  if (is_first) {
    version_ = header.version;
    metadata_ = std::move(header.metadata);
    for (size_t i = 0; i < metadata_.size(); ++i) key_index_.emplace(metadata_[i].first, i);
  } else {
    KVBOUND_RETURN_IF_ERROR(CheckShardKey(bytes, header, kSplitNo, shards_.size()));
    KVBOUND_RETURN_IF_ERROR(CheckShardKey(bytes, header, kSplitCount, n_shards));
  }
  for (GgufTensor& tensor : header.tensors) {
    tensor.shard = shard;
    if (!tensor_index_.emplace(tensor.name, tensors_.size()).second) {
      return Corrupt(StrCat(bytes.path(), ": tensor '", Printable(tensor.name),
                            "': expected one entry, found the same name in an earlier shard"));
    }
    tensors_.push_back(tensor);
  }
  shards_.push_back(std::move(bytes));
  return Status::Ok();
}

Status GgufFile::OpenOtherShards(const GgufOpenOptions& options) {
  KVBOUND_ASSIGN_OR_RETURN(const uint64_t count, GetU64Or(kSplitCount, 1));
  if (count <= 1) return Status::Ok();
  const std::optional<ShardName> name = ParseShardName(path());
  KVBOUND_ASSIGN_OR_RETURN(const uint64_t number, GetU64(kSplitNo));
  if (number != 0) {
    const std::string first =
        name ? StrCat("'", FormatShardName(name->prefix, 1, count), "'") : "the first shard";
    return KeyError(kSplitNo, "0, the first shard", StrCat(number, "; open ", first, " instead"));
  }
  if (!name || name->number != 1 || name->count != count) {
    return KeyError(kSplitCount, StrCat("a file name that ends in ", FormatShardName("", 1, count)),
                    StrCat("the name '", path(), "' with ", count, " shards"));
  }
  for (uint64_t i = 1; i < count; ++i) {
    const std::string shard_path = FormatShardName(name->prefix, i + 1, count);
    Result<FileBytes> bytes = OpenBytes(shard_path, options);
    if (!bytes.ok()) {
      return Status(bytes.status().code(), StrCat(path(), ": shard ", i + 1, " of ", count, ": ",
                                                  bytes.status().message()));
    }
    KVBOUND_RETURN_IF_ERROR(AddShard(std::move(*bytes), count));
  }
  KVBOUND_ASSIGN_OR_RETURN(const uint64_t n_tensors, GetU64Or(kSplitTensors, tensors_.size()));
  if (n_tensors != tensors_.size()) {
    return KeyError(kSplitTensors, StrCat(tensors_.size(), ", the tensors in all shards"),
                    StrCat(n_tensors));
  }
  return Status::Ok();
}

const GgufValue* GgufFile::Find(std::string_view key) const {
  const auto it = key_index_.find(key);
  return it == key_index_.end() ? nullptr : &metadata_[it->second].second;
}

const GgufTensor* GgufFile::FindTensor(std::string_view name) const {
  const auto it = tensor_index_.find(name);
  return it == tensor_index_.end() ? nullptr : &tensors_[it->second];
}

Status GgufFile::KeyError(std::string_view key, std::string_view expected,
                          std::string_view found) const {
  return Corrupt(
      StrCat(path(), ": key '", Printable(key), "': expected ", expected, ", found ", found));
}

Status GgufFile::TensorError(std::string_view name, std::string_view expected,
                             std::string_view found) const {
  return Corrupt(
      StrCat(path(), ": tensor '", Printable(name), "': expected ", expected, ", found ", found));
}

Result<GgufValue> GgufFile::Typed(std::string_view key, bool (*is_type)(const GgufValue&),
                                  std::string_view expected) const {
  const GgufValue* value = Find(key);
  if (value == nullptr) return KeyError(key, expected, "no such key: it is missing");
  if (!is_type(*value)) return KeyError(key, expected, value->TypeName());
  return *value;
}

Result<uint64_t> GgufFile::GetU64(std::string_view key) const {
  KVBOUND_ASSIGN_OR_RETURN(const GgufValue value, Typed(key, IsInteger, "an integer"));
  const GgufNumbers number(value);
  if (value.type == GgufType::kU64) {
    uint64_t result;
    std::memcpy(&result, value.data, sizeof(result));
    return result;
  }
  if (number.AsInt(0) < 0) return KeyError(key, "an integer >= 0", StrCat(number.AsInt(0)));
  return static_cast<uint64_t>(number.AsInt(0));
}

Result<double> GgufFile::GetF64(std::string_view key) const {
  KVBOUND_ASSIGN_OR_RETURN(const GgufValue value, Typed(key, IsFloat, "a float (f32 or f64)"));
  return GgufNumbers(value).AsDouble(0);
}

Result<bool> GgufFile::GetBool(std::string_view key) const {
  KVBOUND_ASSIGN_OR_RETURN(const GgufValue value, Typed(key, IsBool, "a bool"));
  return GgufNumbers(value).AsInt(0) != 0;
}

Result<std::string_view> GgufFile::GetString(std::string_view key) const {
  KVBOUND_ASSIGN_OR_RETURN(const GgufValue value, Typed(key, IsString, "a string"));
  return *GgufStrings(value).begin();
}

Result<GgufNumbers> GgufFile::GetNumbers(std::string_view key) const {
  KVBOUND_ASSIGN_OR_RETURN(const GgufValue value, Typed(key, IsNumberArray, "an array of numbers"));
  return GgufNumbers(value);
}

Result<GgufStrings> GgufFile::GetStrings(std::string_view key) const {
  KVBOUND_ASSIGN_OR_RETURN(const GgufValue value, Typed(key, IsStringArray, "an array of strings"));
  return GgufStrings(value);
}

Result<uint64_t> GgufFile::GetU64Or(std::string_view key, uint64_t fallback) const {
  return Has(key) ? GetU64(key) : fallback;
}

Result<double> GgufFile::GetF64Or(std::string_view key, double fallback) const {
  return Has(key) ? GetF64(key) : fallback;
}

Result<bool> GgufFile::GetBoolOr(std::string_view key, bool fallback) const {
  return Has(key) ? GetBool(key) : fallback;
}

Result<std::string_view> GgufFile::GetStringOr(std::string_view key,
                                               std::string_view fallback) const {
  return Has(key) ? GetString(key) : fallback;
}

}  // namespace kvbound
