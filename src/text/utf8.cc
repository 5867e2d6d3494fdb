#include "text/utf8.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/strings.h"

namespace kvbound {
namespace {

// Table 3-7 of the Unicode standard: how long a character with this first byte is and which
// second bytes it may have. Length 0: no character starts so.
struct FirstByte {
  size_t length;
  uint8_t low, high;
};

FirstByte ClassifyFirst(uint8_t b) {
  if (b < 0x80) return {1, 0, 0};
  if (b < 0xC2) return {0, 0, 0};
  if (b < 0xE0) return {2, 0x80, 0xBF};
  if (b == 0xE0) return {3, 0xA0, 0xBF};
  if (b == 0xED) return {3, 0x80, 0x9F};
  if (b < 0xF0) return {3, 0x80, 0xBF};
  if (b == 0xF0) return {4, 0x90, 0xBF};
  if (b < 0xF4) return {4, 0x80, 0xBF};
  if (b == 0xF4) return {4, 0x80, 0x8F};
  return {0, 0, 0};
}

}  // namespace

Utf8Unit ReadUtf8(std::string_view text) {
  DCHECK(!text.empty());
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const FirstByte first = ClassifyFirst(byte(0));
  if (first.length == 0) return {.length = 1};
  uint32_t code_point = first.length == 1 ? byte(0) : byte(0) & (0x7F >> first.length);
  for (size_t i = 1; i < first.length; ++i) {
    if (i == text.size()) return {.length = i, .incomplete = true};
    const uint8_t low = i == 1 ? first.low : 0x80;
    const uint8_t high = i == 1 ? first.high : 0xBF;
    if (byte(i) < low || byte(i) > high) return {.length = i};
    code_point = code_point << 6 | (byte(i) & 0x3F);
  }
  return {.length = first.length, .valid = true, .code_point = code_point};
}

size_t FindInvalidUtf8(std::string_view text) {
  constexpr uint64_t kHighBits = 0x8080808080808080;
  size_t i = 0;
  while (i < text.size()) {
    uint64_t word;
    if (i + sizeof(word) <= text.size()) {
      std::memcpy(&word, text.data() + i, sizeof(word));
      if ((word & kHighBits) == 0) {
        i += sizeof(word);
        continue;
      }
    }
    const Utf8Unit unit = ReadUtf8(text.substr(i));
    if (!unit.valid) return i;
    i += unit.length;
  }
  return std::string_view::npos;
}

Status CheckUtf8(std::string_view name, std::string_view text) {
  const size_t offset = FindInvalidUtf8(text);
  if (offset == std::string_view::npos) return Status::Ok();
  const std::string_view bad = text.substr(offset, 4);
  constexpr char kHex[] = "0123456789ABCDEF";
  std::string bytes;
  for (const char c : bad) {
    const auto b = static_cast<uint8_t>(c);
    bytes += {' ', kHex[b >> 4], kHex[b & 15]};
  }
  const bool cut = ReadUtf8(text.substr(offset)).incomplete;
  return InvalidArgument(StrCat(name, ": byte ", offset, ": expected UTF-8, found",
                                cut ? " the start of a character that the text cuts off:" : "",
                                bytes, offset + bad.size() < text.size() ? " ..." : ""));
}

std::string EncodeUtf8(uint32_t c) {
  const auto tail = [&](int shift) { return static_cast<char>(0x80 | (c >> shift & 0x3F)); };
  if (c < 0x80) return {static_cast<char>(c)};
  if (c < 0x800) return {static_cast<char>(0xC0 | c >> 6), tail(0)};
  if (c < 0x10000) return {static_cast<char>(0xE0 | c >> 12), tail(6), tail(0)};
  return {static_cast<char>(0xF0 | c >> 18), tail(12), tail(6), tail(0)};
}

}  // namespace kvbound
