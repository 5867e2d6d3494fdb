#ifndef KVBOUND_TESTING_GGUF_WRITER_H_
#define KVBOUND_TESTING_GGUF_WRITER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/gguf_value.h"

namespace kvbound::testing {

using GgufBytes = std::vector<uint8_t>;

// One metadata record. `bytes` is everything after the key: value type and value.
struct GgufKey {
  std::string name;
  std::string bytes;
};

GgufKey NumberKey(std::string name, GgufType type, double value);
GgufKey U32Key(std::string name, uint32_t value);
GgufKey F32Key(std::string name, float value);
GgufKey BoolKey(std::string name, bool value);
GgufKey StringKey(std::string name, std::string_view value);
GgufKey NumbersKey(std::string name, GgufType element, const std::vector<double>& values);
GgufKey StringsKey(std::string name, const std::vector<std::string>& values);
// The record with `bytes` as they are, right or wrong.
GgufKey RawKey(std::string name, std::string bytes);

// Little-endian pieces for raw records.
std::string Bytes32(uint32_t value);
std::string Bytes64(uint64_t value);
std::string BytesString(std::string_view value);  // u64 length and text

struct GgufTensorSpec {
  std::string name;
  std::vector<int64_t> dims;  // ggml order: fastest first
  std::vector<uint8_t> data;
  uint32_t type = 0;               // ggml's number; 0 is f32
  std::optional<uint64_t> offset;  // written in place of the right one
  std::optional<uint32_t> n_dims;  // written in place of the right one
};

GgufTensorSpec F32Tensor(std::string name, std::vector<int64_t> dims,
                         const std::vector<float>& values);

// A GGUF file, each field of which can be made wrong on its own.
struct GgufSpec {
  std::vector<GgufKey> keys;
  std::vector<GgufTensorSpec> tensors;
  uint64_t alignment = 32;
  uint32_t version = 3;
  std::string magic = "GGUF";
  std::optional<uint64_t> n_keys;     // announced in place of the right number
  std::optional<uint64_t> n_tensors;  // announced in place of the right number
  std::string tail;                   // after the last tensor

  GgufSpec& Set(GgufKey key);  // replaces the key of this name, or appends
  GgufSpec& Drop(std::string_view name);
  GgufSpec& DropTensor(std::string_view name);
  GgufTensorSpec& Tensor(std::string_view name);  // REQUIRES: present
};

GgufBytes BuildGguf(const GgufSpec& spec);

// Writes `bytes` to a file of this name in a folder of its own, which is removed when the process
// ends, and returns the path.
std::string WriteTemp(const GgufBytes& bytes, const std::string& name = "model.gguf");

// A new empty folder, removed when the process ends.
std::string MakeTempDir();
void WriteFile(const std::string& path, const GgufBytes& bytes);

}  // namespace kvbound::testing

#endif  // KVBOUND_TESTING_GGUF_WRITER_H_
