#ifndef KVBOUND_TESTING_TINY_REFERENCE_H_
#define KVBOUND_TESTING_TINY_REFERENCE_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "testing/tiny_model.h"

namespace kvbound::testing {

// What a forward pass of n tokens leaves behind.
struct ReferenceResult {
  std::vector<std::vector<double>> logits;               // [n, n_vocab]
  std::vector<std::vector<double>> hidden;               // [n, n_embd], before output_norm
  std::vector<std::vector<double>> last_input;           // [n, n_embd], entering the last layer
  std::vector<std::vector<std::vector<double>>> keys;    // [n_layer, n, n_kv_head * head_dim]
  std::vector<std::vector<std::vector<double>>> values;  // [n_layer, n, n_kv_head * head_dim]
};

// The parts of a tiny model's forward pass for one token, in plain loops and double precision. Rows
// of a stream are [n_embd], of q [n_head * head_dim], of k and v [n_kv_head * head_dim].
class ReferencePass {
 public:
  using Row = std::vector<double>;
  using Rows = std::vector<Row>;

  // `model` must outlive the pass.
  explicit ReferencePass(const TinyModel& model) : model_(model), o_(model.options) {}

  Row Embedding(int32_t id) const;
  // Projected from the normed stream, normed and rotated where the model says so.
  Row Query(int layer, const Row& x, int32_t position) const;
  Row Key(int layer, const Row& x, int32_t position) const;
  Row Value(int layer, const Row& x) const;
  // Attention of q over the rows j that `visible` allows, through the output matrix; zero if it
  // allows none. The residual is not added.
  Row Attend(int layer, const Row& q, const Rows& k, const Rows& v,
             const std::function<bool(int kv_head, int j)>& visible) const;
  // The residual is not added.
  Row FeedForward(int layer, const Row& stream) const;
  // Logits [n_vocab] of a stream after the last layer.
  Row Head(const Row& x) const;
  // Turns every head of a row on by a number of positions.
  void Rotate(int32_t positions, Row* x) const;

  static void Add(const Row& y, Row* x) {
    for (size_t i = 0; i < y.size(); ++i) (*x)[i] += y[i];
  }

 private:
  Row Multiply(const std::string& name, const Row& x) const;
  Row Project(const std::string& name, const Row& x) const;
  Row Norm(const Row& x, const std::string& name) const;
  void NormSpan(const std::vector<float>& gain, double* x) const;
  void NormHeads(const std::string& name, Row* x) const;
  size_t At(int head, int c) const { return static_cast<size_t>(head * o_.head_dim + c); }

  const TinyModel& model_;
  const TinyModelOptions& o_;
};

// Says whether the query of token `query` sees the key of token `key` (indices into ids).
using Visible = std::function<bool(int layer, int kv_head, int query, int key)>;

// The position by which the key of token `key` is rotated when the query of `query` sees it.
using KeyPosition = std::function<int32_t(int layer, int kv_head, int query, int key)>;

// The forward pass of a tiny model in plain loops and double precision, without ggml: rotation
// (both pairings, factors, linear scaling), biases and q/k norms as the model says. `positions` is
// where each id sits (empty: 0..n-1), and its key too unless `key_position` is given, which is
// asked about visible keys; `visible` is causal in the order of ids unless given.
ReferenceResult ReferenceForward(const TinyModel& model, const std::vector<int32_t>& ids,
                                 std::vector<int32_t> positions = {}, const Visible& visible = {},
                                 const KeyPosition& key_position = {});

// Logits after the last id, [n_vocab]. For a one-layer model, the kept ids and the last id with
// their positions give exactly what a bounded cache must give.
std::vector<double> ReferenceLogits(const TinyModel& model, const std::vector<int32_t>& ids,
                                    const std::vector<int32_t>& positions = {});

// Negative log-probability of `target` under `logits`, in nats.
double ReferenceNll(const std::vector<double>& logits, int32_t target);

}  // namespace kvbound::testing

#endif  // KVBOUND_TESTING_TINY_REFERENCE_H_
