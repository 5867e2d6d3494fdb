#include "model/model_file.h"

#include <cstring>
#include <string_view>
#include <utility>

namespace kvbound {
namespace {

void Append(std::vector<uint8_t>* out, const void* bytes, size_t n_bytes) {
  if (n_bytes == 0) return;
  const size_t at = out->size();
  out->resize(at + n_bytes);
  std::memcpy(out->data() + at, bytes, n_bytes);
}

template <typename T>
void AppendNumber(std::vector<uint8_t>* out, T number) {
  Append(out, &number, sizeof(number));
}

bool IsForTokenizer(std::string_view key) {
  return key == "general.architecture" || key == "general.name" || key.starts_with("tokenizer.");
}

}  // namespace

Result<CheckedModelFile> OpenCheckedModel(const std::string& path, const GgufOpenOptions& options) {
  KVBOUND_ASSIGN_OR_RETURN(GgufFile file, GgufFile::Open(path, options));
  return CheckModel(std::move(file));
}

Result<CheckedModelFile> CheckModel(GgufFile file) {
  KVBOUND_ASSIGN_OR_RETURN(HParams hparams, ReadHParams(file));
  KVBOUND_RETURN_IF_ERROR(CheckVocabulary(file, hparams));
  KVBOUND_RETURN_IF_ERROR(CheckTensors(file, hparams));
  return CheckedModelFile{std::move(file), std::move(hparams)};
}

std::vector<uint8_t> VocabularyGguf(const GgufFile& file) {
  constexpr uint32_t kVersion = 3;
  uint64_t n_keys = 0;
  for (const auto& [key, value] : file.metadata()) n_keys += IsForTokenizer(key);
  std::vector<uint8_t> out;
  Append(&out, "GGUF", 4);
  AppendNumber(&out, kVersion);
  AppendNumber(&out, uint64_t{0});  // tensors
  AppendNumber(&out, n_keys);
  for (const auto& [key, value] : file.metadata()) {
    if (!IsForTokenizer(key)) continue;
    AppendNumber(&out, uint64_t{key.size()});
    Append(&out, key.data(), key.size());
    AppendNumber(&out, value.type);
    if (value.type == GgufType::kArray) {
      AppendNumber(&out, value.element);
      AppendNumber(&out, value.count);
    }
    Append(&out, value.data, value.n_bytes);
  }
  return out;
}

}  // namespace kvbound
