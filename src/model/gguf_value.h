#ifndef KVBOUND_MODEL_GGUF_VALUE_H_
#define KVBOUND_MODEL_GGUF_VALUE_H_

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace kvbound {

// The value types of the GGUF format, numbered as in a file.
enum class GgufType : uint32_t {
  kU8 = 0,
  kI8 = 1,
  kU16 = 2,
  kI16 = 3,
  kU32 = 4,
  kI32 = 5,
  kF32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kU64 = 10,
  kI64 = 11,
  kF64 = 12,
};

// "u32", "string", ...; "unknown type 13" for a number the format does not define.
std::string GgufTypeName(GgufType type);

// Bytes of one value, 0 for strings, arrays and unknown types.
uint64_t GgufTypeBytes(GgufType type);

// One metadata value, as a view of the file's bytes, which were proven to exist when the file was
// opened. Not aligned: read it through the functions below.
struct GgufValue {
  GgufType type = GgufType::kU8;
  GgufType element = GgufType::kU8;  // of an array; else equal to type
  uint64_t count = 1;                // elements of an array; else 1
  const uint8_t* data = nullptr;     // first value; a string begins with its u64 length
  uint64_t n_bytes = 0;              // of all values, string lengths included

  bool IsInteger() const;  // a number of an integer type, not a bool
  bool IsFloat() const;

  // "u32", "array of 5 f32".
  std::string TypeName() const;
};

// A view of an array of numbers or booleans of any one type.
class GgufNumbers {
 public:
  explicit GgufNumbers(const GgufValue& value) : value_(value) {}

  uint64_t size() const { return value_.count; }
  GgufType type() const { return value_.element; }
  double AsDouble(uint64_t i) const;
  // Values beyond 2^63 - 1 are read as 2^63 - 1, fractions cut toward zero.
  int64_t AsInt(uint64_t i) const;

 private:
  GgufValue value_;
};

// A view of an array of strings. Iterated from first to last; `ToVector` for random access.
class GgufStrings {
 public:
  class Iterator {
   public:
    explicit Iterator(const uint8_t* at) : at_(at) {}
    std::string_view operator*() const {
      return {reinterpret_cast<const char*>(at_) + sizeof(uint64_t), Length()};
    }
    Iterator& operator++() {
      at_ += sizeof(uint64_t) + Length();
      return *this;
    }
    bool operator!=(const Iterator& other) const { return at_ != other.at_; }

   private:
    uint64_t Length() const {
      uint64_t length;
      std::memcpy(&length, at_, sizeof(length));
      return length;
    }
    const uint8_t* at_;
  };

  explicit GgufStrings(const GgufValue& value) : value_(value) {}

  uint64_t size() const { return value_.count; }
  Iterator begin() const { return Iterator(value_.data); }
  Iterator end() const { return Iterator(value_.data + value_.n_bytes); }
  std::vector<std::string_view> ToVector() const;

 private:
  GgufValue value_;
};

}  // namespace kvbound

#endif  // KVBOUND_MODEL_GGUF_VALUE_H_
