#include "base/atomic_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string_view>

#include "base/strings.h"

namespace kvbound {
namespace {

Status SystemError(const std::string& path, std::string_view what) {
  return IoError(StrCat(path, ": ", what, ": ", std::strerror(errno)));
}

// A file beside the target, removed again unless it took the target's place.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& target) {
    static std::atomic<uint64_t> counter{0};
    path_ = StrCat(target, ".", getpid(), "-", counter.fetch_add(1), ".tmp");
    fd_ = open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0666);
    is_there_ = fd_ >= 0;
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  ~TemporaryFile() {
    if (fd_ >= 0) close(fd_);
    if (is_there_) unlink(path_.c_str());
  }

  bool is_open() const { return fd_ >= 0; }

  bool Write(std::span<const uint8_t> bytes) {
    while (!bytes.empty()) {
      constexpr size_t kMaxWrite = size_t{1} << 30;
      const ssize_t n = write(fd_, bytes.data(), std::min(bytes.size(), kMaxWrite));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return false;
      bytes = bytes.subspan(static_cast<size_t>(n));
    }
    return true;
  }

  // Some file systems report a full device only on flushing or closing.
  bool Finish() {
    const bool is_flushed = fsync(fd_) == 0;
    const int flush_error = errno;
    const bool is_closed = close(fd_) == 0;
    fd_ = -1;
    if (!is_flushed) errno = flush_error;
    return is_flushed && is_closed;
  }

  bool RenameTo(const std::string& target) {
    if (rename(path_.c_str(), target.c_str()) != 0) return false;
    is_there_ = false;
    return true;
  }

 private:
  std::string path_;
  int fd_ = -1;
  bool is_there_ = false;
};

Status CheckTarget(const std::string& path) {
  if (path.empty()) return InvalidArgument("expected the path of a file to write, found none");
  struct stat info;
  if (stat(path.c_str(), &info) != 0) return Status::Ok();
  if (!S_ISREG(info.st_mode)) {
    return InvalidArgument(StrCat(path, ": expected a regular file or a new name, found ",
                                  S_ISDIR(info.st_mode) ? "a directory" : "a special file"));
  }
  if (access(path.c_str(), W_OK) != 0) return SystemError(path, "cannot replace the file");
  return Status::Ok();
}

// So that the new name survives a power cut too. The file itself is complete either way.
void FlushDirectory(const std::string& path) {
  const size_t slash = path.rfind('/');
  const std::string directory =
      slash == std::string::npos ? "." : path.substr(0, std::max<size_t>(slash, 1));
  const int fd = open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return;
  fsync(fd);
  close(fd);
}

}  // namespace

Status WriteFileAtomically(const std::string& path,
                           const std::vector<std::span<const uint8_t>>& pieces) {
  KVBOUND_RETURN_IF_ERROR(CheckTarget(path));
  TemporaryFile file(path);
  if (!file.is_open()) return SystemError(path, "cannot create a file beside it");
  for (const std::span<const uint8_t> piece : pieces) {
    if (!file.Write(piece)) return SystemError(path, "cannot write");
  }
  if (!file.Finish()) return SystemError(path, "cannot write");
  if (!file.RenameTo(path)) return SystemError(path, "cannot rename the new file to it");
  FlushDirectory(path);
  return Status::Ok();
}

}  // namespace kvbound
