#include "golden/llama2c_file.h"

#include <array>
#include <cstdio>
#include <cstring>
#include <utility>
#include <vector>

#include "base/strings.h"

namespace kvbound::golden {
namespace {

using testing::BoolKey;
using testing::F32Key;
using testing::GgufSpec;
using testing::GgufTensorSpec;
using testing::NumbersKey;
using testing::StringKey;
using testing::StringsKey;
using testing::U32Key;

// Fixed in llama2.c's code, not in its files.
constexpr float kRmsEpsilon = 1e-5f;
constexpr float kFreqBase = 10000.0f;

constexpr int32_t kMaxDim = 1 << 20;
// <unk>, <s>, </s> and the bytes: the least that a SentencePiece vocabulary must have.
constexpr int32_t kMinVocab = 3 + 256;

struct Config {
  int32_t dim = 0;
  int32_t hidden = 0;
  int32_t n_layer = 0;
  int32_t n_head = 0;
  int32_t n_kv_head = 0;
  int32_t n_vocab = 0;
  int32_t n_seq = 0;
  bool tied = true;

  int64_t head_dim() const { return dim / n_head; }
  int64_t kv_dim() const { return head_dim() * n_kv_head; }
};

Result<Config> ReadConfig(std::span<const uint8_t> bytes, const std::string& name) {
  std::array<int32_t, 7> raw;
  if (bytes.size() < sizeof(raw)) {
    return Corrupt(StrCat(name, ": expected 7 int32, found ", bytes.size(), " bytes"));
  }
  std::memcpy(raw.data(), bytes.data(), sizeof(raw));
  static constexpr const char* kNames[] = {"dim",      "hidden", "layers", "heads",
                                           "kv heads", "vocab",  "seq"};
  const bool tied = raw[5] > 0;
  if (!tied && raw[5] >= -kMaxDim) raw[5] = -raw[5];
  for (size_t i = 0; i < raw.size(); ++i) {
    if (raw[i] < 1 || raw[i] > kMaxDim) {
      return Corrupt(
          StrCat(name, ": field '", kNames[i], "': expected 1..", kMaxDim, ", found ", raw[i]));
    }
  }
  const Config c{raw[0], raw[1], raw[2], raw[3], raw[4], raw[5], raw[6], tied};
  if (c.dim % c.n_head != 0 || c.n_head % c.n_kv_head != 0) {
    return Corrupt(StrCat(name, ": expected dim a multiple of heads and heads of kv heads, found ",
                          c.dim, ", ", c.n_head, ", ", c.n_kv_head));
  }
  if (c.n_vocab < kMinVocab) {
    return Corrupt(
        StrCat(name, ": field 'vocab': expected at least ", kMinVocab, ", found ", c.n_vocab));
  }
  return c;
}

// Hands out the file's tensors in their order.
class TensorReader {
 public:
  TensorReader(std::span<const uint8_t> bytes, std::string name)
      : bytes_(bytes), name_(std::move(name)) {}

  // `dims` in ggml's order, fastest first.
  Status Read(const std::string& tensor, std::vector<int64_t> dims, GgufSpec* spec) {
    uint64_t n_bytes = sizeof(float);
    for (const int64_t dim : dims) n_bytes *= static_cast<uint64_t>(dim);
    KVBOUND_RETURN_IF_ERROR(Skip(n_bytes, tensor));
    GgufTensorSpec written;
    written.name = tensor;
    written.dims = std::move(dims);
    const auto data = bytes_.subspan(done_ - n_bytes, n_bytes);
    written.data.assign(data.begin(), data.end());
    spec->tensors.push_back(std::move(written));
    return Status::Ok();
  }

  // One tensor per layer, all layers side by side in the file.
  Status ReadLayers(const std::string& tensor, int32_t n_layer, const std::vector<int64_t>& dims,
                    GgufSpec* spec) {
    for (int32_t layer = 0; layer < n_layer; ++layer) {
      KVBOUND_RETURN_IF_ERROR(Read(StrCat("blk.", layer, ".", tensor, ".weight"), dims, spec));
    }
    return Status::Ok();
  }

  Status Skip(uint64_t n_bytes, const std::string& what) {
    if (n_bytes > bytes_.size() - done_) {
      return Corrupt(StrCat(name_, ": tensor '", what, "': expected ", n_bytes, " bytes at offset ",
                            done_, ", found ", bytes_.size() - done_));
    }
    done_ += n_bytes;
    return Status::Ok();
  }

  Status ExpectEnd() const {
    if (done_ == bytes_.size()) return Status::Ok();
    return Corrupt(StrCat(name_, ": expected ", done_, " bytes, found ", bytes_.size()));
  }

 private:
  std::span<const uint8_t> bytes_;
  std::string name_;
  uint64_t done_ = sizeof(std::array<int32_t, 7>);
};

Status ReadTensors(const Config& c, TensorReader* reader, GgufSpec* spec) {
  const int32_t n = c.n_layer;
  KVBOUND_RETURN_IF_ERROR(reader->Read("token_embd.weight", {c.dim, c.n_vocab}, spec));
  KVBOUND_RETURN_IF_ERROR(reader->ReadLayers("attn_norm", n, {c.dim}, spec));
  KVBOUND_RETURN_IF_ERROR(reader->ReadLayers("attn_q", n, {c.dim, c.dim}, spec));
  KVBOUND_RETURN_IF_ERROR(reader->ReadLayers("attn_k", n, {c.dim, c.kv_dim()}, spec));
  KVBOUND_RETURN_IF_ERROR(reader->ReadLayers("attn_v", n, {c.dim, c.kv_dim()}, spec));
  KVBOUND_RETURN_IF_ERROR(reader->ReadLayers("attn_output", n, {c.dim, c.dim}, spec));
  KVBOUND_RETURN_IF_ERROR(reader->ReadLayers("ffn_norm", n, {c.dim}, spec));
  KVBOUND_RETURN_IF_ERROR(reader->ReadLayers("ffn_gate", n, {c.dim, c.hidden}, spec));
  KVBOUND_RETURN_IF_ERROR(reader->ReadLayers("ffn_down", n, {c.hidden, c.dim}, spec));
  KVBOUND_RETURN_IF_ERROR(reader->ReadLayers("ffn_up", n, {c.dim, c.hidden}, spec));
  KVBOUND_RETURN_IF_ERROR(reader->Read("output_norm.weight", {c.dim}, spec));
  // Tables of rotations, which every reader computes itself.
  const auto table = static_cast<uint64_t>(c.n_seq) * (c.head_dim() / 2) * sizeof(float);
  KVBOUND_RETURN_IF_ERROR(reader->Skip(2 * table, "rotations"));
  if (!c.tied) {
    KVBOUND_RETURN_IF_ERROR(reader->Read("output.weight", {c.dim, c.n_vocab}, spec));
  }
  return reader->ExpectEnd();
}

void SetModelKeys(const Config& c, const std::string& name, GgufSpec* spec) {
  spec->Set(StringKey("general.architecture", "llama"))
      .Set(StringKey("general.name", name))
      .Set(U32Key("llama.context_length", static_cast<uint32_t>(c.n_seq)))
      .Set(U32Key("llama.embedding_length", static_cast<uint32_t>(c.dim)))
      .Set(U32Key("llama.block_count", static_cast<uint32_t>(c.n_layer)))
      .Set(U32Key("llama.feed_forward_length", static_cast<uint32_t>(c.hidden)))
      .Set(U32Key("llama.attention.head_count", static_cast<uint32_t>(c.n_head)))
      .Set(U32Key("llama.attention.head_count_kv", static_cast<uint32_t>(c.n_kv_head)))
      .Set(U32Key("llama.rope.dimension_count", static_cast<uint32_t>(c.head_dim())))
      .Set(F32Key("llama.rope.freq_base", kFreqBase))
      .Set(F32Key("llama.attention.layer_norm_rms_epsilon", kRmsEpsilon))
      .Set(U32Key("llama.vocab_size", static_cast<uint32_t>(c.n_vocab)));
}

// Types as in a GGUF: 1 normal, 2 unknown, 3 control, 6 byte.
void SetVocabulary(int32_t n_vocab, GgufSpec* spec) {
  std::vector<std::string> tokens = {"<unk>", "<s>", "</s>"};
  std::vector<double> types = {2, 3, 3};
  for (int byte = 0; byte < 256; ++byte) {
    char text[8];
    std::snprintf(text, sizeof(text), "<0x%02X>", byte);
    tokens.emplace_back(text);
    types.push_back(6);
  }
  for (int32_t id = kMinVocab; id < n_vocab; ++id) {
    tokens.push_back(StrCat("<", id, ">"));
    types.push_back(1);
  }
  spec->Set(StringKey("tokenizer.ggml.model", "llama"))
      .Set(StringsKey("tokenizer.ggml.tokens", tokens))
      .Set(NumbersKey("tokenizer.ggml.scores", GgufType::kF32,
                      std::vector<double>(tokens.size(), 0.0)))
      .Set(NumbersKey("tokenizer.ggml.token_type", GgufType::kI32, types))
      .Set(U32Key("tokenizer.ggml.bos_token_id", 1))
      .Set(U32Key("tokenizer.ggml.eos_token_id", 2))
      .Set(U32Key("tokenizer.ggml.unknown_token_id", 0))
      .Set(BoolKey("tokenizer.ggml.add_bos_token", false));
}

}  // namespace

Result<testing::GgufBytes> Llama2cToGguf(std::span<const uint8_t> bytes, const std::string& name) {
  KVBOUND_ASSIGN_OR_RETURN(const Config config, ReadConfig(bytes, name));
  GgufSpec spec;
  TensorReader reader(bytes, name);
  KVBOUND_RETURN_IF_ERROR(ReadTensors(config, &reader, &spec));
  SetModelKeys(config, name, &spec);
  SetVocabulary(config.n_vocab, &spec);
  return testing::BuildGguf(spec);
}

}  // namespace kvbound::golden
