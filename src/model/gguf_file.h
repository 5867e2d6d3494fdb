#ifndef KVBOUND_MODEL_GGUF_FILE_H_
#define KVBOUND_MODEL_GGUF_FILE_H_

#include <ggml.h>

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "kvbound/status.h"
#include "model/file_bytes.h"
#include "model/gguf_value.h"

namespace kvbound {

struct GgufOpenOptions {
  bool mmap = true;  // false: read the files into memory, so that later changes of them do no harm
};

// One tensor of the directory. Its bytes are proven to lie inside the file.
struct GgufTensor {
  std::string_view name;
  ggml_type type = GGML_TYPE_F32;
  int n_dims = 0;                            // 1..4
  std::array<int64_t, 4> ne = {1, 1, 1, 1};  // ggml order: fastest first
  uint64_t n_bytes = 0;
  uint64_t offset = 0;            // of the first byte, from the start of its shard
  const uint8_t* data = nullptr;  // aligned to the file's alignment when mapped
  int shard = 0;

  uint64_t n_elements() const { return static_cast<uint64_t>(ne[0] * ne[1] * ne[2] * ne[3]); }
  // "[32, 286]", ggml order.
  std::string ShapeText() const;
};

// The metadata and tensor directory of a GGUF file (version 2 or 3, little endian), or of all
// shards of one. Every byte of the headers is checked on opening, so that ggml and llama may read
// the file afterwards. Immutable: safe to read from several threads. Views stay valid as long as
// the object, moves included.
//
// Errors name the file and the key or tensor, what was expected and what was found.
class GgufFile {
 public:
  // Opens `path`. If it is the first of several shards (X-00001-of-0000N.gguf) the others are
  // opened too; another shard than the first is refused with the first one's name.
  static Result<GgufFile> Open(const std::string& path, const GgufOpenOptions& options = {});

  // Reads a file that is in memory; `bytes` must outlive the result. Sharded files are refused.
  static Result<GgufFile> FromMemory(std::span<const uint8_t> bytes, std::string name = "memory");

  GgufFile(GgufFile&&) noexcept = default;
  GgufFile& operator=(GgufFile&&) noexcept = default;

  const std::string& path() const { return shards_.front().path(); }
  uint32_t version() const { return version_; }

  // The files behind this object, first shard first: path, address, size, mapped or not.
  const std::vector<FileBytes>& shards() const { return shards_; }

  // ---- Metadata (of the first shard)

  // Keys in the order of the file.
  const std::vector<std::pair<std::string_view, GgufValue>>& metadata() const { return metadata_; }
  const GgufValue* Find(std::string_view key) const;  // nullptr when absent
  bool Has(std::string_view key) const { return Find(key) != nullptr; }

  // The value of a required key. Fails when the key is absent or of another type. An integer may
  // have any integer type that holds a value >= 0; a float may be f32 or f64.
  Result<uint64_t> GetU64(std::string_view key) const;
  Result<double> GetF64(std::string_view key) const;
  Result<bool> GetBool(std::string_view key) const;
  Result<std::string_view> GetString(std::string_view key) const;
  Result<GgufNumbers> GetNumbers(std::string_view key) const;  // array of any number type
  Result<GgufStrings> GetStrings(std::string_view key) const;

  // The same for an optional key: `fallback` when it is absent, an error when its type is wrong.
  Result<uint64_t> GetU64Or(std::string_view key, uint64_t fallback) const;
  Result<double> GetF64Or(std::string_view key, double fallback) const;
  Result<bool> GetBoolOr(std::string_view key, bool fallback) const;
  Result<std::string_view> GetStringOr(std::string_view key, std::string_view fallback) const;

  // "FILE: key 'KEY': expected EXPECTED, found FOUND", for a caller's own checks.
  Status KeyError(std::string_view key, std::string_view expected, std::string_view found) const;
  // "FILE: tensor 'NAME': expected EXPECTED, found FOUND".
  Status TensorError(std::string_view name, std::string_view expected,
                     std::string_view found) const;

  // ---- Tensors (of all shards, in the order of the files)

  const std::vector<GgufTensor>& tensors() const { return tensors_; }
  const GgufTensor* FindTensor(std::string_view name) const;  // nullptr when absent

 private:
  GgufFile() = default;
  Status AddShard(FileBytes bytes, uint64_t n_shards);
  Status OpenOtherShards(const GgufOpenOptions& options);
  Result<GgufValue> Typed(std::string_view key, bool (*is_type)(const GgufValue&),
                          std::string_view expected) const;

  std::vector<FileBytes> shards_;
  uint32_t version_ = 0;
  std::vector<std::pair<std::string_view, GgufValue>> metadata_;
  std::vector<GgufTensor> tensors_;
  std::unordered_map<std::string_view, size_t> key_index_;
  std::unordered_map<std::string_view, size_t> tensor_index_;
};

}  // namespace kvbound

#endif  // KVBOUND_MODEL_GGUF_FILE_H_
