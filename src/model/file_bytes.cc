#include "model/file_bytes.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "base/strings.h"

namespace kvbound {
namespace {

constexpr std::align_val_t kOwnedAlignment{64};

// An open file descriptor, closed at the end of the scope.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

Status SystemError(const std::string& path, std::string_view what) {
  return IoError(StrCat(path, ": ", what, ": ", std::strerror(errno)));
}

// Opens a regular file and tells its size. A named pipe must not block here.
Status CheckRegular(const Descriptor& fd, const std::string& path, size_t* size) {
  if (fd.get() < 0) {
    return errno == ENOENT ? NotFound(StrCat(path, ": no such file"))
                           : SystemError(path, "cannot open");
  }
  struct stat info;
  if (fstat(fd.get(), &info) != 0) return SystemError(path, "cannot read its size");
  if (!S_ISREG(info.st_mode)) {
    return InvalidArgument(StrCat(path, ": expected a regular file, found ",
                                  S_ISDIR(info.st_mode) ? "a directory" : "a special file"));
  }
  if (info.st_size == 0) {
    return Corrupt(StrCat(path, ": expected a GGUF file, found an empty file"));
  }
  *size = static_cast<size_t>(info.st_size);
  return Status::Ok();
}

int OpenFlags() { return O_RDONLY | O_CLOEXEC | O_NONBLOCK; }

}  // namespace

Result<FileBytes> FileBytes::Map(const std::string& path) {
  Descriptor fd(open(path.c_str(), OpenFlags()));
  size_t size = 0;
  KVBOUND_RETURN_IF_ERROR(CheckRegular(fd, path, &size));
  void* address = mmap(nullptr, size, PROT_READ, MAP_SHARED, fd.get(), 0);
  if (address == MAP_FAILED) return SystemError(path, StrCat("cannot map ", size, " bytes"));
  FileBytes result;
  result.data_ = static_cast<const uint8_t*>(address);
  result.size_ = size;
  result.path_ = path;
  result.backing_ = Backing::kMapped;
  return result;
}

Result<FileBytes> FileBytes::Read(const std::string& path) {
  Descriptor fd(open(path.c_str(), OpenFlags()));
  size_t size = 0;
  KVBOUND_RETURN_IF_ERROR(CheckRegular(fd, path, &size));
  auto* bytes = static_cast<uint8_t*>(::operator new(size, kOwnedAlignment, std::nothrow));
  if (bytes == nullptr) {
    return IoError(StrCat(path, ": no memory for its ", size, " bytes; map it instead"));
  }
  FileBytes result;
  result.data_ = bytes;
  result.size_ = size;
  result.path_ = path;
  result.backing_ = Backing::kOwned;
  constexpr size_t kMaxRead = size_t{1} << 30;
  for (size_t done = 0; done < size;) {
    const ssize_t n = read(fd.get(), bytes + done, std::min(size - done, kMaxRead));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return SystemError(path, "cannot read");
    if (n == 0) {
      return IoError(StrCat(path, ": expected ", size, " bytes, found ", done,
                            ": the file became shorter while it was read"));
    }
    done += static_cast<size_t>(n);
  }
  return result;
}

FileBytes FileBytes::Borrow(std::span<const uint8_t> bytes, std::string name) {
  FileBytes result;
  result.data_ = bytes.data();
  result.size_ = bytes.size();
  result.path_ = std::move(name);
  return result;
}

FileBytes::FileBytes(FileBytes&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      path_(std::move(other.path_)),
      backing_(std::exchange(other.backing_, Backing::kBorrowed)) {}

FileBytes& FileBytes::operator=(FileBytes&& other) noexcept {
  if (this == &other) return *this;
  Release();
  data_ = std::exchange(other.data_, nullptr);
  size_ = std::exchange(other.size_, 0);
  path_ = std::move(other.path_);
  backing_ = std::exchange(other.backing_, Backing::kBorrowed);
  return *this;
}

FileBytes::~FileBytes() { Release(); }

void FileBytes::Release() {
  auto* bytes = const_cast<uint8_t*>(data_);
  if (backing_ == Backing::kMapped) munmap(bytes, size_);
  if (backing_ == Backing::kOwned) ::operator delete(bytes, kOwnedAlignment);
}

}  // namespace kvbound
