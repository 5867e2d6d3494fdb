#ifndef KVBOUND_PROMPT_FILE_H_
#define KVBOUND_PROMPT_FILE_H_

#include <cstddef>
#include <string>
#include <string_view>

#include "kvbound/status.h"

namespace kvbound {

// Most bytes of a prompt file: 64 MiB.
inline constexpr size_t kMaxPromptBytes = size_t{64} << 20;

// The text of a prompt file, byte for byte: the final newline, CRLF and NUL are kept. One thing is
// taken away: a UTF-8 byte order mark at the start, with a warning in the log.
// kNotFound or kIo when the file cannot be read; kInvalidArgument when it is empty, longer than
// kMaxPromptBytes or not valid UTF-8 (the message gives the byte offset in the file).
Result<std::string> ReadPromptFile(const std::string& path);

// The same rule for bytes that come from elsewhere (standard input, a request). `name` stands for
// the path in messages.
Result<std::string> CheckPromptText(std::string bytes, std::string_view name);

}  // namespace kvbound

#endif  // KVBOUND_PROMPT_FILE_H_
