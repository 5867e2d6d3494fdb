#include "model/hparams.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <utility>

#include "base/strings.h"

namespace kvbound {
namespace {

constexpr uint64_t kMaxLayers = 1024;
constexpr uint64_t kMaxHeads = 1 << 16;
constexpr uint64_t kMaxWidth = 1 << 24;
constexpr uint64_t kMaxInt32 = std::numeric_limits<int32_t>::max();

struct ArchInfo {
  Arch arch;
  std::string_view name;
  bool neox;
  bool may_have_qkv_bias;
  bool has_qk_norm;
};

constexpr ArchInfo kArchs[] = {
    {Arch::kLlama, "llama", false, true, false},
    {Arch::kQwen2, "qwen2", true, true, false},
    {Arch::kQwen3, "qwen3", true, false, true},
};

std::string SupportedArchs() {
  std::string list;
  for (const ArchInfo& info : kArchs) list += StrCat(list.empty() ? "" : ", ", info.name);
  return list;
}

// Reads the keys "ARCH.*" of one file.
class Reader {
 public:
  Reader(const GgufFile& file, const ArchInfo& arch) : file_(file), arch_(arch) {}

  Result<HParams> Read() {
    HParams hp;
    hp.arch = arch_.arch;
    hp.may_have_qkv_bias = arch_.may_have_qkv_bias;
    hp.has_qk_norm = arch_.has_qk_norm;
    KVBOUND_RETURN_IF_ERROR(ReadName(&hp));
    KVBOUND_RETURN_IF_ERROR(RefuseUnsupportedKeys());
    KVBOUND_RETURN_IF_ERROR(ReadWidths(&hp));
    KVBOUND_RETURN_IF_ERROR(ReadHeads(&hp));
    KVBOUND_RETURN_IF_ERROR(ReadVocabularySize(&hp));
    KVBOUND_RETURN_IF_ERROR(ReadEpsilon(&hp));
    KVBOUND_RETURN_IF_ERROR(ReadRope(hp, &hp.rope));
    KVBOUND_RETURN_IF_ERROR(ReadRopeScaling(hp, &hp.rope));
    KVBOUND_RETURN_IF_ERROR(RefuseSlidingWindow(hp));
    KVBOUND_RETURN_IF_ERROR(ReadSpecialId("tokenizer.ggml.bos_token_id", hp, &hp.bos_id));
    KVBOUND_RETURN_IF_ERROR(ReadSpecialId("tokenizer.ggml.eos_token_id", hp, &hp.eos_id));
    return hp;
  }

 private:
  std::string Key(std::string_view name) const { return StrCat(arch_.name, ".", name); }

  // A count, or an array of one count per layer that are all equal.
  Result<int32_t> Count(std::string_view name, uint64_t max) const {
    const std::string key = Key(name);
    const GgufValue* value = file_.Find(key);
    uint64_t count = 0;
    if (value != nullptr && value->type == GgufType::kArray &&
        value->element != GgufType::kString) {
      KVBOUND_ASSIGN_OR_RETURN(count, CommonElement(key, *value));
    } else {
      KVBOUND_ASSIGN_OR_RETURN(count, file_.GetU64(key));
    }
    if (count < 1 || count > max) {
      return file_.KeyError(key, StrCat("an integer in 1..", max), StrCat(count));
    }
    return static_cast<int32_t>(count);
  }

  Result<uint64_t> CommonElement(const std::string& key, const GgufValue& value) const {
    const GgufNumbers numbers(value);
    const bool is_float = value.element == GgufType::kF32 || value.element == GgufType::kF64;
    if (numbers.size() == 0 || is_float || value.element == GgufType::kBool) {
      return file_.KeyError(key, "an integer", value.TypeName());
    }
    for (uint64_t i = 0; i < numbers.size(); ++i) {
      if (numbers.AsInt(i) != numbers.AsInt(0)) {
        return file_.KeyError(key, "the same number for every layer",
                              StrCat(numbers.AsInt(0), " and ", numbers.AsInt(i)));
      }
    }
    return static_cast<uint64_t>(std::max<int64_t>(numbers.AsInt(0), 0));
  }

  Result<int32_t> CountOr(std::string_view name, uint64_t max, int32_t fallback) const {
    return file_.Has(Key(name)) ? Count(name, max) : fallback;
  }

  // A finite number >= min, as f32.
  Result<float> FloatOr(std::string_view name, float min, float fallback) const {
    const std::string key = Key(name);
    KVBOUND_ASSIGN_OR_RETURN(const double wide, file_.GetF64Or(key, fallback));
    const auto value = static_cast<float>(wide);
    if (!std::isfinite(value) || value < min) {
      return file_.KeyError(key, StrCat("a finite number >= ", min), StrCat(wide));
    }
    return value;
  }

  Status ReadName(HParams* hp) const {
    KVBOUND_ASSIGN_OR_RETURN(const std::string_view name, file_.GetStringOr("general.name", ""));
    hp->name = Printable(name);
    return Status::Ok();
  }

  Status RefuseUnsupportedKeys() const;
  Status RefuseSlidingWindow(const HParams& hp) const;
  Status ReadWidths(HParams* hp) const;
  Status ReadHeads(HParams* hp) const;
  Status ReadVocabularySize(HParams* hp) const;
  Status ReadEpsilon(HParams* hp) const;
  Status ReadRope(const HParams& hp, RopeParams* rope) const;
  Status ReadRopeScaling(const HParams& hp, RopeParams* rope) const;
  Status ReadYarn(RopeParams* rope) const;
  Status ReadSpecialId(std::string_view key, const HParams& hp, std::optional<int32_t>* id) const;

  const GgufFile& file_;
  const ArchInfo& arch_;
};

// Keys that other architectures use to change the computation. A value other than "off" here would
// be ignored silently, so it is refused.
Status Reader::RefuseUnsupportedKeys() const {
  static constexpr std::string_view kOffWhenZero[] = {"expert_count",
                                                      "expert_used_count",
                                                      "attention.clamp_kqv",
                                                      "attention.scale",
                                                      "attention.max_alibi_bias",
                                                      "attention.temperature_scale",
                                                      "logit_scale",
                                                      "embedding_scale",
                                                      "residual_scale",
                                                      "attn_logit_softcapping",
                                                      "final_logit_softcapping",
                                                      "attention.shared_kv_layers"};
  for (const std::string_view name : kOffWhenZero) {
    const std::string key = Key(name);
    const GgufValue* value = file_.Find(key);
    if (value == nullptr) continue;
    if (!value->IsInteger() && !value->IsFloat()) {
      return file_.KeyError(key, "a number", value->TypeName());
    }
    const double number = GgufNumbers(*value).AsDouble(0);
    const bool is_factor = name.ends_with("_scale") && name != "attention.temperature_scale";
    if (number == 0.0 || (is_factor && number == 1.0)) continue;
    return Unsupported(
        StrCat(file_.path(), ": key '", key, "': expected 0 (not supported), found ", number));
  }
  KVBOUND_ASSIGN_OR_RETURN(const bool causal, file_.GetBoolOr(Key("attention.causal"), true));
  if (!causal) return file_.KeyError(Key("attention.causal"), "true", "false");
  return Status::Ok();
}

Status Reader::RefuseSlidingWindow(const HParams& hp) const {
  const std::string key = Key("attention.sliding_window");
  KVBOUND_ASSIGN_OR_RETURN(const uint64_t window, file_.GetU64Or(key, 0));
  if (window == 0 || window >= static_cast<uint64_t>(hp.n_ctx_train)) return Status::Ok();
  return Unsupported(StrCat(file_.path(), ": key '", key,
                            "': expected 0 or at least the context length ", hp.n_ctx_train,
                            " (sliding windows are not supported), found ", window));
}

Status Reader::ReadWidths(HParams* hp) const {
  KVBOUND_ASSIGN_OR_RETURN(hp->n_ctx_train, Count("context_length", kMaxInt32));
  KVBOUND_ASSIGN_OR_RETURN(hp->n_embd, Count("embedding_length", kMaxWidth));
  KVBOUND_ASSIGN_OR_RETURN(hp->n_layer, Count("block_count", kMaxLayers));
  KVBOUND_ASSIGN_OR_RETURN(hp->n_ff, Count("feed_forward_length", kMaxWidth));
  return Status::Ok();
}

Status Reader::ReadHeads(HParams* hp) const {
  KVBOUND_ASSIGN_OR_RETURN(hp->n_head, Count("attention.head_count", kMaxHeads));
  KVBOUND_ASSIGN_OR_RETURN(hp->n_kv_head,
                           CountOr("attention.head_count_kv", kMaxHeads, hp->n_head));
  if (hp->n_head % hp->n_kv_head != 0) {
    return file_.KeyError(Key("attention.head_count_kv"),
                          StrCat("a divisor of ", Key("attention.head_count"), " = ", hp->n_head),
                          StrCat(hp->n_kv_head));
  }
  if (!file_.Has(Key("attention.key_length")) && hp->n_embd % hp->n_head != 0) {
    return file_.KeyError(Key("attention.head_count"),
                          StrCat("a divisor of ", Key("embedding_length"), " = ", hp->n_embd),
                          StrCat(hp->n_head));
  }
  const int32_t quotient = std::max(hp->n_embd / hp->n_head, 1);
  KVBOUND_ASSIGN_OR_RETURN(hp->head_dim, CountOr("attention.key_length", kMaxHeads, quotient));
  KVBOUND_ASSIGN_OR_RETURN(const int32_t value_dim,
                           CountOr("attention.value_length", kMaxHeads, quotient));
  if (value_dim != hp->head_dim) {
    return file_.KeyError(Key("attention.value_length"),
                          StrCat(hp->head_dim, ", as ", Key("attention.key_length")),
                          StrCat(value_dim));
  }
  return Status::Ok();
}

// The rows of the embedding are the truth; both keys must agree with them.
Status Reader::ReadVocabularySize(HParams* hp) const {
  const GgufTensor* embedding = file_.FindTensor("token_embd.weight");
  if (embedding == nullptr) {
    return file_.TensorError("token_embd.weight", "the token embedding",
                             "no such tensor: it is missing");
  }
  if (embedding->n_dims != 2 || embedding->ne[1] > static_cast<int64_t>(kMaxInt32)) {
    return file_.TensorError("token_embd.weight", "a matrix [n_embd, n_vocab]",
                             embedding->ShapeText());
  }
  hp->n_vocab = static_cast<int32_t>(embedding->ne[1]);
  const std::string expected = StrCat(hp->n_vocab, ", the rows of token_embd.weight");
  KVBOUND_ASSIGN_OR_RETURN(const int32_t announced, CountOr("vocab_size", kMaxInt32, hp->n_vocab));
  if (announced != hp->n_vocab) {
    return file_.KeyError(Key("vocab_size"), expected, StrCat(announced));
  }
  return Status::Ok();
}

Status Reader::ReadEpsilon(HParams* hp) const {
  const std::string key = Key("attention.layer_norm_rms_epsilon");
  KVBOUND_ASSIGN_OR_RETURN(const double eps, file_.GetF64(key));
  hp->rms_eps = static_cast<float>(eps);
  if (!std::isfinite(hp->rms_eps) || hp->rms_eps <= 0.0f) {
    return file_.KeyError(key, "a finite number > 0", StrCat(eps));
  }
  return Status::Ok();
}

Status Reader::ReadRope(const HParams& hp, RopeParams* rope) const {
  rope->neox = arch_.neox;
  KVBOUND_ASSIGN_OR_RETURN(rope->n_rot, CountOr("rope.dimension_count", kMaxHeads, hp.head_dim));
  if (rope->n_rot % 2 != 0 || rope->n_rot > hp.head_dim) {
    return file_.KeyError(Key("rope.dimension_count"),
                          StrCat("an even number up to the head size ", hp.head_dim),
                          StrCat(rope->n_rot));
  }
  KVBOUND_ASSIGN_OR_RETURN(rope->freq_base, FloatOr("rope.freq_base", 1.0f, 10000.0f));
  return Status::Ok();
}

Status Reader::ReadRopeScaling(const HParams& hp, RopeParams* rope) const {
  const std::string key = Key("rope.scaling.type");
  KVBOUND_ASSIGN_OR_RETURN(const std::string_view type, file_.GetStringOr(key, "linear"));
  if (type != "none" && type != "linear" && type != "yarn") {
    return Unsupported(StrCat(file_.path(), ": key '", key,
                              "': expected none, linear or yarn, found '", Printable(type), "'"));
  }
  constexpr float kMinFactor = 1e-3f;
  KVBOUND_ASSIGN_OR_RETURN(const float legacy, FloatOr("rope.scale_linear", kMinFactor, 1.0f));
  KVBOUND_ASSIGN_OR_RETURN(const float factor, FloatOr("rope.scaling.factor", kMinFactor, legacy));
  KVBOUND_ASSIGN_OR_RETURN(rope->attn_factor,
                           FloatOr("rope.scaling.attn_factor", kMinFactor, 1.0f));
  KVBOUND_ASSIGN_OR_RETURN(
      rope->orig_ctx, CountOr("rope.scaling.original_context_length", kMaxInt32, hp.n_ctx_train));
  if (type == "none") return Status::Ok();
  rope->factor = factor;
  if (type == "yarn") return ReadYarn(rope);
  if (factor != 1.0f) rope->scaling = RopeScaling::kLinear;
  return Status::Ok();
}

Status Reader::ReadYarn(RopeParams* rope) const {
  rope->scaling = RopeScaling::kYarn;
  KVBOUND_ASSIGN_OR_RETURN(rope->ext_factor, FloatOr("rope.scaling.yarn_ext_factor", 0.0f, 1.0f));
  KVBOUND_ASSIGN_OR_RETURN(const float yarn_attn_factor,
                           FloatOr("rope.scaling.yarn_attn_factor", 0.0f, 1.0f));
  KVBOUND_ASSIGN_OR_RETURN(rope->beta_fast, FloatOr("rope.scaling.yarn_beta_fast", 0.01f, 32.0f));
  KVBOUND_ASSIGN_OR_RETURN(rope->beta_slow, FloatOr("rope.scaling.yarn_beta_slow", 0.01f, 1.0f));
  // ggml_rope_ext multiplies by 1 + 0.1 ln(factor) itself when ext_factor is on, which is already
  // the magnitude wanted of a stretched context; of a shrunken one it has to be undone.
  const float magnitude = 1.0f + 0.1f * std::log(rope->factor);
  const float base = rope->ext_factor == 0.0f ? yarn_attn_factor
                     : rope->factor > 1.0f    ? 1.0f
                                              : 1.0f / magnitude;
  rope->attn_factor *= base;
  return Status::Ok();
}

Status Reader::ReadSpecialId(std::string_view key, const HParams& hp,
                             std::optional<int32_t>* id) const {
  if (!file_.Has(key)) return Status::Ok();
  KVBOUND_ASSIGN_OR_RETURN(const uint64_t value, file_.GetU64(key));
  if (value >= static_cast<uint64_t>(hp.n_vocab)) {
    return file_.KeyError(key, StrCat("a token id below ", hp.n_vocab), StrCat(value));
  }
  *id = static_cast<int32_t>(value);
  return Status::Ok();
}

}  // namespace

std::string_view ArchName(Arch arch) {
  for (const ArchInfo& info : kArchs) {
    if (info.arch == arch) return info.name;
  }
  return "unknown";
}

Result<HParams> ReadHParams(const GgufFile& file) {
  constexpr std::string_view kKey = "general.architecture";
  KVBOUND_ASSIGN_OR_RETURN(const std::string_view name, file.GetString(kKey));
  for (const ArchInfo& info : kArchs) {
    if (info.name == name) return Reader(file, info).Read();
  }
  return Unsupported(StrCat(file.path(), ": key '", kKey, "': expected one of ", SupportedArchs(),
                            ", found '", Printable(name), "'"));
}

}  // namespace kvbound
