#ifndef KVBOUND_GATES_H_
#define KVBOUND_GATES_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kvbound/status.h"

namespace kvbound {

class Model;

// Retention gates (TRIM-KV, arXiv 2512.03324; DBTrimKV, arXiv 2605.09649): one small MLP per layer
// that reads a token's hidden state, the same that q, k and v are made of, and gives each KV head
// the factor beta in (0, 1) by which the token's importance decays with every step:
//
//   log beta = logsigmoid(W_out act(W_n ... act(W_1 x + b_1) ... + b_n) + b_out)

// gelu is the exact one, x * Phi(x).
enum class GateActivation { kSilu, kGelu, kRelu };
std::string_view GateActivationName(GateActivation activation);  // "silu", "gelu", "relu"

// How the matrices are stored; vectors are always f32. kQ8_0 needs rows divisible by 32.
enum class GateType { kF32, kF16, kQ8_0 };
std::string_view GateTypeName(GateType type);
Result<GateType> ParseGateType(std::string_view name);

// [n_row, n_col], row-major, as ggml stores the type.
struct GateMatrix {
  GateType type = GateType::kF32;
  int64_t n_row = 0;
  int64_t n_col = 0;
  std::vector<uint8_t> data;

  // `values` is [n_row, n_col]. REQUIRES: that many values, and n_col fits the type.
  static GateMatrix FromFloats(GateType type, int64_t n_row, int64_t n_col,
                               std::span<const float> values);
  std::vector<float> ToFloats() const;
};

struct GateLinear {
  GateMatrix weight;        // [n_out, n_in]
  std::vector<float> bias;  // [n_out]
};

// One layer: hidden linears with the activation after each (TRIM-KV has one, DBTrimKV two), then
// the output. The first reads n_embd values, each other the one before it.
struct GateLayer {
  std::vector<GateLinear> hidden;
  GateLinear output;  // [n_kv_head, n_hidden]
};

// Which model gates belong to. `norm_hash` covers the tensors that no quantisation touches, so it
// is the same for every quantisation of one model; 0 if unknown (imported gates).
struct BaseModel {
  std::string architecture;
  std::string name;
  int32_t n_layer = 0;
  int32_t n_embd = 0;
  int32_t n_kv_head = 0;
  int32_t n_vocab = 0;
  uint64_t norm_hash = 0;
};

// How gates came about. Empty strings and zeros where unknown.
struct GateTraining {
  std::string method;              // "local", "full", "local, full", "imported"
  std::vector<std::string> texts;  // "NAME, 1276201 bytes, fnv1a 0123456789abcdef"
  int64_t tokens = 0;              // read in training, all stages
  int64_t steps = 0;
  int64_t seq_len = 0;
  int64_t memory = 0;  // M of the capacity loss
  uint64_t seed = 0;
  double fact_share = 0;  // share of sequences with generated facts
  double loss = 0;        // at the end of the last stage, mean over its last steps
  double capacity_loss = 0;
  double eviction_kl = 0;  // nats per token to the uncut model, under eviction; 0: not measured
};

// The gates of one model. Immutable; thread-safe.
class Gates {
 public:
  struct Parts {
    BaseModel base;
    GateActivation activation = GateActivation::kSilu;
    bool tied_output = false;  // every layer has the same output (DBTrimKV): stored once
    std::vector<GateLayer> layers;
    GateTraining training;
  };

  // InvalidArgument if shapes do not fit each other or a weight is not finite, naming the layer
  // and the tensor.
  static Result<std::shared_ptr<const Gates>> Make(Parts parts);

  // Reads a gate file (docs/formats.md). Errors name file and key or tensor, expected and found.
  static Result<std::shared_ptr<const Gates>> Load(const std::string& path);

  // Writes a gate file. The path holds either the whole new file or what it held before.
  Status Save(const std::string& path) const;

  // The same gates with their matrices stored as `type`.
  Result<std::shared_ptr<const Gates>> ConvertTo(GateType type) const;

  // Whether these gates are of `model`: architecture, shapes, and norm_hash where known.
  Status CheckBase(const Model& model) const;

  const Parts& parts() const { return parts_; }
  int32_t n_layer() const { return static_cast<int32_t>(parts_.layers.size()); }
  GateType type() const;                             // of the first layer's first matrix
  int64_t n_parameter() const;                       // tied outputs counted once
  uint64_t weight_bytes() const;                     // of all matrices and vectors, as held
  const std::string& path() const { return path_; }  // of Load; else empty

 private:
  explicit Gates(Parts parts) : parts_(std::move(parts)) {}

  Parts parts_;
  std::string path_;
};

// What gates trained for `model` must carry.
BaseModel DescribeBase(const Model& model);

}  // namespace kvbound

#endif  // KVBOUND_GATES_H_
