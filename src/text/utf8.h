#ifndef KVBOUND_TEXT_UTF8_H_
#define KVBOUND_TEXT_UTF8_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "kvbound/status.h"

namespace kvbound {

// What the bytes at the start of a text are.
struct Utf8Unit {
  // Bytes of the character or of the maximal ill-formed stretch; at least 1.
  size_t length = 0;
  // A well-formed character (no surrogate, nothing beyond U+10FFFF, not overlong).
  bool valid = false;
  // Ill-formed only because the text ends: more bytes could make it a character.
  bool incomplete = false;
  // The character's code point, if valid.
  uint32_t code_point = 0;
};

// Reads one unit. REQUIRES: !text.empty().
Utf8Unit ReadUtf8(std::string_view text);

// Offset of the first byte that does not start a well-formed character; npos if there is none.
size_t FindInvalidUtf8(std::string_view text);

// Ok, or kInvalidArgument "NAME: byte 3: expected UTF-8, found bytes F4 90 80 80 ...".
Status CheckUtf8(std::string_view name, std::string_view text);

// The UTF-8 bytes of a code point. REQUIRES: a scalar value.
std::string EncodeUtf8(uint32_t code_point);

inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";  // U+FFFD

}  // namespace kvbound

#endif  // KVBOUND_TEXT_UTF8_H_
