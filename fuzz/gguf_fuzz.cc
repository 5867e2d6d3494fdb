// Any bytes as a GGUF model: header, hyperparameters, vocabulary and tensors are checked, and what
// passes is read through every accessor. An input that begins with "GGUF" is taken as it is; any
// other one is a list of changes to a valid tiny model, so that no seeds are needed.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <string_view>
#include <utility>
#include <vector>

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

// Reads an input from front to back; zeros after its end.
class Input {
 public:
  Input(const uint8_t* data, size_t size) : data_(data), size_(size) {}
  bool Empty() const { return at_ >= size_; }
  uint64_t Number(int n_bytes) {
    uint64_t value = 0;
    for (int i = 0; i < n_bytes; ++i) {
      value |= static_cast<uint64_t>(at_ < size_ ? data_[at_++] : 0) << (8 * i);
    }
    return value;
  }

 private:
  const uint8_t* data_;
  size_t size_;
  size_t at_ = 0;
};

void Overwrite(GgufBytes* bytes, size_t at, uint64_t value, size_t n_bytes) {
  if (at + n_bytes <= bytes->size()) std::memcpy(bytes->data() + at, &value, n_bytes);
}

// One change: a byte, a 32- or 64-bit number, an odd number, a hole, an insertion, an end.
void Change(Input* input, GgufBytes* bytes) {
  static constexpr uint64_t kOdd[] = {0,          1,          7,          0x7FFFFFFF, 0x80000000,
                                      ~0ull,      1ull << 32, 1ull << 61, 1ull << 62, 1ull << 63,
                                      0x7FC00000, 0x7F800000, 0xBF800000};
  const uint64_t kind = input->Number(1);
  const size_t at = input->Number(2);
  if (at > bytes->size()) return;
  const auto place = bytes->begin() + static_cast<std::ptrdiff_t>(at);
  const size_t n = std::min<size_t>(input->Number(1), bytes->size() - at);
  switch (kind % 7) {
    case 0:
      return Overwrite(bytes, at, input->Number(1), 1);
    case 1:
      return Overwrite(bytes, at, input->Number(4), 4);
    case 2:
      return Overwrite(bytes, at, input->Number(8), 8);
    case 3:
      return Overwrite(bytes, at, kOdd[n % std::size(kOdd)], (kind & 128) != 0 ? 8 : 4);
    case 4:
      bytes->erase(place, place + static_cast<std::ptrdiff_t>(n));
      return;
    case 5:
      bytes->insert(place, n, static_cast<uint8_t>(input->Number(1)));
      return;
    default:
      if (n < 16) bytes->resize(at);
  }
}

GgufBytes MakeBytes(const uint8_t* data, size_t size) {
  // A copy of exact size on the heap, so that one byte too far is seen.
  if (size >= 4 && std::memcmp(data, "GGUF", 4) == 0) return GgufBytes(data, data + size);
  static const std::vector<GgufBytes> kBases = MakeBases();
  Input input(data, size);
  GgufBytes bytes = kBases[input.Number(1) % kBases.size()];
  while (!input.Empty()) Change(&input, &bytes);
  bytes.shrink_to_fit();
  return bytes;
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
  const GgufBytes bytes = MakeBytes(data, size);
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
