#ifndef KVBOUND_TRAIN_ATTENTION_H_
#define KVBOUND_TRAIN_ATTENTION_H_

#include <torch/custom_class.h>
#include <torch/torch.h>

#include <cstdint>
#include <vector>

#include "train/base_transformer.h"

namespace kvbound::train {

using torch::Tensor;

// Which keys each block of queries sees: its own documents' up to itself. Made once per sequence
// and used by every layer. Thread-safe.
class AttentionLayout : public torch::CustomClassHolder {
 public:
  struct Block {
    int64_t begin = 0;  // of the queries
    int64_t end = 0;
    int64_t key_begin = 0;   // keys are key_begin..end - 1
    int64_t mask_begin = 0;  // the first column, from key_begin, that some query does not see
    Tensor mask;             // [end - begin, columns from mask_begin]: 0 or -inf
    Tensor age;              // [end - begin, end - key_begin]: steps of decay, 0 where hidden
  };

  // `positions` and `document` are i64 [T]; the first `exempt` positions of a document are never
  // decayed.
  AttentionLayout(const Tensor& positions, const Tensor& document, int64_t exempt,
                  torch::Dtype dtype);

  const std::vector<Block>& blocks() const { return blocks_; }

 private:
  std::vector<Block> blocks_;
};

// Causal attention whose logits get (t - i) * log_beta[kv head, i]; plain where `log_beta` is
// undefined. `log_beta` is [n_kv_head, T] in the heads' type. Differentiable in all four; the
// weights are kept for the way back, about n_head * T * T / 2 of them. Returns [T, n_head *
// head_dim].
Tensor Attention(const BaseTransformer::Heads& heads, const Tensor& log_beta,
                 const c10::intrusive_ptr<AttentionLayout>& layout);

}  // namespace kvbound::train

#endif  // KVBOUND_TRAIN_ATTENTION_H_
