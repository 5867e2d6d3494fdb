#include "golden/golden_model.h"

#include <cstring>
#include <filesystem>
#include <fstream>
#include <vector>

#include "base/strings.h"
#include "golden/llama2c_file.h"
#include "testing/gguf_upgrade.h"
#include "testing/gguf_writer.h"

namespace kvbound::golden {
namespace {

// Only small test models come in the formats that are rewritten in memory.
constexpr uint64_t kMaxRewrittenBytes = uint64_t{1} << 30;

Result<std::vector<uint8_t>> ReadAll(const std::string& file) {
  std::error_code error;
  const uint64_t size = std::filesystem::file_size(file, error);
  if (error) return NotFound(StrCat(file, ": ", error.message()));
  if (size > kMaxRewrittenBytes) {
    return Unsupported(StrCat(file, ": expected at most ", kMaxRewrittenBytes,
                              " bytes of a file to rewrite, found ", size));
  }
  std::vector<uint8_t> bytes(size);
  std::ifstream in(file, std::ios::binary);
  if (!in.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(size))) {
    return IoError(StrCat(file, ": cannot be read"));
  }
  return bytes;
}

// The magic and, of a GGUF, the version.
struct FileHead {
  bool is_gguf = false;
  uint32_t version = 0;
};

Result<FileHead> ReadHead(const std::string& file) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(file, error)) {
    return NotFound(StrCat(file, ": expected a model file, found nothing"));
  }
  char bytes[8] = {};
  std::ifstream in(file, std::ios::binary);
  in.read(bytes, sizeof(bytes));
  FileHead head;
  head.is_gguf = std::memcmp(bytes, "GGUF", 4) == 0;
  std::memcpy(&head.version, bytes + 4, sizeof(head.version));
  return head;
}

// The path of a GGUF that the engine reads: `file` itself, or a rewritten one in a temporary
// folder.
Result<std::string> AsCurrentGguf(const std::string& file) {
  KVBOUND_ASSIGN_OR_RETURN(const FileHead head, ReadHead(file));
  if (head.is_gguf && head.version != 1) return file;
  KVBOUND_ASSIGN_OR_RETURN(const std::vector<uint8_t> bytes, ReadAll(file));
  testing::GgufBytes rewritten;
  if (head.is_gguf) {
    KVBOUND_ASSIGN_OR_RETURN(rewritten, testing::UpgradeGguf(bytes));
  } else {
    KVBOUND_ASSIGN_OR_RETURN(rewritten, Llama2cToGguf(bytes, file));
  }
  return testing::WriteTemp(rewritten);
}

}  // namespace

Result<std::shared_ptr<const Model>> LoadGoldenModel(const std::string& file) {
  KVBOUND_ASSIGN_OR_RETURN(const std::string gguf, AsCurrentGguf(file));
  ModelOptions options;
  options.dequantize_f32 = true;
  return Model::Load(gguf, options);
}

}  // namespace kvbound::golden
