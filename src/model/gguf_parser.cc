#include "model/gguf_parser.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <string>
#include <unordered_set>

#include "base/strings.h"

namespace kvbound {
namespace {

constexpr uint64_t kMaxKeys = 1 << 16;
constexpr uint64_t kMaxTensors = 1 << 17;
constexpr uint64_t kMaxKeyBytes = 65535;  // by the specification
constexpr uint64_t kMaxTensorNameBytes = GGML_MAX_NAME - 1;
constexpr uint64_t kMaxStringBytes = uint64_t{1} << 30;  // as in ggml's reader
constexpr uint64_t kMaxArrayLength = uint64_t{1} << 30;
constexpr uint64_t kMaxAlignment = 1 << 20;
constexpr std::string_view kAlignmentKey = "general.alignment";

// The smallest records: an empty key, its type and a one-byte value; a name, one dimension, type
// and offset.
constexpr uint64_t kMinKeyRecordBytes = 8 + 4 + 1;
constexpr uint64_t kMinTensorRecordBytes = 8 + 4 + 8 + 4 + 8;

class Parser {
 public:
  explicit Parser(const FileBytes& file) : file_(file) {}

  Result<GgufHeader> Parse() {
    KVBOUND_RETURN_IF_ERROR(ParseCounts());
    KVBOUND_RETURN_IF_ERROR(ParseMetadata());
    KVBOUND_RETURN_IF_ERROR(ParseAlignment());
    KVBOUND_RETURN_IF_ERROR(ParseTensorInfos());
    KVBOUND_RETURN_IF_ERROR(PlaceTensors());
    KVBOUND_RETURN_IF_ERROR(CheckOverlaps());
    return std::move(header_);
  }

 private:
  uint64_t Remaining() const { return file_.size() - at_; }

  template <typename T>
  bool Read(T* value) {
    if (Remaining() < sizeof(T)) return false;
    std::memcpy(value, file_.data() + at_, sizeof(T));
    at_ += sizeof(T);
    return true;
  }

  Status Error(std::string_view what, std::string_view expected, std::string_view found) const {
    return Corrupt(StrCat(file_.path(), ": ", what, ": expected ", expected, ", found ", found));
  }

  Status Truncated(std::string_view what) const {
    return Error(what, "more bytes",
                 StrCat("the end of the file at byte ", file_.size(), " (truncated header)"));
  }

  static std::string KeyText(std::string_view key) { return StrCat("key '", Printable(key), "'"); }
  static std::string TensorText(std::string_view name) {
    return StrCat("tensor '", Printable(name), "'");
  }

  Status ParseCounts();
  Status ParseMetadata();
  Status ParseValue(std::string_view key, GgufValue* value);
  Status ParseArray(std::string_view key, GgufValue* value);
  Status SkipString(std::string_view key, uint64_t element, uint64_t n_elements);
  Status ParseAlignment();
  Status ParseTensorInfos();
  Status ParseTensorName(uint64_t index, std::string_view* name);
  Status ParseTensorInfo(std::string_view name, GgufTensor* tensor);
  Status MeasureTensor(GgufTensor* tensor) const;
  Status PlaceTensors();
  Status CheckOverlaps() const;

  const FileBytes& file_;
  uint64_t at_ = 0;
  uint64_t n_keys_ = 0;
  uint64_t n_tensors_ = 0;
  GgufHeader header_;
};

Status Parser::ParseCounts() {
  char magic[4];
  if (!Read(&magic)) return Truncated("magic bytes");
  if (std::memcmp(magic, "GGUF", 4) != 0) {
    return Error("magic bytes", "'GGUF'", StrCat("'", Printable({magic, 4}), "'"));
  }
  if (!Read(&header_.version)) return Truncated("version");
  const uint32_t version = header_.version;
  if (version != 0 && (version & 0xFFFF) == 0) {
    return Unsupported(StrCat(file_.path(),
                              ": expected a little-endian file, found a big-endian "
                              "one (version bytes ",
                              version, "); convert it with byte order little"));
  }
  if (version == 1) {
    return Unsupported(StrCat(file_.path(),
                              ": version: expected 2 or 3, found 1; re-convert the "
                              "model, or rewrite it as version 3"));
  }
  if (version != 2 && version != 3) {
    return Unsupported(StrCat(file_.path(), ": version: expected 2 or 3, found ", version));
  }
  if (!Read(&n_tensors_) || !Read(&n_keys_)) return Truncated("counts of tensors and keys");
  const uint64_t max_keys = std::min(kMaxKeys, Remaining() / kMinKeyRecordBytes);
  if (n_keys_ > max_keys) {
    return Error("number of keys", StrCat("at most ", max_keys, " in ", file_.size(), " bytes"),
                 StrCat(n_keys_));
  }
  const uint64_t max_tensors = std::min(kMaxTensors, Remaining() / kMinTensorRecordBytes);
  if (n_tensors_ > max_tensors) {
    return Error("number of tensors",
                 StrCat("at most ", max_tensors, " in ", file_.size(), " bytes"),
                 StrCat(n_tensors_));
  }
  return Status::Ok();
}

Status Parser::ParseMetadata() {
  header_.metadata.reserve(n_keys_);
  std::unordered_set<std::string_view> seen;
  for (uint64_t i = 0; i < n_keys_; ++i) {
    const std::string what = StrCat("key ", i, " of ", n_keys_);
    uint64_t length = 0;
    if (!Read(&length)) return Truncated(what);
    const uint64_t limit = std::min(kMaxKeyBytes, Remaining());
    if (length == 0 || length > limit) {
      return Error(what, StrCat("a name of 1..", limit, " bytes"), StrCat(length, " bytes"));
    }
    const std::string_view key(reinterpret_cast<const char*>(file_.data()) + at_, length);
    at_ += length;
    if (!seen.insert(key).second) {
      return Error(KeyText(key), "one entry", "the same key twice (duplicate key)");
    }
    GgufValue value;
    KVBOUND_RETURN_IF_ERROR(ParseValue(key, &value));
    header_.metadata.emplace_back(key, value);
  }
  return Status::Ok();
}

Status Parser::ParseValue(std::string_view key, GgufValue* value) {
  uint32_t type = 0;
  if (!Read(&type)) return Truncated(KeyText(key));
  if (type > static_cast<uint32_t>(GgufType::kF64)) {
    return Error(KeyText(key), "a value type 0..12", StrCat("unknown value type ", type));
  }
  value->type = static_cast<GgufType>(type);
  value->element = value->type;
  if (value->type == GgufType::kArray) return ParseArray(key, value);
  value->data = file_.data() + at_;
  if (value->type == GgufType::kString) {
    KVBOUND_RETURN_IF_ERROR(SkipString(key, 0, 1));
    value->n_bytes = static_cast<uint64_t>(file_.data() + at_ - value->data);
    return Status::Ok();
  }
  value->n_bytes = GgufTypeBytes(value->type);
  if (Remaining() < value->n_bytes) return Truncated(KeyText(key));
  at_ += value->n_bytes;
  return Status::Ok();
}

Status Parser::ParseArray(std::string_view key, GgufValue* value) {
  uint32_t element = 0;
  if (!Read(&element) || !Read(&value->count)) return Truncated(KeyText(key));
  value->element = static_cast<GgufType>(element);
  if (value->element == GgufType::kArray) {
    return Unsupported(StrCat(file_.path(), ": ", KeyText(key),
                              ": expected an array of numbers, booleans or strings, found an array "
                              "of arrays (nested arrays are not supported)"));
  }
  if (element > static_cast<uint32_t>(GgufType::kF64)) {
    return Error(KeyText(key), "an element type 0..12", StrCat("unknown value type ", element));
  }
  value->data = file_.data() + at_;
  const bool is_string = value->element == GgufType::kString;
  const uint64_t element_bytes = is_string ? sizeof(uint64_t) : GgufTypeBytes(value->element);
  const uint64_t limit = std::min(kMaxArrayLength, Remaining() / element_bytes);
  if (value->count > limit) {
    return Error(KeyText(key), StrCat("an array of at most ", limit, " elements here"),
                 StrCat(value->count, " elements announced"));
  }
  if (is_string) {
    for (uint64_t i = 0; i < value->count; ++i) {
      KVBOUND_RETURN_IF_ERROR(SkipString(key, i, value->count));
    }
  } else {
    at_ += value->count * element_bytes;
  }
  value->n_bytes = static_cast<uint64_t>(file_.data() + at_ - value->data);
  return Status::Ok();
}

Status Parser::SkipString(std::string_view key, uint64_t element, uint64_t n_elements) {
  uint64_t length = 0;
  if (!Read(&length)) return Truncated(KeyText(key));
  const uint64_t limit = std::min(kMaxStringBytes, Remaining());
  if (length > limit) {
    const std::string which = n_elements > 1 ? StrCat(", element ", element) : std::string();
    return Error(KeyText(key) + which, StrCat("a string of at most ", limit, " bytes here"),
                 StrCat(length, " bytes announced"));
  }
  at_ += length;
  return Status::Ok();
}

Status Parser::ParseAlignment() {
  for (const auto& [key, value] : header_.metadata) {
    if (key != kAlignmentKey) continue;
    if (value.type != GgufType::kU32) return Error(KeyText(key), "a u32", value.TypeName());
    uint32_t alignment = 0;
    std::memcpy(&alignment, value.data, sizeof(alignment));
    // Below 8, ggml's tensors would not be aligned for their own element types.
    if (!std::has_single_bit(alignment) || alignment < 8 || alignment > kMaxAlignment) {
      return Error(KeyText(key), StrCat("a power of two in 8..", kMaxAlignment), StrCat(alignment));
    }
    header_.alignment = alignment;
  }
  return Status::Ok();
}

Status Parser::ParseTensorInfos() {
  header_.tensors.reserve(n_tensors_);
  std::unordered_set<std::string_view> seen;
  for (uint64_t i = 0; i < n_tensors_; ++i) {
    GgufTensor tensor;
    KVBOUND_RETURN_IF_ERROR(ParseTensorName(i, &tensor.name));
    if (!seen.insert(tensor.name).second) {
      return Error(TensorText(tensor.name), "one entry", "the same name twice (duplicate tensor)");
    }
    KVBOUND_RETURN_IF_ERROR(ParseTensorInfo(tensor.name, &tensor));
    KVBOUND_RETURN_IF_ERROR(MeasureTensor(&tensor));
    header_.tensors.push_back(tensor);
  }
  return Status::Ok();
}

Status Parser::ParseTensorName(uint64_t index, std::string_view* name) {
  const std::string what = StrCat("tensor ", index, " of ", n_tensors_);
  uint64_t length = 0;
  if (!Read(&length)) return Truncated(what);
  const uint64_t limit = std::min(kMaxTensorNameBytes, Remaining());
  if (length == 0 || length > limit) {
    return Error(what, StrCat("a name of 1..", limit, " bytes"), StrCat(length, " bytes"));
  }
  *name = {reinterpret_cast<const char*>(file_.data()) + at_, length};
  at_ += length;
  if (name->find('\0') != std::string_view::npos) {
    return Error(TensorText(*name), "a name without zero bytes", "a zero byte");
  }
  return Status::Ok();
}

Status Parser::ParseTensorInfo(std::string_view name, GgufTensor* tensor) {
  uint32_t n_dims = 0;
  if (!Read(&n_dims)) return Truncated(TensorText(name));
  if (n_dims < 1 || n_dims > GGML_MAX_DIMS) {
    return Error(TensorText(name), StrCat("1..", GGML_MAX_DIMS, " dimensions"), StrCat(n_dims));
  }
  tensor->n_dims = static_cast<int>(n_dims);
  for (uint32_t i = 0; i < n_dims; ++i) {
    if (!Read(&tensor->ne[i])) return Truncated(TensorText(name));
    if (tensor->ne[i] < 1) {
      return Error(TensorText(name), StrCat("dimension ", i, " of at least 1"),
                   StrCat(tensor->ne[i]));
    }
  }
  uint32_t type = 0;
  if (!Read(&type) || !Read(&tensor->offset)) return Truncated(TensorText(name));
  // Numbers of types that ggml has dropped have a block size of 0.
  if (type >= GGML_TYPE_COUNT || ggml_blck_size(static_cast<ggml_type>(type)) == 0) {
    return Unsupported(StrCat(file_.path(), ": ", TensorText(name),
                              ": expected a tensor type that ggml knows, found type number ",
                              type));
  }
  tensor->type = static_cast<ggml_type>(type);
  return Status::Ok();
}

Status Parser::MeasureTensor(GgufTensor* tensor) const {
  const int64_t block = ggml_blck_size(tensor->type);
  if (tensor->ne[0] % block != 0) {
    return Error(TensorText(tensor->name),
                 StrCat("rows of a multiple of ", block, " elements for type ",
                        ggml_type_name(tensor->type)),
                 StrCat("shape ", tensor->ShapeText()));
  }
  int64_t n_elements = 1;
  int64_t n_bytes = static_cast<int64_t>(ggml_type_size(tensor->type));
  bool overflow = __builtin_mul_overflow(n_bytes, tensor->ne[0] / block, &n_bytes);
  overflow |= __builtin_mul_overflow(n_elements, tensor->ne[0], &n_elements);
  for (int i = 1; i < tensor->n_dims; ++i) {
    overflow |= __builtin_mul_overflow(n_bytes, tensor->ne[i], &n_bytes);
    overflow |= __builtin_mul_overflow(n_elements, tensor->ne[i], &n_elements);
  }
  if (overflow) {
    return Error(TensorText(tensor->name), "a size below 2^63 bytes",
                 StrCat("shape ", tensor->ShapeText()));
  }
  tensor->n_bytes = static_cast<uint64_t>(n_bytes);
  return Status::Ok();
}

// Turns offsets from the start of the data section into offsets from the start of the file.
Status Parser::PlaceTensors() {
  const uint64_t mask = header_.alignment - 1;
  const uint64_t data_start = (at_ + mask) & ~mask;
  for (GgufTensor& tensor : header_.tensors) {
    if ((tensor.offset & mask) != 0) {
      return Error(TensorText(tensor.name),
                   StrCat("an offset that is a multiple of ", header_.alignment),
                   StrCat(tensor.offset));
    }
    uint64_t begin = 0, end = 0;
    if (__builtin_add_overflow(data_start, tensor.offset, &begin) ||
        __builtin_add_overflow(begin, tensor.n_bytes, &end)) {
      return Error(TensorText(tensor.name), "an offset inside the file", StrCat(tensor.offset));
    }
    if (end > file_.size()) {
      return Error(TensorText(tensor.name),
                   StrCat(tensor.n_bytes, " bytes of data from byte ", begin, " on"),
                   StrCat("a file of ", file_.size(), " bytes: ", end - file_.size(),
                          " bytes are missing (truncated file, or a wrong shape or offset)"));
    }
    tensor.offset = begin;
    tensor.data = file_.data() + begin;
  }
  return Status::Ok();
}

Status Parser::CheckOverlaps() const {
  std::vector<const GgufTensor*> by_offset;
  by_offset.reserve(header_.tensors.size());
  for (const GgufTensor& tensor : header_.tensors) by_offset.push_back(&tensor);
  std::sort(by_offset.begin(), by_offset.end(),
            [](const GgufTensor* a, const GgufTensor* b) { return a->offset < b->offset; });
  for (size_t i = 1; i < by_offset.size(); ++i) {
    const GgufTensor& before = *by_offset[i - 1];
    const GgufTensor& tensor = *by_offset[i];
    if (tensor.offset < before.offset + before.n_bytes) {
      return Error(TensorText(tensor.name),
                   StrCat("data of its own, from byte ", before.offset + before.n_bytes, " on"),
                   StrCat("byte ", tensor.offset, ", inside ", TensorText(before.name)));
    }
  }
  return Status::Ok();
}

}  // namespace

Result<GgufHeader> ParseGguf(const FileBytes& file) { return Parser(file).Parse(); }

}  // namespace kvbound
