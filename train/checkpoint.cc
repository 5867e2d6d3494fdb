#include "train/checkpoint.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string_view>

#include "base/hash.h"
#include "base/strings.h"

namespace kvbound::train {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kMagic = "KVBTRN01";
constexpr uint64_t kMaxHeader = uint64_t{16} << 20;

// A file that is written beside its place and hashed on the way; removed unless Commit succeeds.
class NewFile {
 public:
  explicit NewFile(const std::string& path) : path_(path), temporary_(path + ".part") {
    file_ = std::fopen(temporary_.c_str(), "wb");
    if (!file_) Fail();
  }
  ~NewFile() {
    if (file_) std::fclose(file_);
    if (!done_) std::remove(temporary_.c_str());
  }
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  void Write(const void* data, size_t n_byte) {
    if (!status_.ok()) return;
    hash_ = Fnv1a64({static_cast<const char*>(data), n_byte}, hash_);
    if (std::fwrite(data, 1, n_byte, file_) != n_byte) Fail();
  }
  void WriteNumber(uint64_t number) { Write(&number, sizeof(number)); }

  Status Commit() {
    WriteNumber(hash_);
    if (status_.ok() && (std::fflush(file_) != 0 || fsync(fileno(file_)) != 0)) Fail();
    if (file_ && std::fclose(std::exchange(file_, nullptr)) != 0 && status_.ok()) Fail();
    if (status_.ok() && std::rename(temporary_.c_str(), path_.c_str()) != 0) Fail();
    done_ = status_.ok();
    return status_;
  }

 private:
  void Fail() {
    status_ = IoError(StrCat(path_, ": cannot be written: ", std::strerror(errno),
                             "; an earlier file of that name is unchanged"));
  }

  std::string path_, temporary_;
  std::FILE* file_ = nullptr;
  uint64_t hash_ = Fnv1a64("");
  bool done_ = false;
  Status status_;
};

class OldFile {
 public:
  explicit OldFile(const std::string& path) : path_(path), file_(std::fopen(path.c_str(), "rb")) {
    struct stat info;
    if (file_ && fstat(fileno(file_), &info) == 0) left_ = static_cast<uint64_t>(info.st_size);
  }
  ~OldFile() {
    if (file_) std::fclose(file_);
  }
  OldFile(const OldFile&) = delete;
  OldFile& operator=(const OldFile&) = delete;

  bool open() const { return file_ != nullptr; }
  uint64_t left() const { return left_; }
  uint64_t hash() const { return hash_; }

  Status Read(void* data, uint64_t n_byte) {
    if (n_byte > left_) return Short();
    if (std::fread(data, 1, n_byte, file_) != n_byte) return Short();
    left_ -= n_byte;
    hash_ = Fnv1a64({static_cast<const char*>(data), n_byte}, hash_);
    return Status::Ok();
  }
  Status Short() const { return Corrupt(StrCat(path_, ": checkpoint is cut short")); }

 private:
  std::string path_;
  std::FILE* file_;
  uint64_t left_ = 0;
  uint64_t hash_ = Fnv1a64("");
};

Status ReadTensors(const std::string& path, const Json& list, OldFile* file,
                   Checkpoint* checkpoint) {
  for (const Json& entry : list) {
    const std::vector<int64_t> shape = entry.at("shape").get<std::vector<int64_t>>();
    uint64_t n = 1;
    for (const int64_t size : shape) {
      if (size < 0 || (size > 0 && n > file->left() / static_cast<uint64_t>(size))) {
        return file->Short();
      }
      n *= static_cast<uint64_t>(size);
    }
    if (n * sizeof(float) > file->left()) return file->Short();
    Tensor values = torch::empty(shape, torch::kFloat);
    KVBOUND_RETURN_IF_ERROR(file->Read(values.data_ptr<float>(), n * sizeof(float)));
    checkpoint->tensors.emplace_back(entry.at("name").get<std::string>(), std::move(values));
  }
  const uint64_t expected = file->hash();
  uint64_t found = 0;
  KVBOUND_RETURN_IF_ERROR(file->Read(&found, sizeof(found)));
  if (found != expected || file->left() != 0) {
    return Corrupt(StrCat(path, ": checkpoint was changed after it was written"));
  }
  return Status::Ok();
}

}  // namespace

std::vector<Tensor> Checkpoint::Tensors(const std::string& prefix) const {
  std::vector<Tensor> found;
  for (const auto& [name, tensor] : tensors) {
    if (name.starts_with(prefix)) found.push_back(tensor);
  }
  return found;
}

Status SaveCheckpoint(const Checkpoint& checkpoint, const std::string& path) {
  Json list = Json::array();
  for (const auto& [name, tensor] : checkpoint.tensors) {
    list.push_back({{"name", name}, {"shape", tensor.sizes().vec()}});
  }
  const std::string header =
      Json{{"config", checkpoint.config}, {"state", checkpoint.state}, {"tensors", list}}.dump();
  NewFile file(path);
  file.Write(kMagic.data(), kMagic.size());
  file.WriteNumber(header.size());
  file.Write(header.data(), header.size());
  for (const auto& [name, tensor] : checkpoint.tensors) {
    const Tensor values = tensor.detach().to(torch::kFloat).contiguous();
    file.Write(values.data_ptr<float>(), static_cast<size_t>(values.numel()) * sizeof(float));
  }
  return file.Commit();
}

Result<Checkpoint> LoadCheckpoint(const std::string& path) {
  OldFile file(path);
  if (!file.open()) return NotFound(StrCat(path, ": no such checkpoint"));
  char magic[kMagic.size()] = {};
  uint64_t size = 0;
  if (!file.Read(magic, sizeof(magic)).ok() || std::string_view(magic, sizeof(magic)) != kMagic ||
      !file.Read(&size, sizeof(size)).ok() || size > kMaxHeader || size > file.left()) {
    return Corrupt(StrCat(path, ": expected a checkpoint of gates train"));
  }
  std::string header(size, '\0');
  KVBOUND_RETURN_IF_ERROR(file.Read(header.data(), size));
  Checkpoint checkpoint;
  try {
    const Json json = Json::parse(header);
    checkpoint.config = json.at("config");
    checkpoint.state = json.at("state");
    KVBOUND_RETURN_IF_ERROR(ReadTensors(path, json.at("tensors"), &file, &checkpoint));
  } catch (const Json::exception& error) {
    return Corrupt(StrCat(path, ": header of the checkpoint: ", error.what()));
  }
  return checkpoint;
}

Status CheckConfig(const std::string& path, const Json& saved, const Json& wanted) {
  for (const auto& [name, value] : wanted.items()) {
    const auto found = saved.find(name);
    if (found == saved.end() || *found != value) {
      return InvalidArgument(StrCat(path, ": made with ", name, " ",
                                    found == saved.end() ? "unset" : found->dump(), ", found ",
                                    value.dump()));
    }
  }
  return Status::Ok();
}

Status CheckWritable(const std::string& path) {
  const std::string probe = path + ".part";
  struct stat info;
  const bool folder = stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
  const int file = folder ? -1 : open(probe.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
  if (file < 0) {
    return IoError(
        StrCat(path, ": cannot be written: ", folder ? "is a folder" : std::strerror(errno)));
  }
  close(file);
  unlink(probe.c_str());
  return Status::Ok();
}

}  // namespace kvbound::train
