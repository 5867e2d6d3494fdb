#include "kvbound/prompt_file.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <utility>

#include "base/log.h"
#include "base/strings.h"
#include "text/utf8.h"

namespace kvbound {
namespace {

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

struct FileCloser {
  void operator()(std::FILE* file) const { std::fclose(file); }
};

}  // namespace

Result<std::string> ReadPromptFile(const std::string& path) {
  errno = 0;
  const std::unique_ptr<std::FILE, FileCloser> file(std::fopen(path.c_str(), "rb"));
  if (file == nullptr) {
    const std::string message =
        StrCat(path, ": cannot open the prompt file: ", std::strerror(errno));
    return errno == ENOENT ? NotFound(message) : IoError(message);
  }
  std::string bytes;
  char block[1 << 16];
  size_t n;
  while ((n = std::fread(block, 1, sizeof(block), file.get())) > 0) {
    bytes.append(block, n);
    if (bytes.size() > kMaxPromptBytes) break;
  }
  if (std::ferror(file.get())) {
    return IoError(StrCat(path, ": cannot read the prompt file: ", std::strerror(errno)));
  }
  return CheckPromptText(std::move(bytes), path);
}

Result<std::string> CheckPromptText(std::string bytes, std::string_view name) {
  if (bytes.size() > kMaxPromptBytes) {
    return InvalidArgument(
        StrCat(name, ": prompt: expected at most ", kMaxPromptBytes, " bytes, found more"));
  }
  KVBOUND_RETURN_IF_ERROR(CheckUtf8(name, bytes));
  if (bytes.starts_with(kByteOrderMark)) {
    Log(LogLevel::kWarning, StrCat(name, ": prompt: a UTF-8 byte order mark was removed"));
    bytes.erase(0, kByteOrderMark.size());
  }
  if (bytes.empty()) {
    return InvalidArgument(StrCat(name, ": prompt: expected text, found 0 bytes"));
  }
  return bytes;
}

}  // namespace kvbound
