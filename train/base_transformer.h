#ifndef KVBOUND_TRAIN_BASE_TRANSFORMER_H_
#define KVBOUND_TRAIN_BASE_TRANSFORMER_H_

#include <torch/torch.h>

#include <memory>
#include <string>
#include <vector>

#include "kvbound/status.h"
#include "model/hparams.h"

namespace kvbound::train {

using torch::Tensor;

// The frozen language model in torch, with the weights of a GGUF file dequantised: llama, qwen2 and
// qwen3. Gradients flow through activations, never into weights. Immutable; thread-safe.
class BaseTransformer {
 public:
  // `dtype` is that of the weights and of every activation: kFloat, or kDouble to check gradients.
  // Errors are those of opening a model; YaRN is refused (Unsupported).
  static Result<std::unique_ptr<BaseTransformer>> Load(const std::string& gguf_path,
                                                       torch::Dtype dtype);

  const HParams& hparams() const { return hparams_; }
  torch::Dtype dtype() const { return dtype_; }

  Tensor Embed(const Tensor& tokens) const;  // [T, n_embd]

  // The layer's first norm: what q, k, v and the gate read. [T, n_embd]
  Tensor AttentionInput(int32_t layer, const Tensor& x) const;

  // Biases, norms of q and k, and RoPE applied; the softmax scale not.
  struct Heads {
    Tensor q;  // [n_head, T, head_dim]
    Tensor k;  // [n_kv_head, T, head_dim]
    Tensor v;  // [n_kv_head, T, head_dim]
  };
  Heads Project(int32_t layer, const Tensor& normed, const Tensor& positions) const;

  // The rest of the layer: output product, residual, norm, feed-forward, residual. `attended` is
  // [T, n_head * head_dim]. Returns [T, n_embd].
  Tensor Finish(int32_t layer, const Tensor& x, const Tensor& attended) const;

  Tensor FinalNorm(const Tensor& x) const;
  Tensor Logits(const Tensor& normed) const;  // [rows, n_vocab]

  // The output matrix [n_vocab, n_embd]: d loss / d normed = d loss / d logits times this.
  const Tensor& head() const { return head_; }

 private:
  // Matrices are [n_out, n_in]; undefined where the model has none.
  struct Layer {
    Tensor attn_norm, q, k, v, q_bias, k_bias, v_bias, q_norm, k_norm, attn_out;
    Tensor ffn_norm, ffn_gate, ffn_up, ffn_down;
  };
  friend class BaseLoader;

  BaseTransformer(HParams hparams, torch::Dtype dtype)
      : hparams_(std::move(hparams)), dtype_(dtype) {}
  Tensor SplitHeads(const Tensor& x, const Tensor& norm, int64_t n_head) const;
  Tensor Rotate(const Tensor& heads, const Tensor& positions) const;

  HParams hparams_;
  torch::Dtype dtype_;
  Tensor embedding_;    // [n_vocab, n_embd]
  Tensor head_;         // [n_vocab, n_embd]
  Tensor output_norm_;  // [n_embd]
  Tensor frequencies_;  // f64 [n_rot / 2], radians per position
  std::vector<Layer> layers_;
};

}  // namespace kvbound::train

#endif  // KVBOUND_TRAIN_BASE_TRANSFORMER_H_
