#include "model/gguf_value.h"

#include <limits>

#include "base/check.h"
#include "base/strings.h"

namespace kvbound {
namespace {

template <typename T>
T Load(const uint8_t* at) {
  T value;
  std::memcpy(&value, at, sizeof(value));
  return value;
}

int64_t Clamped(double x) {
  constexpr double kLimit = 9.2e18;
  if (!(x > -kLimit)) return std::numeric_limits<int64_t>::min();
  if (x > kLimit) return std::numeric_limits<int64_t>::max();
  return static_cast<int64_t>(x);
}

}  // namespace

std::string GgufTypeName(GgufType type) {
  static constexpr const char* kNames[] = {"u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                           "bool", "string", "array", "u64", "i64", "f64"};
  const auto number = static_cast<uint32_t>(type);
  if (number >= std::size(kNames)) return StrCat("unknown type ", number);
  return kNames[number];
}

uint64_t GgufTypeBytes(GgufType type) {
  switch (type) {
    case GgufType::kU8:
    case GgufType::kI8:
    case GgufType::kBool:
      return 1;
    case GgufType::kU16:
    case GgufType::kI16:
      return 2;
    case GgufType::kU32:
    case GgufType::kI32:
    case GgufType::kF32:
      return 4;
    case GgufType::kU64:
    case GgufType::kI64:
    case GgufType::kF64:
      return 8;
    case GgufType::kString:
    case GgufType::kArray:
      return 0;
  }
  return 0;
}

bool GgufValue::IsInteger() const {
  return GgufTypeBytes(type) > 0 && !IsFloat() && type != GgufType::kBool;
}

bool GgufValue::IsFloat() const { return type == GgufType::kF32 || type == GgufType::kF64; }

std::string GgufValue::TypeName() const {
  if (type != GgufType::kArray) return GgufTypeName(type);
  return StrCat("array of ", count, " ", GgufTypeName(element));
}

double GgufNumbers::AsDouble(uint64_t i) const {
  DCHECK(i < size());
  const uint8_t* at = value_.data + i * GgufTypeBytes(value_.element);
  switch (value_.element) {
    case GgufType::kF32:
      return Load<float>(at);
    case GgufType::kF64:
      return Load<double>(at);
    case GgufType::kU64:
      return static_cast<double>(Load<uint64_t>(at));
    default:
      return static_cast<double>(AsInt(i));
  }
}

int64_t GgufNumbers::AsInt(uint64_t i) const {
  DCHECK(i < size());
  const uint8_t* at = value_.data + i * GgufTypeBytes(value_.element);
  switch (value_.element) {
    case GgufType::kU8:
      return *at;
    case GgufType::kBool:
      return *at != 0;
    case GgufType::kI8:
      return static_cast<int8_t>(*at);
    case GgufType::kU16:
      return Load<uint16_t>(at);
    case GgufType::kI16:
      return Load<int16_t>(at);
    case GgufType::kU32:
      return Load<uint32_t>(at);
    case GgufType::kI32:
      return Load<int32_t>(at);
    case GgufType::kI64:
      return Load<int64_t>(at);
    case GgufType::kU64: {
      const auto value = Load<uint64_t>(at);
      const auto limit = static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
      return static_cast<int64_t>(value < limit ? value : limit);
    }
    case GgufType::kF32:
      return Clamped(Load<float>(at));
    case GgufType::kF64:
      return Clamped(Load<double>(at));
    case GgufType::kString:
    case GgufType::kArray:
      break;
  }
  return 0;
}

std::vector<std::string_view> GgufStrings::ToVector() const {
  std::vector<std::string_view> result;
  result.reserve(size());
  for (std::string_view text : *this) result.push_back(text);
  return result;
}

}  // namespace kvbound
