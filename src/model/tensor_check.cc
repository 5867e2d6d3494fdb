#include <ggml-cpu.h>
#include <ggml.h>

#include <array>
#include <cmath>
#include <cstring>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "base/log.h"
#include "base/strings.h"
#include "model/hparams.h"

namespace kvbound {
namespace {

// Weights up to this size are read at load and searched for NaN and infinity. A larger model must
// not be pulled into memory for a check; there, a step with a non-finite logit is an error.
constexpr uint64_t kMaxScanBytes = uint64_t{32} << 20;

// What the graph does with a tensor decides which types it may have.
enum class Use { kMatrix, kVector };

// A dimension and the keys it comes from.
struct Dim {
  int64_t size;
  std::string_view origin;
};

class Checker {
 public:
  Checker(const GgufFile& file, const HParams& hparams) : file_(file), hp_(hparams) {}

  Status Check() {
    KVBOUND_RETURN_IF_ERROR(CheckOuterTensors());
    for (int32_t layer = 0; layer < hp_.n_layer; ++layer) {
      KVBOUND_RETURN_IF_ERROR(CheckLayer(layer));
    }
    KVBOUND_RETURN_IF_ERROR(CheckLeftovers());
    KVBOUND_RETURN_IF_ERROR(CheckRopeFactors());
    return CheckFinite();
  }

 private:
  std::string Key(std::string_view name) const { return StrCat(ArchName(hp_.arch), ".", name); }

  Status CheckOuterTensors();
  Status CheckLayer(int32_t layer);
  Status CheckLeftovers() const;
  Status CheckLeftover(std::string_view name) const;
  Status CheckRopeFactors() const;
  Status CheckFinite() const;
  Status CheckFinite(const GgufTensor& tensor) const;

  Status Require(const std::string& name, Use use, const std::vector<Dim>& shape);
  Status Allow(const std::string& name, Use use, const std::vector<Dim>& shape);
  Status CheckShape(const GgufTensor& tensor, const std::vector<Dim>& shape) const;
  Status CheckType(const GgufTensor& tensor, Use use) const;

  Dim Embd() const { return {hp_.n_embd, "embedding_length"}; }
  Dim Vocab() const { return {hp_.n_vocab, "vocab_size"}; }
  Dim FeedForward() const { return {hp_.n_ff, "feed_forward_length"}; }
  Dim Head() const { return {hp_.head_dim, "attention.key_length"}; }
  Dim Heads() const {
    return {int64_t{hp_.n_head} * hp_.head_dim, "attention.head_count * attention.key_length"};
  }
  Dim KvHeads() const {
    return {int64_t{hp_.n_kv_head} * hp_.head_dim,
            "attention.head_count_kv * attention.key_length"};
  }

  const GgufFile& file_;
  const HParams& hp_;
  std::unordered_set<std::string_view> known_;
};

Status Checker::Require(const std::string& name, Use use, const std::vector<Dim>& shape) {
  if (file_.FindTensor(name) == nullptr) {
    const bool is_layer = name.starts_with("blk.");
    return file_.TensorError(
        name, is_layer ? StrCat("one, as ", Key("block_count"), " is ", hp_.n_layer) : "one",
        "no such tensor: it is missing");
  }
  return Allow(name, use, shape);
}

Status Checker::Allow(const std::string& name, Use use, const std::vector<Dim>& shape) {
  const GgufTensor* tensor = file_.FindTensor(name);
  if (tensor == nullptr) return Status::Ok();
  known_.insert(tensor->name);
  KVBOUND_RETURN_IF_ERROR(CheckShape(*tensor, shape));
  return CheckType(*tensor, use);
}

Status Checker::CheckShape(const GgufTensor& tensor, const std::vector<Dim>& shape) const {
  std::string text, origins;
  bool is_equal = true;
  for (size_t i = 0; i < tensor.ne.size(); ++i) {
    is_equal &= tensor.ne[i] == (i < shape.size() ? shape[i].size : 1);
    if (i >= shape.size()) continue;
    text += StrCat(i == 0 ? "" : ", ", shape[i].size);
    origins += StrCat(i == 0 ? "" : ", ", Key(shape[i].origin));
  }
  if (is_equal) return Status::Ok();
  return file_.TensorError(tensor.name, StrCat("shape [", text, "] (", origins, ")"),
                           tensor.ShapeText());
}

Status Checker::CheckType(const GgufTensor& tensor, Use use) const {
  const std::string found = StrCat("type ", ggml_type_name(tensor.type));
  if (use == Use::kVector && tensor.type != GGML_TYPE_F32) {
    return file_.TensorError(tensor.name, "type f32", found);
  }
  const bool can_multiply = ggml_get_type_traits_cpu(tensor.type)->vec_dot != nullptr;
  const bool can_read =
      tensor.type == GGML_TYPE_F32 || ggml_get_type_traits(tensor.type)->to_float != nullptr;
  if (!can_multiply || !can_read) {
    return file_.TensorError(tensor.name, "a type that the CPU back end multiplies", found);
  }
  return Status::Ok();
}

Status Checker::CheckOuterTensors() {
  KVBOUND_RETURN_IF_ERROR(Require("token_embd.weight", Use::kMatrix, {Embd(), Vocab()}));
  KVBOUND_RETURN_IF_ERROR(Require("output_norm.weight", Use::kVector, {Embd()}));
  KVBOUND_RETURN_IF_ERROR(Allow("output.weight", Use::kMatrix, {Embd(), Vocab()}));
  return Allow("rope_freqs.weight", Use::kVector,
               {{hp_.rope.n_rot / 2, "rope.dimension_count / 2"}});
}

Status Checker::CheckLayer(int32_t layer) {
  const auto name = [layer](std::string_view part) { return StrCat("blk.", layer, ".", part); };
  const struct {
    std::string_view name;
    Use use;
    std::vector<Dim> shape;
  } kRequired[] = {{"attn_norm.weight", Use::kVector, {Embd()}},
                   {"attn_q.weight", Use::kMatrix, {Embd(), Heads()}},
                   {"attn_k.weight", Use::kMatrix, {Embd(), KvHeads()}},
                   {"attn_v.weight", Use::kMatrix, {Embd(), KvHeads()}},
                   {"attn_output.weight", Use::kMatrix, {Heads(), Embd()}},
                   {"ffn_norm.weight", Use::kVector, {Embd()}},
                   {"ffn_gate.weight", Use::kMatrix, {Embd(), FeedForward()}},
                   {"ffn_up.weight", Use::kMatrix, {Embd(), FeedForward()}},
                   {"ffn_down.weight", Use::kMatrix, {FeedForward(), Embd()}}};
  for (const auto& tensor : kRequired) {
    KVBOUND_RETURN_IF_ERROR(Require(name(tensor.name), tensor.use, tensor.shape));
  }
  if (hp_.may_have_qkv_bias) {
    KVBOUND_RETURN_IF_ERROR(Allow(name("attn_q.bias"), Use::kVector, {Heads()}));
    KVBOUND_RETURN_IF_ERROR(Allow(name("attn_k.bias"), Use::kVector, {KvHeads()}));
    KVBOUND_RETURN_IF_ERROR(Allow(name("attn_v.bias"), Use::kVector, {KvHeads()}));
  }
  if (hp_.has_qk_norm) {
    KVBOUND_RETURN_IF_ERROR(Require(name("attn_q_norm.weight"), Use::kVector, {Head()}));
    KVBOUND_RETURN_IF_ERROR(Require(name("attn_k_norm.weight"), Use::kVector, {Head()}));
  }
  return Status::Ok();
}

// Tensors that this engine does not use: those that another engine would use are refused.
Status Checker::CheckLeftovers() const {
  for (const GgufTensor& tensor : file_.tensors()) {
    if (!known_.contains(tensor.name)) {
      KVBOUND_RETURN_IF_ERROR(CheckLeftover(tensor.name));
    }
  }
  return Status::Ok();
}

Status Checker::CheckLeftover(std::string_view name) const {
  static constexpr std::string_view kUsedElsewhere[] = {"output.bias",
                                                        "output_norm.bias",
                                                        "token_embd_norm.weight",
                                                        "token_embd_norm.bias",
                                                        "position_embd.weight",
                                                        "token_types.weight",
                                                        "rope_factors_long.weight",
                                                        "rope_factors_short.weight"};
  const bool is_unused_table =
      name.ends_with(".attn_rot_embd") || name.ends_with(".attention.rotary_emb.inv_freq");
  bool is_used = name.starts_with("blk.") && !is_unused_table;
  for (const std::string_view other : kUsedElsewhere) is_used |= name == other;
  if (is_used) {
    return Unsupported(StrCat(file_.path(), ": tensor '", Printable(name), "': expected no such ",
                              "tensor in a ", ArchName(hp_.arch), " model with ",
                              Key("block_count"), " = ", hp_.n_layer, ", found one"));
  }
  Log(LogLevel::kWarning, StrCat(file_.path(), ": tensor '", Printable(name), "' is not used"));
  return Status::Ok();
}

Status Checker::CheckRopeFactors() const {
  const GgufTensor* tensor = file_.FindTensor("rope_freqs.weight");
  if (tensor == nullptr) return Status::Ok();
  for (int64_t i = 0; i < tensor->ne[0]; ++i) {
    float factor;
    std::memcpy(&factor, tensor->data + i * sizeof(factor), sizeof(factor));
    if (!std::isfinite(factor) || factor <= 0.0f) {
      return file_.TensorError(tensor->name, "finite factors above 0",
                               StrCat(factor, " at element ", i));
    }
  }
  return Status::Ok();
}

Status Checker::CheckFinite() const {
  uint64_t n_bytes = 0;
  for (const GgufTensor& tensor : file_.tensors()) n_bytes += tensor.n_bytes;
  for (const GgufTensor& tensor : file_.tensors()) {
    const bool is_small = tensor.n_dims == 1 && tensor.n_bytes <= kMaxScanBytes / 32;
    if (n_bytes > kMaxScanBytes && !is_small) continue;
    if (known_.contains(tensor.name)) KVBOUND_RETURN_IF_ERROR(CheckFinite(tensor));
  }
  return Status::Ok();
}

Status Checker::CheckFinite(const GgufTensor& tensor) const {
  constexpr int64_t kStep = 4096;  // a multiple of every block size
  const auto to_float = ggml_get_type_traits(tensor.type)->to_float;
  const int64_t block = ggml_blck_size(tensor.type);
  const auto n = static_cast<int64_t>(tensor.n_elements());
  std::array<float, kStep> values;
  // Some types' blocks are read as 4-byte words, so the copy is aligned.
  alignas(16) std::array<uint8_t, kStep * sizeof(float)> bytes;
  for (int64_t at = 0; at < n; at += kStep) {
    const int64_t count = std::min(kStep, n - at);
    const size_t begin = static_cast<size_t>(at / block) * ggml_type_size(tensor.type);
    const size_t n_bytes = static_cast<size_t>(count / block) * ggml_type_size(tensor.type);
    std::memcpy(bytes.data(), tensor.data + begin, n_bytes);
    if (tensor.type == GGML_TYPE_F32) {
      std::memcpy(values.data(), bytes.data(), n_bytes);
    } else {
      to_float(bytes.data(), values.data(), count);
    }
    for (int64_t i = 0; i < count; ++i) {
      if (!std::isfinite(values[static_cast<size_t>(i)])) {
        return file_.TensorError(tensor.name, "finite numbers",
                                 StrCat(values[static_cast<size_t>(i)], " at element ", at + i));
      }
    }
  }
  return Status::Ok();
}

}  // namespace

Status CheckTensors(const GgufFile& file, const HParams& hparams) {
  return Checker(file, hparams).Check();
}

}  // namespace kvbound
