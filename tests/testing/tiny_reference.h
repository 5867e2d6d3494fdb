#ifndef KVBOUND_TESTING_TINY_REFERENCE_H_
#define KVBOUND_TESTING_TINY_REFERENCE_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "testing/tiny_model.h"

namespace kvbound::testing {

// What a forward pass of n tokens leaves behind.
struct ReferenceResult {
  std::vector<std::vector<double>> logits;               // [n, n_vocab]
  std::vector<std::vector<double>> hidden;               // [n, n_embd], before output_norm
  std::vector<std::vector<std::vector<double>>> keys;    // [n_layer, n, n_kv_head * head_dim]
  std::vector<std::vector<std::vector<double>>> values;  // [n_layer, n, n_kv_head * head_dim]
};

// Says whether the query of token `query` sees the key of token `key` (indices into ids).
using Visible = std::function<bool(int layer, int kv_head, int query, int key)>;

// The forward pass of a tiny model in plain loops and double precision, without ggml: rotation
// (both pairings, factors, linear scaling), biases and q/k norms as the model says. `positions` is
// where each id sits (empty: 0..n-1); `visible` is causal in the order of ids unless given.
ReferenceResult ReferenceForward(const TinyModel& model, const std::vector<int32_t>& ids,
                                 std::vector<int32_t> positions = {}, const Visible& visible = {});

// Logits after the last id, [n_vocab]. For a one-layer model, the kept ids and the last id with
// their positions give exactly what a bounded cache must give.
std::vector<double> ReferenceLogits(const TinyModel& model, const std::vector<int32_t>& ids,
                                    const std::vector<int32_t>& positions = {});

// Negative log-probability of `target` under `logits`, in nats.
double ReferenceNll(const std::vector<double>& logits, int32_t target);

}  // namespace kvbound::testing

#endif  // KVBOUND_TESTING_TINY_REFERENCE_H_
