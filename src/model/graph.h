#ifndef KVBOUND_MODEL_GRAPH_H_
#define KVBOUND_MODEL_GRAPH_H_

#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

#include "ggml.h"
#include "kernels/attention.h"
#include "kv/layout.h"
#include "kv/tensors.h"
#include "model/loaded_gates.h"
#include "model/loaded_model.h"

namespace kvbound {

// A contiguous range of the store's sequences.
struct SeqRun {
  int32_t first = 0;
  int32_t count = 0;
  bool operator==(const SeqRun&) const = default;
};

// What a graph computes. Equal specs give equal graphs, so graphs are cached by it.
struct GraphSpec {
  // Where the residual stream of each token starts: the embedding of a token, a row given by the
  // caller, or the kept hidden row of a slot.
  enum class Start { kTokens, kRows, kHiddenRows };
  enum class Output { kLogits, kTargetLogit, kNormed };

  Start start = Start::kTokens;
  bool append = true;  // write K, V and hidden rows of the tokens into their slots
  int32_t n_tok = 1;   // tokens per sequence
  int32_t n_seq = 1;   // sequences of all runs; n_tok == 1 or n_seq == 1
  int32_t n_kv = 0;    // slots read, a multiple of kSlotGroup
  int32_t first_layer = 0;
  bool last_ffn = true;  // the last layer's feed-forward block is applied
  Output output = Output::kLogits;
  int32_t n_out = 0;     // kLogits: rows of logits computed, of n_tok * n_seq tokens
  bool centred = false;  // kTargetLogit: minus the mean logit over the vocabulary

  bool operator==(const GraphSpec&) const = default;
};

// A built graph: its inputs to be set before, and its outputs to be read after a computation.
// Null where the spec does not need it. N = n_tok * n_seq tokens, ordered sequence by sequence.
struct Graph {
  ggml_cgraph* nodes = nullptr;

  ggml_tensor* tokens = nullptr;        // i32 [N]
  ggml_tensor* rows = nullptr;          // f32 [N, n_embd]
  ggml_tensor* hidden_slots = nullptr;  // i32 [N], slots whose hidden rows start the stream
  ggml_tensor* positions = nullptr;     // i32 [N]
  ggml_tensor* slots = nullptr;         // i64 [n_seq, n_tok], slots that are written
  ggml_tensor* mask = nullptr;          // [n_seq, n_tok, n_kv], 0 or -inf; f32, f16 for flash
  ggml_tensor* row_on = nullptr;        // f32 [N], 0 silences a token's attention (no append)
  ggml_tensor* visible = nullptr;       // i32 [N, 2], Visible of each token; fused, as the next two
  ggml_tensor* occupied = nullptr;      // i32 [n_seq, n_kv_head], slots of each head
  ggml_tensor* ranks = nullptr;         // i32 [n_kv], the order of the slots (no append)
  ggml_tensor* out_rows = nullptr;      // i32 [n_out], tokens whose logits are wanted
  ggml_tensor* targets = nullptr;       // i32 [N], token whose logit is read
  ggml_tensor* mean_head = nullptr;     // f32 [n_embd]

  ggml_tensor* logits = nullptr;        // f32 [n_out, n_vocab]
  ggml_tensor* target_logit = nullptr;  // f32 [N]
  ggml_tensor* normed = nullptr;        // f32 [N, n_embd], after the final norm
  // Per layer, for appended tokens if there are gates: their last product, f32
  // [N, n_part, n_kv_head], to be added up over the parts.
  std::vector<ggml_tensor*> gate_outputs;
  // Attention that slots got from this pass, f32 [n_layer, n_seq, n_kv_head, n_kv]; if the store
  // has the column and tokens are appended.
  ggml_tensor* attention_mass = nullptr;
};

// Everything a builder reads.
struct GraphSources {
  const LoadedModel& model;
  const KvLayout& layout;
  const KvTensors& kv;
  AttentionPath attention = AttentionPath::kStock;  // not kAuto
  const LoadedGates* gates = nullptr;               // none: no log beta is computed
  std::atomic<int32_t>* counters = nullptr;         // of fused attention; measuring needs none
};

// The tile of queries of ggml's flash attention.
inline constexpr int32_t kFlashTile = 64;

// The largest matrix of which a graph makes an f32 copy for one product: 16 MiB of its memory.
inline constexpr int64_t kMaxCopiedElements = int64_t{4} << 20;

// Whether attention of `spec` takes ggml's flash attention: if asked for, and of the stock
// operators on CPUs for chunks that fill a tile (V is then turned row-major in passing), where it
// was measured 1.25 to 1.45 times as fast as plain products; below, and for other types, it is
// slower.
bool UsesFlash(const GraphSources& sources, const GraphSpec& spec);

// The shape of fused attention over the sequences of `spec`.
AttentionShape FusedShape(const GraphSources& sources, const GraphSpec& spec);

// An upper bound on the tensors of any graph over `n_run` runs of sequences.
int64_t MaxGraphTensors(const GraphSources& sources, int32_t n_run);

// Builds the forward pass of `spec` over the sequences of `runs` in `context`.
Graph BuildGraph(ggml_context* context, const GraphSources& sources, const GraphSpec& spec,
                 std::span<const SeqRun> runs);

// Builds z = W[first_row, first_row + n_rows) h for `n_col` columns h: logits of a block of the
// vocabulary. Inputs: rows = h f32 [n_col, n_embd]; output: logits [n_col, n_rows].
Graph BuildVocabBlock(ggml_context* context, const GraphSources& sources, int64_t first_row,
                      int64_t n_rows, int64_t n_col);

}  // namespace kvbound

#endif  // KVBOUND_MODEL_GRAPH_H_
