#include "testing/gguf_writer.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <utility>

namespace kvbound::testing {
namespace {

template <typename T>
std::string BytesOf(T value) {
  return std::string(reinterpret_cast<const char*>(&value), sizeof(value));
}

std::string NumberBytes(GgufType type, double value) {
  switch (type) {
    case GgufType::kU8:
    case GgufType::kBool:
      return BytesOf(static_cast<uint8_t>(value));
    case GgufType::kI8:
      return BytesOf(static_cast<int8_t>(value));
    case GgufType::kU16:
      return BytesOf(static_cast<uint16_t>(value));
    case GgufType::kI16:
      return BytesOf(static_cast<int16_t>(value));
    case GgufType::kU32:
      return BytesOf(static_cast<uint32_t>(value));
    case GgufType::kI32:
      return BytesOf(static_cast<int32_t>(value));
    case GgufType::kF32:
      return BytesOf(static_cast<float>(value));
    case GgufType::kU64:
      return BytesOf(static_cast<uint64_t>(value));
    case GgufType::kI64:
      return BytesOf(static_cast<int64_t>(value));
    case GgufType::kF64:
      return BytesOf(value);
    case GgufType::kString:
    case GgufType::kArray:
      break;
  }
  throw std::logic_error("not a number type");
}

std::string TypeBytes(GgufType type) { return Bytes32(static_cast<uint32_t>(type)); }

void Pad(std::string* out, uint64_t alignment) {
  out->append((alignment - out->size() % alignment) % alignment, '\0');
}

// Folders of this process, removed at its end.
class TempDirs {
 public:
  ~TempDirs() {
    std::error_code ignored;
    for (const std::string& dir : dirs_) std::filesystem::remove_all(dir, ignored);
  }
  std::string Make() {
    std::string dir = (std::filesystem::temp_directory_path() / "kvbound-test-XXXXXX").string();
    if (mkdtemp(dir.data()) == nullptr) throw std::runtime_error("cannot make " + dir);
    dirs_.push_back(dir);
    return dir;
  }

 private:
  std::vector<std::string> dirs_;
};

}  // namespace

std::string Bytes32(uint32_t value) { return BytesOf(value); }
std::string Bytes64(uint64_t value) { return BytesOf(value); }
std::string BytesString(std::string_view value) {
  return Bytes64(value.size()) + std::string(value);
}

GgufKey RawKey(std::string name, std::string bytes) { return {std::move(name), std::move(bytes)}; }

GgufKey NumberKey(std::string name, GgufType type, double value) {
  return {std::move(name), TypeBytes(type) + NumberBytes(type, value)};
}

GgufKey U32Key(std::string name, uint32_t value) {
  return NumberKey(std::move(name), GgufType::kU32, value);
}

GgufKey F32Key(std::string name, float value) {
  return NumberKey(std::move(name), GgufType::kF32, value);
}

GgufKey BoolKey(std::string name, bool value) {
  return NumberKey(std::move(name), GgufType::kBool, value ? 1 : 0);
}

GgufKey StringKey(std::string name, std::string_view value) {
  return {std::move(name), TypeBytes(GgufType::kString) + BytesString(value)};
}

GgufKey NumbersKey(std::string name, GgufType element, const std::vector<double>& values) {
  std::string bytes = TypeBytes(GgufType::kArray) + TypeBytes(element) + Bytes64(values.size());
  for (const double value : values) bytes += NumberBytes(element, value);
  return {std::move(name), std::move(bytes)};
}

GgufKey StringsKey(std::string name, const std::vector<std::string>& values) {
  std::string bytes =
      TypeBytes(GgufType::kArray) + TypeBytes(GgufType::kString) + Bytes64(values.size());
  for (const std::string& value : values) bytes += BytesString(value);
  return {std::move(name), std::move(bytes)};
}

GgufTensorSpec F32Tensor(std::string name, std::vector<int64_t> dims,
                         const std::vector<float>& values) {
  GgufTensorSpec tensor;
  tensor.name = std::move(name);
  tensor.dims = std::move(dims);
  tensor.data.resize(values.size() * sizeof(float));
  std::memcpy(tensor.data.data(), values.data(), tensor.data.size());
  return tensor;
}

GgufSpec& GgufSpec::Set(GgufKey key) {
  const auto it = std::find_if(keys.begin(), keys.end(),
                               [&](const GgufKey& other) { return other.name == key.name; });
  if (it == keys.end()) {
    keys.push_back(std::move(key));
  } else {
    *it = std::move(key);
  }
  return *this;
}

GgufSpec& GgufSpec::Drop(std::string_view name) {
  std::erase_if(keys, [&](const GgufKey& key) { return key.name == name; });
  return *this;
}

GgufSpec& GgufSpec::DropTensor(std::string_view name) {
  std::erase_if(tensors, [&](const GgufTensorSpec& tensor) { return tensor.name == name; });
  return *this;
}

GgufTensorSpec& GgufSpec::Tensor(std::string_view name) {
  for (GgufTensorSpec& tensor : tensors) {
    if (tensor.name == name) return tensor;
  }
  throw std::logic_error("no tensor " + std::string(name));
}

GgufBytes BuildGguf(const GgufSpec& spec) {
  std::string out = spec.magic + Bytes32(spec.version) +
                    Bytes64(spec.n_tensors.value_or(spec.tensors.size())) +
                    Bytes64(spec.n_keys.value_or(spec.keys.size()));
  for (const GgufKey& key : spec.keys) out += BytesString(key.name) + key.bytes;
  std::string data;
  for (const GgufTensorSpec& tensor : spec.tensors) {
    out += BytesString(tensor.name) +
           Bytes32(tensor.n_dims.value_or(static_cast<uint32_t>(tensor.dims.size())));
    for (const int64_t dim : tensor.dims) out += Bytes64(static_cast<uint64_t>(dim));
    out += Bytes32(tensor.type) + Bytes64(tensor.offset.value_or(data.size()));
    data.append(tensor.data.begin(), tensor.data.end());
    Pad(&data, spec.alignment);
  }
  Pad(&out, spec.alignment);
  out += data + spec.tail;
  return GgufBytes(out.begin(), out.end());
}

std::string MakeTempDir() {
  static TempDirs dirs;
  return dirs.Make();
}

void WriteFile(const std::string& path, const GgufBytes& bytes) {
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
  if (!file.flush()) throw std::runtime_error("cannot write " + path);
}

std::string WriteTemp(const GgufBytes& bytes, const std::string& name) {
  const std::string path = MakeTempDir() + "/" + name;
  WriteFile(path, bytes);
  return path;
}

}  // namespace kvbound::testing
