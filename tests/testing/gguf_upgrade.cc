#include "testing/gguf_upgrade.h"

#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>

#include "base/strings.h"
#include "model/gguf_value.h"
#include "testing/gguf_writer.h"

namespace kvbound::testing {
namespace {

constexpr uint64_t kAlignment = 32;

class Upgrade {
 public:
  explicit Upgrade(std::span<const uint8_t> bytes) : in_(bytes) {}

  Result<std::vector<uint8_t>> Run() {
    at_ = 2 * sizeof(uint32_t);  // magic and version
    out_ = "GGUF" + Bytes32(3);
    const uint64_t n_tensors = Widen(), n_keys = Widen();
    for (uint64_t i = 0; i < n_keys && ok_; ++i) {
      String();
      Value(static_cast<GgufType>(Copy32()));
    }
    for (uint64_t i = 0; i < n_tensors && ok_; ++i) Tensor();
    if (!ok_)
      return Corrupt(
          "GGUF version 1: expected a whole header, found its end or an "
          "unknown value type");
    out_.append((kAlignment - out_.size() % kAlignment) % kAlignment, '\0');
    const uint64_t data = (at_ + kAlignment - 1) / kAlignment * kAlignment;
    if (data > in_.size()) return Corrupt("GGUF version 1: expected tensor data, found the end");
    out_.append(reinterpret_cast<const char*>(in_.data()) + data, in_.size() - data);
    return std::vector<uint8_t>(out_.begin(), out_.end());
  }

 private:
  void Copy(uint64_t n_bytes) {
    ok_ = ok_ && n_bytes <= in_.size() - at_;
    if (!ok_) return;
    out_.append(reinterpret_cast<const char*>(in_.data()) + at_, n_bytes);
    at_ += n_bytes;
  }

  uint32_t Read32() {
    uint32_t value = 0;
    ok_ = ok_ && sizeof(value) <= in_.size() - at_;
    if (!ok_) return 0;
    std::memcpy(&value, in_.data() + at_, sizeof(value));
    at_ += sizeof(value);
    return value;
  }

  uint32_t Copy32() {
    const uint32_t value = Read32();
    out_ += Bytes32(value);
    return value;
  }

  uint64_t Widen() {
    const uint64_t value = Read32();
    out_ += Bytes64(value);
    return value;
  }

  void String() { Copy(Widen()); }

  void Value(GgufType type) {
    if (type == GgufType::kString) return String();
    if (type != GgufType::kArray) {
      ok_ = ok_ && GgufTypeBytes(type) > 0;
      return Copy(GgufTypeBytes(type));
    }
    const auto element = static_cast<GgufType>(Copy32());
    const uint64_t count = Widen();
    ok_ = ok_ && (element == GgufType::kString || GgufTypeBytes(element) > 0);
    if (element != GgufType::kString) return Copy(count * GgufTypeBytes(element));
    for (uint64_t i = 0; i < count && ok_; ++i) String();
  }

  void Tensor() {
    String();
    const uint32_t n_dims = Copy32();
    for (uint32_t i = 0; i < n_dims && ok_; ++i) Widen();
    Copy(sizeof(uint32_t) + sizeof(uint64_t));  // type and offset
  }

  std::span<const uint8_t> in_;
  uint64_t at_ = 0;
  std::string out_;
  bool ok_ = true;
};

}  // namespace

Result<std::vector<uint8_t>> UpgradeGguf(std::span<const uint8_t> bytes) {
  constexpr size_t kHeaderBytes = 4 * sizeof(uint32_t);
  if (bytes.size() < kHeaderBytes || std::memcmp(bytes.data(), "GGUF", 4) != 0) {
    return Corrupt("expected a GGUF file, found other bytes");
  }
  uint32_t version;
  std::memcpy(&version, bytes.data() + 4, sizeof(version));
  if (version != 1) return std::vector<uint8_t>(bytes.begin(), bytes.end());
  return Upgrade(bytes).Run();
}

Status UpgradeGgufFile(const std::string& from, const std::string& to) {
  std::ifstream in(from, std::ios::binary);
  if (!in) return NotFound(StrCat(from, ": cannot be read"));
  const std::vector<uint8_t> bytes{std::istreambuf_iterator<char>(in), {}};
  KVBOUND_ASSIGN_OR_RETURN(const std::vector<uint8_t> upgraded, UpgradeGguf(bytes));
  std::ofstream out(to, std::ios::binary);
  out.write(reinterpret_cast<const char*>(upgraded.data()),
            static_cast<std::streamsize>(upgraded.size()));
  if (!out.flush()) return IoError(StrCat(to, ": cannot be written"));
  return Status::Ok();
}

}  // namespace kvbound::testing
