// Any bytes as a GGUF model: header, hyperparameters, vocabulary and tensors are checked, and what
// passes is read through every accessor. Inputs are changes to valid tiny models.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <utility>
#include <vector>

#include "changes_common.h"
#include "model/gguf_file.h"
#include "model/model_file.h"
#include "testing/gguf_writer.h"
#include "testing/tiny_model.h"

namespace {

using kvbound::testing::GgufBytes;

std::vector<GgufBytes> MakeBases() {
  using kvbound::Arch;
  kvbound::testing::TinyModelOptions options;
  options.n_layer = 1;
  options.n_embd = options.n_ff = 32;
  options.n_head = options.n_kv_head = 2;
  options.head_dim = 16;
  options.tied = true;
  options.rope_factors = {1, 1, 2, 2, 3, 3, 4, 4};
  options.rope_scale = 2.0f;
  std::vector<GgufBytes> bases = {MakeTinyModel(options).Bytes()};
  options.arch = Arch::kQwen2;
  options.qkv_bias = true;
  options.matrix_type = GGML_TYPE_F16;
  bases.push_back(MakeTinyModel(options).Bytes());
  options.arch = Arch::kQwen3;
  options.qkv_bias = false;
  options.matrix_type = GGML_TYPE_Q8_0;
  kvbound::testing::GgufSpec spec = MakeTinyModel(options).Spec();
  spec.Set(kvbound::testing::StringKey("tokenizer.ggml.model", "gpt2"))
      .Set(kvbound::testing::StringsKey("tokenizer.ggml.merges", {"a b", "ab c"}));
  bases.push_back(BuildGguf(spec));
  return bases;
}

// Reads all that the header promises; a sanitizer sees what lies outside.
uint64_t ReadEverything(const kvbound::GgufFile& file) {
  uint64_t sum = 0;
  for (const auto& [key, value] : file.metadata()) {
    sum += key.size() + value.TypeName().size();
    if (value.element == kvbound::GgufType::kString) {
      for (const std::string_view text : kvbound::GgufStrings(value)) {
        for (const char c : text) sum += static_cast<unsigned char>(c);
      }
      continue;
    }
    const kvbound::GgufNumbers numbers(value);
    for (uint64_t i = 0; i < numbers.size(); ++i) {
      sum += static_cast<uint64_t>(numbers.AsInt(i)) + (numbers.AsDouble(i) > 0.0);
    }
  }
  for (const kvbound::GgufTensor& tensor : file.tensors()) {
    for (uint64_t i = 0; i < tensor.n_bytes; ++i) sum += tensor.data[i];
    sum += tensor.ShapeText().size() + tensor.n_elements();
  }
  return sum;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static volatile uint64_t sink;
  static const std::vector<GgufBytes> kBases = MakeBases();
  const GgufBytes bytes = kvbound::fuzz::MakeBytes(data, size, kBases);
  kvbound::Result<kvbound::GgufFile> file = kvbound::GgufFile::FromMemory(bytes, "fuzz.gguf");
  if (!file.ok()) {
    if (file.status().message().empty()) std::abort();
    return 0;
  }
  sink = ReadEverything(*file);
  const kvbound::Result<kvbound::CheckedModelFile> model = kvbound::CheckModel(std::move(*file));
  if (!model.ok()) {
    if (model.status().message().empty()) std::abort();
    return 0;
  }
  // What passes must pass again as the vocabulary that is handed to llama.
  const std::vector<uint8_t> vocabulary = kvbound::VocabularyGguf(model->file);
  if (!kvbound::GgufFile::FromMemory(vocabulary, "vocabulary").ok()) std::abort();
  return 0;
}
