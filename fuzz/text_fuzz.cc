// TextStream against a plain oracle: whatever the pieces and stop strings, the chunks are valid
// UTF-8 and join to what one look at the whole text would have shown.

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "kvbound/text_stream.h"
#include "text/utf8.h"

namespace {

using kvbound::ReadUtf8;
using kvbound::TextStream;

// Byte by byte: the well-formed characters, and one U+FFFD for each maximal ill-formed stretch. An
// incomplete character at the end is left out unless the text is `finished`.
std::string Sanitize(const std::string& bytes, bool finished) {
  std::string text;
  size_t i = 0;
  const auto at = [&](size_t k) { return k < bytes.size() ? uint8_t(bytes[k]) : -1; };
  const auto is_tail = [&](size_t k, int low = 0x80, int high = 0xBF) {
    return at(k) >= low && at(k) <= high;
  };
  while (i < bytes.size()) {
    const int b = at(i);
    int need = b < 0x80                 ? 0
               : b >= 0xC2 && b <= 0xDF ? 1
               : b >= 0xE0 && b <= 0xEF ? 2
               : b >= 0xF0 && b <= 0xF4 ? 3
                                        : -1;
    const int low = b == 0xE0 ? 0xA0 : b == 0xF0 ? 0x90 : 0x80;
    const int high = b == 0xED ? 0x9F : b == 0xF4 ? 0x8F : 0xBF;
    size_t n = 1;
    while (need > 0 && (n == 1 ? is_tail(i + 1, low, high) : is_tail(i + n))) ++n, --need;
    if (need == 0) {
      text += bytes.substr(i, n);
    } else if (need > 0 && i + n == bytes.size() && !finished) {
      break;
    } else {
      text += "\xEF\xBF\xBD";
    }
    i += n;
  }
  return text;
}

void Require(bool condition) {
  if (!condition) std::abort();
}

}  // namespace

// Input: number of stops, each as length and bytes; then the pieces, each as length and bytes.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  size_t next = 0;
  const auto take = [&](size_t modulus) {
    const size_t length = next < size ? data[next++] % modulus : 0;
    const size_t n = std::min(length, size - next);
    std::string bytes(reinterpret_cast<const char*>(data) + next, n);
    next += n;
    return bytes;
  };
  std::vector<std::string> stops(size > 0 ? data[next++] % 4 : 0);
  bool valid = true;
  for (std::string& stop : stops) {
    stop = take(6);
    valid &= !stop.empty() && Sanitize(stop, true) == stop;
    // A stop with a real U+FFFD in it is as valid as any.
    Require((kvbound::FindInvalidUtf8(stop) == std::string::npos) ==
            (Sanitize(stop, true) == stop));
  }
  kvbound::Result<TextStream> stream = TextStream::Create(stops);
  Require(stream.ok() == valid);
  if (!valid) return 0;

  std::string raw, shown;
  const auto show = [&](std::string_view chunk) {
    Require(Sanitize(std::string(chunk), true) == chunk);
    shown += chunk;
  };
  bool stopped = false;
  while (next < size && !stopped) {
    const std::string piece = take(8);
    raw += piece;
    show(stream->Push(piece));
    size_t first = std::string::npos;
    for (const std::string& stop : stops) first = std::min(first, raw.find(stop));
    stopped = first != std::string::npos;
    if (stopped) raw.resize(first);
    Require(stream->stopped() == stopped);
    // Nothing shown may be taken back: what was shown is a beginning of what there is.
    Require(Sanitize(raw, stopped).starts_with(shown));
    if (stops.empty()) Require(shown == Sanitize(raw, false));
  }
  show(stream->Finish());
  Require(shown == Sanitize(raw, true));
  Require(!stream->holds_text() && stream->Finish().empty());
  return 0;
}
