#ifndef KVBOUND_MODEL_GRAPH_INPUTS_H_
#define KVBOUND_MODEL_GRAPH_INPUTS_H_

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "ggml.h"
#include "kvbound/status.h"
#include "model/graph.h"

namespace kvbound {

inline constexpr float kMasked = -std::numeric_limits<float>::infinity();

// Host copies of a graph's inputs, allocated once for the largest graph. Fill, then Upload. N
// tokens, sequence by sequence, as in Graph. Not thread-safe.
class GraphInputs {
 public:
  // For graphs that need no more than this.
  struct Sizes {
    int64_t tokens = 0;
    int64_t cells = 0;  // (token, slot) pairs of a mask; 0: attention is fused and takes none
    int64_t heads = 0;  // KV heads of all sequences
    int64_t slots = 0;  // of one sequence
  };
  explicit GraphInputs(const Sizes& sizes);
  static uint64_t Bytes(const Sizes& sizes);
  uint64_t allocated_bytes() const;

  std::vector<int32_t> tokens;  // also the hidden slots, if the stream starts there
  std::vector<int32_t> positions;
  std::vector<int32_t> targets;  // also the rows of logits wanted
  std::vector<int64_t> slots;
  std::vector<float> row_on;
  std::vector<Visible> visible;
  std::vector<int32_t> occupied;
  std::vector<int32_t> ranks;
  std::span<const float> rows;       // [N, n_embd], the caller's
  std::span<const float> mean_head;  // [n_embd], the caller's

  bool has_mask() const { return !mask_.empty(); }
  // The mask row of one token: [n_kv], to be filled with 0 or kMasked. REQUIRES: has_mask().
  std::span<float> MaskRow(int64_t token, int32_t n_kv) {
    return std::span(mask_).subspan(static_cast<size_t>(token) * n_kv, n_kv);
  }

  // Copies what `graph` reads into its input tensors.
  void Upload(const Graph& graph);

 private:
  std::vector<float> mask_;
  std::vector<ggml_fp16_t> mask_f16_;  // flash attention takes no other
};

// Copies out.size() floats from a graph's output, beginning at element `first`.
void ReadOutput(const ggml_tensor* tensor, int64_t first, std::span<float> out);

}  // namespace kvbound

#endif  // KVBOUND_MODEL_GRAPH_INPUTS_H_
