#include "base/strings.h"

#include <cstdint>

namespace kvbound {
namespace {

// Length of the valid UTF-8 character at the start of `text`, 0 if there is none.
size_t CharacterLength(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t lead = byte(0);
  if (lead < 0x80) return 1;
  const size_t length = lead >= 0xC2 && lead <= 0xDF   ? 2
                        : lead >= 0xE0 && lead <= 0xEF ? 3
                        : lead >= 0xF0 && lead <= 0xF4 ? 4
                                                       : 0;
  if (length == 0 || text.size() < length) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  const bool overlong = (lead == 0xE0 && byte(1) < 0xA0) || (lead == 0xF0 && byte(1) < 0x90);
  const bool surrogate = lead == 0xED && byte(1) > 0x9F;
  const bool too_large = lead == 0xF4 && byte(1) > 0x8F;
  return overlong || surrogate || too_large ? 0 : length;
}

bool IsControl(std::string_view character) {
  const uint8_t first = static_cast<uint8_t>(character[0]);
  if (character.size() == 1) return first < 0x20 || first == 0x7F;
  return first == 0xC2 && static_cast<uint8_t>(character[1]) < 0xA0;  // C1 controls
}

void AppendEscaped(char byte, std::string& out) {
  constexpr char kHex[] = "0123456789abcdef";
  const uint8_t value = static_cast<uint8_t>(byte);
  out += "\\x";
  out += kHex[value >> 4];
  out += kHex[value & 15];
}

}  // namespace

std::string Printable(std::string_view text, size_t max_bytes) {
  std::string out;
  while (!text.empty()) {
    const size_t length = CharacterLength(text);
    std::string piece;
    if (length == 0 || IsControl(text.substr(0, length))) {
      for (size_t i = 0; i < (length == 0 ? 1 : length); ++i) AppendEscaped(text[i], piece);
    } else {
      piece = text.substr(0, length);
    }
    if (out.size() + piece.size() > max_bytes) return out + "...";
    out += piece;
    text.remove_prefix(length == 0 ? 1 : length);
  }
  return out;
}

}  // namespace kvbound
