#include "train/base_transformer.h"

#include <ggml.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/strings.h"
#include "ggml-cpu.h"
#include "model/model_file.h"
#include "text/llama_log.h"

namespace kvbound::train {

// Copies the weights out of the file, which may be closed afterwards.
class BaseLoader {
 public:
  BaseLoader(const GgufFile& file, BaseTransformer* out) : file_(file), out_(*out) {}

  void Run() {
    const HParams& hp = out_.hparams_;
    out_.embedding_ = Get("token_embd.weight");
    const bool tied = file_.FindTensor("output.weight") == nullptr;
    out_.head_ = tied ? out_.embedding_ : Get("output.weight");
    out_.output_norm_ = Get("output_norm.weight");
    for (int32_t l = 0; l < hp.n_layer; ++l) AddLayer(StrCat("blk.", l, "."));
    SetFrequencies();
  }

 private:
  void AddLayer(const std::string& prefix) {
    BaseTransformer::Layer layer;
    layer.attn_norm = Get(prefix + "attn_norm.weight");
    layer.qkv = Join({Get(prefix + "attn_q.weight"), Get(prefix + "attn_k.weight"),
                      Get(prefix + "attn_v.weight")});
    layer.qkv_bias = Biases(prefix);
    layer.q_norm = Find(prefix + "attn_q_norm.weight");
    layer.k_norm = Find(prefix + "attn_k_norm.weight");
    layer.attn_out = Get(prefix + "attn_output.weight");
    layer.ffn_norm = Get(prefix + "ffn_norm.weight");
    layer.gate_up = Join({Get(prefix + "ffn_gate.weight"), Get(prefix + "ffn_up.weight")});
    layer.ffn_down = Get(prefix + "ffn_down.weight");
    out_.layers_.push_back(std::move(layer));
  }

  // Undefined if the layer has none; zeros for those of the three that it lacks.
  Tensor Biases(const std::string& prefix) {
    const HParams& hp = out_.hparams_;
    std::vector<Tensor> parts;
    bool any = false;
    for (const char* name : {"q", "k", "v"}) {
      const int64_t n = int64_t{name[0] == 'q' ? hp.n_head : hp.n_kv_head} * hp.head_dim;
      const Tensor bias = Find(StrCat(prefix, "attn_", name, ".bias"));
      any = any || bias.defined();
      parts.push_back(bias.defined() ? bias : torch::zeros({n}, out_.dtype_));
    }
    return any ? Join(parts) : Tensor();
  }

  static Tensor Join(const std::vector<Tensor>& parts) { return torch::cat(parts, 0); }

  Tensor Find(const std::string& name) {
    return file_.FindTensor(name) == nullptr ? Tensor() : Get(name);
  }

  // REQUIRES: the file has it; CheckTensors saw to that.
  Tensor Get(const std::string& name) {
    const GgufTensor& source = *file_.FindTensor(name);
    const int64_t n = source.ne[0];
    const int64_t n_rows = static_cast<int64_t>(source.n_elements()) / n;
    const size_t row_bytes = ggml_row_size(source.type, n);
    const ggml_to_float_t to_float = ggml_get_type_traits(source.type)->to_float;
    const Tensor values =
        torch::empty(source.n_dims == 1 ? std::vector<int64_t>{n} : std::vector<int64_t>{n_rows, n},
                     torch::kFloat);
    auto* to = values.data_ptr<float>();
    for (int64_t r = 0; r < n_rows; ++r) {
      const uint8_t* from = source.data + r * row_bytes;
      if (source.type == GGML_TYPE_F32) {
        std::memcpy(to + r * n, from, row_bytes);
      } else {
        to_float(from, to + r * n, n);
      }
    }
    return values.to(out_.dtype_);
  }

  // As ggml_rope_ext: angles are linear in the position, YaRN's mixture included.
  void SetFrequencies() {
    const RopeParams& r = out_.hparams_.rope;
    const Tensor factors = Find("rope_freqs.weight");
    float ramp[2] = {0, 0};
    ggml_rope_yarn_corr_dims(r.n_rot, r.orig_ctx, r.freq_base, r.beta_fast, r.beta_slow, ramp);
    out_.frequencies_ = torch::empty({r.n_rot / 2}, torch::kDouble);
    auto* to = out_.frequencies_.data_ptr<double>();
    for (int32_t j = 0; j < r.n_rot / 2; ++j) {
      double f = std::pow(static_cast<double>(r.freq_base), -2.0 * j / r.n_rot);
      if (factors.defined()) f /= factors[j].item<double>();
      const double at = (j - ramp[0]) / std::max(0.001, double{ramp[1]} - ramp[0]);
      const double mix = r.ext_factor * (1.0 - std::clamp(at, 0.0, 1.0));
      to[j] = f * (r.freq_scale() * (1.0 - mix) + mix);
    }
    out_.magnitude_ = r.attn_factor;
    if (r.ext_factor != 0.0f) out_.magnitude_ *= 1.0 + 0.1 * std::log(double{r.factor});
  }

  const GgufFile& file_;
  BaseTransformer& out_;
};

Result<std::unique_ptr<BaseTransformer>> BaseTransformer::Load(const std::string& gguf_path,
                                                               torch::Dtype dtype) {
  if (dtype != torch::kFloat && dtype != torch::kDouble) {
    return Unsupported(
        StrCat("training: expected type Float or Double, found ", c10::toString(dtype)));
  }
  InstallLlamaLog();
  ggml_cpu_init();
  KVBOUND_ASSIGN_OR_RETURN(const CheckedModelFile file, OpenCheckedModel(gguf_path));
  std::unique_ptr<BaseTransformer> base(new BaseTransformer(file.hparams, dtype));
  try {
    torch::NoGradGuard no_grad;
    BaseLoader(file.file, base.get()).Run();
  } catch (const std::exception& error) {  // torch: out of memory
    return OutOfBudget(StrCat(gguf_path, ": cannot dequantise the weights: ", error.what()));
  }
  return base;
}

Tensor BaseTransformer::Embed(const Tensor& tokens) const {
  return embedding_.index_select(0, tokens);
}

Tensor BaseTransformer::AttentionInput(int32_t layer, const Tensor& x) const {
  return RmsNorm(x, layers_[layer].attn_norm, hparams_.rms_eps);
}

BaseTransformer::Heads BaseTransformer::Project(int32_t layer, const Tensor& normed,
                                                const Tensor& positions) const {
  const Layer& w = layers_[layer];
  const int64_t n_query = int64_t{hparams_.n_head} * hparams_.head_dim;
  const int64_t n_key = int64_t{hparams_.n_kv_head} * hparams_.head_dim;
  const Tensor all = w.qkv_bias.defined() ? torch::addmm(w.qkv_bias, normed, w.qkv.t())
                                          : torch::mm(normed, w.qkv.t());
  const std::vector<Tensor> parts = all.split_with_sizes({n_query, n_key, n_key}, 1);
  const RopeTable table = Table(positions);
  const Tensor v = parts[2].view({-1, hparams_.n_kv_head, hparams_.head_dim});
  return {SplitHeads(parts[0], w.q_norm, table), SplitHeads(parts[1], w.k_norm, table),
          v.transpose(0, 1).contiguous()};
}

Tensor BaseTransformer::SplitHeads(const Tensor& rows, const Tensor& norm,
                                   const RopeTable& table) const {
  if (!norm.defined()) return RotateHeads(rows, hparams_.head_dim, table);
  const Tensor normed =
      RmsNorm(rows.reshape({-1, hparams_.head_dim}), norm, hparams_.rms_eps).view(rows.sizes());
  return RotateHeads(normed, hparams_.head_dim, table);
}

// Every layer asks for the same positions, so the last table is kept.
RopeTable BaseTransformer::Table(const Tensor& positions) const {
  std::lock_guard lock(table_mutex_);
  const auto version = static_cast<uint32_t>(positions._version());
  if (table_positions_.defined() && table_positions_.is_same(positions) &&
      table_version_ == version) {
    return table_;
  }
  torch::NoGradGuard no_grad;
  const Tensor angles = torch::outer(positions.to(torch::kDouble), frequencies_);
  table_ = {(torch::cos(angles) * magnitude_).to(dtype_),
            (torch::sin(angles) * magnitude_).to(dtype_), hparams_.rope.neox};
  table_positions_ = positions;
  table_version_ = version;
  return table_;
}

Tensor BaseTransformer::Finish(int32_t layer, const Tensor& x, const Tensor& attended) const {
  const Layer& w = layers_[layer];
  const Tensor h = torch::addmm(x, attended, w.attn_out.t());
  const Tensor normed = RmsNorm(h, w.ffn_norm, hparams_.rms_eps);
  return torch::addmm(h, SwiGlu(torch::mm(normed, w.gate_up.t())), w.ffn_down.t());
}

Tensor BaseTransformer::FinalNorm(const Tensor& x) const {
  return RmsNorm(x, output_norm_, hparams_.rms_eps);
}

Tensor BaseTransformer::Logits(const Tensor& normed) const { return torch::mm(normed, head_.t()); }

}  // namespace kvbound::train
