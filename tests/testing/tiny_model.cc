#include "testing/tiny_model.h"

#include <cmath>
#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "base/strings.h"

namespace kvbound::testing {
namespace {

constexpr int32_t kFirstByteId = 3;
constexpr int32_t kFirstLetterId = 260;

std::vector<TinyPiece> MakePieces(const std::vector<TinyPiece>& extra) {
  std::vector<TinyPiece> pieces = {{"<unk>", 0.0f, 2}, {"<s>", 0.0f, 3}, {"</s>", 0.0f, 3}};
  for (int byte = 0; byte < 256; ++byte) {
    char text[8];
    std::snprintf(text, sizeof(text), "<0x%02X>", byte);
    pieces.push_back({text, 0.0f, 6});
  }
  pieces.push_back({"\u2581", -1.0f, 1});
  for (int i = 0; i < 26; ++i) {
    pieces.push_back({std::string(1, static_cast<char>('a' + i)), -2.0f - i, 1});
  }
  pieces.insert(pieces.end(), extra.begin(), extra.end());
  return pieces;
}

// Small integers over 128 times `scale` from a 64-bit LCG: exact in f32 and f16.
std::vector<float> Noise(uint64_t seed, int64_t n, float scale) {
  uint64_t x = seed * 2654435761 + 12345;
  std::vector<float> values;
  values.reserve(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) {
    x = x * 6364136223846793005ULL + 1442695040888963407ULL;
    values.push_back(static_cast<float>(static_cast<int64_t>((x >> 40) % 65) - 32) / 128.0f *
                     scale);
  }
  return values;
}

// Collects tensors; each random one takes the next seed.
class TensorMaker {
 public:
  TensorMaker(uint64_t seed, ggml_type matrix_type)
      : seed_(seed * 1000), matrix_type_(matrix_type) {}

  void Matrix(std::string name, int64_t columns, int64_t rows, float scale) {
    Given(std::move(name), {columns, rows}, Noise(++seed_, rows * columns, scale));
  }

  void Norm(std::string name, int64_t n) {
    std::vector<float> values = Noise(++seed_, n, 0.5f);
    for (float& value : values) value += 1.0f;
    Given(std::move(name), {n}, std::move(values));
  }

  void Bias(std::string name, int64_t n) { Given(std::move(name), {n}, Noise(++seed_, n, 2.0f)); }

  void Given(std::string name, std::vector<int64_t> dims, std::vector<float> values) {
    TinyTensor tensor{std::move(name), std::move(dims), std::move(values), GGML_TYPE_F32, {}};
    if (tensor.dims.size() == 2) tensor.type = matrix_type_;
    Encode(&tensor);
    tensors_.push_back(std::move(tensor));
  }

  std::vector<TinyTensor> Take() { return std::move(tensors_); }

 private:
  // Fills `bytes`, and makes `values` what the bytes mean.
  static void Encode(TinyTensor* tensor) {
    const int64_t columns = tensor->dims[0];
    const auto n = static_cast<int64_t>(tensor->values.size());
    tensor->bytes.resize(ggml_row_size(tensor->type, columns) * static_cast<size_t>(n / columns));
    if (tensor->type == GGML_TYPE_F32) {
      std::memcpy(tensor->bytes.data(), tensor->values.data(), tensor->bytes.size());
      return;
    }
    if (columns % ggml_blck_size(tensor->type) != 0) {
      throw std::logic_error(tensor->name + ": rows do not hold whole blocks");
    }
    ggml_quantize_chunk(tensor->type, tensor->values.data(), tensor->bytes.data(), 0, n / columns,
                        columns, nullptr);
    ggml_get_type_traits(tensor->type)->to_float(tensor->bytes.data(), tensor->values.data(), n);
  }

  uint64_t seed_;
  ggml_type matrix_type_;
  std::vector<TinyTensor> tensors_;
};

void AddLayer(const TinyModelOptions& o, int layer, TensorMaker* make) {
  const std::string blk = StrCat("blk.", layer, ".");
  const int64_t n_q = int64_t{o.n_head} * o.head_dim, n_kv = int64_t{o.n_kv_head} * o.head_dim;
  make->Norm(blk + "attn_norm.weight", o.n_embd);
  make->Matrix(blk + "attn_q.weight", o.n_embd, n_q, 2.0f);
  make->Matrix(blk + "attn_k.weight", o.n_embd, n_kv, 2.0f);
  make->Matrix(blk + "attn_v.weight", o.n_embd, n_kv, 1.0f);
  make->Matrix(blk + "attn_output.weight", n_q, o.n_embd, 1.0f);
  make->Norm(blk + "ffn_norm.weight", o.n_embd);
  make->Matrix(blk + "ffn_gate.weight", o.n_embd, o.n_ff, 1.0f);
  make->Matrix(blk + "ffn_up.weight", o.n_embd, o.n_ff, 1.0f);
  make->Matrix(blk + "ffn_down.weight", o.n_ff, o.n_embd, 1.0f);
  if (o.qkv_bias) {
    make->Bias(blk + "attn_q.bias", n_q);
    make->Bias(blk + "attn_k.bias", n_kv);
    make->Bias(blk + "attn_v.bias", n_kv);
  }
  if (o.arch == Arch::kQwen3) {
    make->Norm(blk + "attn_q_norm.weight", o.head_dim);
    make->Norm(blk + "attn_k_norm.weight", o.head_dim);
  }
}

void AddArchKeys(const TinyModel& model, GgufSpec* spec) {
  const TinyModelOptions& o = model.options;
  const std::string arch(ArchName(o.arch));
  spec->Set(StringKey("general.architecture", arch))
      .Set(StringKey("general.name", o.name))
      .Set(U32Key("general.alignment", o.alignment))
      .Set(U32Key(arch + ".context_length", o.n_ctx))
      .Set(U32Key(arch + ".embedding_length", o.n_embd))
      .Set(U32Key(arch + ".block_count", o.n_layer))
      .Set(U32Key(arch + ".feed_forward_length", o.n_ff))
      .Set(U32Key(arch + ".attention.head_count", o.n_head))
      .Set(U32Key(arch + ".attention.head_count_kv", o.n_kv_head))
      .Set(F32Key(arch + ".attention.layer_norm_rms_epsilon", model.rms_eps))
      .Set(F32Key(arch + ".rope.freq_base", o.freq_base))
      .Set(U32Key(arch + ".rope.dimension_count", model.n_rot()))
      .Set(U32Key(arch + ".vocab_size", model.n_vocab()));
  if (o.head_dim * o.n_head != o.n_embd) {
    spec->Set(U32Key(arch + ".attention.key_length", o.head_dim))
        .Set(U32Key(arch + ".attention.value_length", o.head_dim));
  }
  if (o.rope_scale != 1.0f) {
    spec->Set(StringKey(arch + ".rope.scaling.type", "linear"))
        .Set(F32Key(arch + ".rope.scaling.factor", o.rope_scale));
  }
}

void AddTokenizerKeys(const TinyModel& model, GgufSpec* spec) {
  std::vector<std::string> texts;
  std::vector<double> scores, types;
  for (const TinyPiece& piece : model.pieces) {
    texts.push_back(piece.text);
    scores.push_back(piece.score);
    types.push_back(piece.type);
  }
  spec->Set(StringKey("tokenizer.ggml.model", "llama"))
      .Set(StringKey("tokenizer.ggml.pre", "default"))
      .Set(StringsKey("tokenizer.ggml.tokens", texts))
      .Set(NumbersKey("tokenizer.ggml.scores", GgufType::kF32, scores))
      .Set(NumbersKey("tokenizer.ggml.token_type", GgufType::kI32, types))
      .Set(U32Key("tokenizer.ggml.bos_token_id", 1))
      .Set(U32Key("tokenizer.ggml.eos_token_id", 2))
      .Set(U32Key("tokenizer.ggml.unknown_token_id", 0))
      .Set(BoolKey("tokenizer.ggml.add_bos_token", false))
      .Set(BoolKey("tokenizer.ggml.add_eos_token", false))
      .Set(BoolKey("tokenizer.ggml.add_space_prefix", false));
}

std::vector<int32_t> DefaultOrder(const std::string& bytes_after_z) {
  std::vector<int32_t> order;
  for (int i = 0; i < 26; ++i) order.push_back(kFirstLetterId + i);
  for (const char byte : bytes_after_z) {
    order.push_back(kFirstByteId + static_cast<uint8_t>(byte));
  }
  return order;
}

}  // namespace

const TinyTensor* TinyModel::Find(std::string_view name) const {
  for (const TinyTensor& tensor : tensors) {
    if (tensor.name == name) return &tensor;
  }
  return nullptr;
}

const std::vector<float>& TinyModel::Values(std::string_view name) const {
  const TinyTensor* tensor = Find(name);
  if (tensor == nullptr) throw std::logic_error("no tensor " + std::string(name));
  return tensor->values;
}

GgufSpec TinyModel::Spec() const {
  GgufSpec spec;
  spec.alignment = options.alignment;
  AddArchKeys(*this, &spec);
  AddTokenizerKeys(*this, &spec);
  for (const TinyTensor& tensor : tensors) {
    GgufTensorSpec written;
    written.name = tensor.name;
    written.dims = tensor.dims;
    written.data = tensor.bytes;
    written.type = tensor.type;
    spec.tensors.push_back(std::move(written));
  }
  return spec;
}

TinyModel MakeTinyModel(const TinyModelOptions& options) {
  TinyModel model;
  model.options = options;
  model.pieces = MakePieces(options.extra_pieces);
  TensorMaker make(options.seed, options.matrix_type);
  make.Matrix("token_embd.weight", options.n_embd, model.n_vocab(), 4.0f);
  make.Norm("output_norm.weight", options.n_embd);
  if (!options.tied) make.Matrix("output.weight", options.n_embd, model.n_vocab(), 2.0f);
  if (!options.rope_factors.empty()) {
    make.Given("rope_freqs.weight", {static_cast<int64_t>(options.rope_factors.size())},
               options.rope_factors);
  }
  for (int layer = 0; layer < options.n_layer; ++layer) AddLayer(options, layer, &make);
  model.tensors = make.Take();
  return model;
}

TinyModel MakeSpellingModel(const SpellingOptions& options) {
  TinyModel model;
  const int64_t d = options.n_embd;
  model.options.name = options.name;
  model.options.n_layer = 1;
  model.options.n_embd = options.n_embd;
  model.options.n_head = model.options.n_kv_head = 2;
  model.options.head_dim = options.n_embd / 2;
  model.options.n_ff = 32;
  model.options.n_ctx = options.n_ctx;
  model.pieces = MakePieces(options.extra_pieces);
  model.order = options.order.empty() ? DefaultOrder(options.bytes_after_z) : options.order;
  const int64_t n_vocab = model.n_vocab();
  std::vector<float> embd(static_cast<size_t>(n_vocab * d)), head(embd.size());
  const double root = std::sqrt(static_cast<double>(d));  // RMSNorm makes a one-hot row sqrt(d)
  for (size_t k = 0; k < model.order.size(); ++k) {
    const int64_t id = model.order[k];
    const int64_t next = id == options.eos_after ? 2 : model.order[(k + 1) % model.order.size()];
    embd[static_cast<size_t>(id * d) + k] = 1.0f;
    head[static_cast<size_t>(next * d) + k] =
        static_cast<float>(options.strength(static_cast<int>(k)) / root);
  }
  const auto zeros = [](int64_t n) { return std::vector<float>(static_cast<size_t>(n)); };
  const std::vector<float> ones(static_cast<size_t>(d), 1.0f);
  TensorMaker make(1, GGML_TYPE_F32);
  make.Given("token_embd.weight", {d, n_vocab}, std::move(embd));
  make.Given("output_norm.weight", {d}, ones);
  make.Given("output.weight", {d, n_vocab}, std::move(head));
  make.Given("blk.0.attn_norm.weight", {d}, ones);
  for (const char* name : {"attn_q", "attn_k", "attn_v", "attn_output"}) {
    make.Given(StrCat("blk.0.", name, ".weight"), {d, d}, zeros(d * d));
  }
  make.Given("blk.0.ffn_norm.weight", {d}, ones);
  make.Given("blk.0.ffn_gate.weight", {d, 32}, zeros(d * 32));
  make.Given("blk.0.ffn_up.weight", {d, 32}, zeros(d * 32));
  make.Given("blk.0.ffn_down.weight", {32, d}, zeros(d * 32));
  model.tensors = make.Take();
  return model;
}

}  // namespace kvbound::testing
