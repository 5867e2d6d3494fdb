#ifndef KVBOUND_MODEL_FILE_BYTES_H_
#define KVBOUND_MODEL_FILE_BYTES_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "kvbound/status.h"

namespace kvbound {

// The bytes of one regular file, read-only, at an address that does not change for the life of the
// object (moves included). Safe to read from several threads.
class FileBytes {
 public:
  enum class Backing { kMapped, kOwned, kBorrowed };

  // Maps the file. Cutting it short while it is mapped makes a later read raise SIGBUS.
  static Result<FileBytes> Map(const std::string& path);

  // Copies the file into memory of this process, 64-byte aligned; later changes of the file are not
  // seen. Fails when the file is shorter than its announced size.
  static Result<FileBytes> Read(const std::string& path);

  // A view of memory that the caller keeps alive. `name` stands for the path in messages.
  static FileBytes Borrow(std::span<const uint8_t> bytes, std::string name);

  FileBytes(FileBytes&& other) noexcept;
  FileBytes& operator=(FileBytes&& other) noexcept;
  ~FileBytes();

  const uint8_t* data() const { return data_; }
  size_t size() const { return size_; }
  const std::string& path() const { return path_; }
  Backing backing() const { return backing_; }

 private:
  FileBytes() = default;
  void Release();

  const uint8_t* data_ = nullptr;
  size_t size_ = 0;
  std::string path_;
  Backing backing_ = Backing::kBorrowed;
};

}  // namespace kvbound

#endif  // KVBOUND_MODEL_FILE_BYTES_H_
