#ifndef KVBOUND_BASE_STRINGS_H_
#define KVBOUND_BASE_STRINGS_H_

#include <sstream>
#include <string>
#include <string_view>

namespace kvbound {

// The arguments printed one after the other: StrCat("expected ", 4, ", found ", n).
template <typename... Args>
std::string StrCat(const Args&... args) {
  std::ostringstream out;
  (out << ... << args);
  return out.str();
}

// `text` with control characters and invalid UTF-8 replaced by \xNN and cut to `max_bytes`, so
// that bytes from a file can stand in a message.
std::string Printable(std::string_view text, size_t max_bytes = 80);

}  // namespace kvbound

#endif  // KVBOUND_BASE_STRINGS_H_
