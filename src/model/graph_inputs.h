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
  // For graphs of at most `max_tokens` tokens, that read at most `max_cells` (token, slot) pairs.
  GraphInputs(int64_t max_tokens, int64_t max_cells);
  static uint64_t Bytes(int64_t max_tokens, int64_t max_cells);
  uint64_t allocated_bytes() const;

  std::vector<int32_t> tokens;  // also the hidden slots, if the stream starts there
  std::vector<int32_t> positions;
  std::vector<int32_t> targets;  // also the rows of logits wanted
  std::vector<int64_t> slots;
  std::vector<float> row_on;
  std::span<const float> rows;       // [N, n_embd], the caller's
  std::span<const float> mean_head;  // [n_embd], the caller's

  // The mask row of one token: [n_kv], to be filled with 0 or kMasked.
  std::span<float> MaskRow(int64_t token, int32_t n_kv) {
    return std::span(mask_).subspan(static_cast<size_t>(token) * n_kv, n_kv);
  }

  // Copies what `graph` reads into its input tensors.
  void Upload(const Graph& graph);

 private:
  std::vector<float> mask_;
  std::vector<ggml_fp16_t> mask_f16_;  // fused attention takes no other
};

// Copies out.size() floats from a graph's output, beginning at element `first`.
void ReadOutput(const ggml_tensor* tensor, int64_t first, std::span<float> out);

}  // namespace kvbound

#endif  // KVBOUND_MODEL_GRAPH_INPUTS_H_
