#ifndef KVBOUND_MODEL_BLOCKS_H_
#define KVBOUND_MODEL_BLOCKS_H_

#include <cstdint>
#include <span>

#include "ggml.h"
#include "model/graph.h"

namespace kvbound {

// The parts of a decoder block as ggml graphs. T = n_tok, S = n_seq, N = T * S; shapes are ggml's
// ne, fastest first.
class Blocks {
 public:
  Blocks(ggml_context* context, const GraphSources& sources, const GraphSpec& spec,
         std::span<const SeqRun> runs, const Graph& inputs)
      : ctx_(context),
        sources_(sources),
        hparams_(sources.model.hparams()),
        spec_(spec),
        runs_(runs),
        in_(inputs) {}

  // RMS norm over the first dimension, times `weight`.
  ggml_tensor* Norm(ggml_tensor* x, ggml_tensor* weight);

  // The attention half of a block: {n_embd, N} -> {n_embd, N}, the residual not yet added.
  // Appends K and V first if the spec says so.
  ggml_tensor* Attention(ggml_tensor* x, int32_t layer, ggml_cgraph* nodes);

  // The feed-forward half: {n_embd, N} -> {n_embd, N}, the residual not yet added.
  ggml_tensor* FeedForward(ggml_tensor* x, const LayerWeights& weights);

  // The gate of a layer up to its last product: {n_embd, N} -> {n_kv_head, n_part, N}, to be added
  // up over the parts; bias and logsigmoid not yet applied.
  ggml_tensor* Gate(ggml_tensor* x, int32_t layer);

  // Writes the rows of x {n_embd, N} into the hidden rows of the tokens' slots.
  void AppendHidden(ggml_tensor* x, ggml_cgraph* nodes);

 private:
  // W x: {rows of W, N}, by whichever of the CPU's ways is fastest for W's type and N columns.
  ggml_tensor* Product(ggml_tensor* weight, ggml_tensor* x);
  // W x + bias, split into heads, normed where the model has a norm: {head_dim, n_head, N}.
  ggml_tensor* Heads(ggml_tensor* x, ggml_tensor* weight, ggml_tensor* bias, ggml_tensor* norm,
                     int64_t n_head);
  ggml_tensor* Rope(ggml_tensor* heads);
  // Writes x {head_dim, n_head, N} into the tokens' slots of `store`, which is laid out as K, or
  // as V if transposed.
  void AppendRows(ggml_tensor* x, ggml_tensor* store, bool transposed, ggml_cgraph* nodes);
  // Attention of q {head_dim, n_head, N} over the slots of one run, whose sequences begin at
  // `seq_begin` within the batch: {n_head * head_dim, T * count}.
  ggml_tensor* Attend(ggml_tensor* q, int32_t layer, const SeqRun& run, int32_t seq_begin);
  ggml_tensor* AttendPlain(ggml_tensor* q, ggml_tensor* k, ggml_tensor* v, ggml_tensor* mask);
  ggml_tensor* AttendFlash(ggml_tensor* q, ggml_tensor* k, ggml_tensor* v, ggml_tensor* mask);
  ggml_tensor* AttendFused(ggml_tensor* q, ggml_tensor* k, ggml_tensor* v, int32_t layer,
                           int32_t seq_begin);

  ggml_context* ctx_;
  const GraphSources& sources_;
  const HParams& hparams_;
  const GraphSpec& spec_;
  std::span<const SeqRun> runs_;
  const Graph& in_;
};

}  // namespace kvbound

#endif  // KVBOUND_MODEL_BLOCKS_H_
