#ifndef KVBOUND_TRAIN_BASE_TRANSFORMER_H_
#define KVBOUND_TRAIN_BASE_TRANSFORMER_H_

#include <torch/torch.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "kvbound/status.h"
#include "model/hparams.h"
#include "train/layer_ops.h"

namespace kvbound::train {

using torch::Tensor;

// The frozen language model in torch, with the weights of a GGUF file dequantised: llama, qwen2 and
// qwen3. Gradients flow through activations, never into weights. Immutable; thread-safe.
class BaseTransformer {
 public:
  // `dtype` is that of the weights and of every activation: kFloat, or kDouble to check gradients.
  // Another is refused
  // (Unsupported); else errors are those of opening a model.
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
  // Matrices are [n_out, n_in]; undefined where the model has none. Products of one input are one.
  struct Layer {
    Tensor attn_norm, qkv, qkv_bias, q_norm, k_norm, attn_out;
    Tensor ffn_norm, gate_up, ffn_down;
  };
  friend class BaseLoader;

  BaseTransformer(HParams hparams, torch::Dtype dtype)
      : hparams_(std::move(hparams)), dtype_(dtype) {}
  RopeTable Table(const Tensor& positions) const;
  Tensor SplitHeads(const Tensor& rows, const Tensor& norm, const RopeTable& table) const;

  HParams hparams_;
  torch::Dtype dtype_;
  Tensor embedding_;      // [n_vocab, n_embd]
  Tensor head_;           // [n_vocab, n_embd]
  Tensor output_norm_;    // [n_embd]
  Tensor frequencies_;    // f64 [n_rot / 2], radians per position
  double magnitude_ = 1;  // of the rotated part (YaRN)
  std::vector<Layer> layers_;

  mutable std::mutex table_mutex_;
  mutable Tensor table_positions_;  // what the table was made for
  mutable uint32_t table_version_ = 0;
  mutable RopeTable table_;
};

}  // namespace kvbound::train

#endif  // KVBOUND_TRAIN_BASE_TRANSFORMER_H_
