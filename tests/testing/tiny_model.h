#ifndef KVBOUND_TESTING_TINY_MODEL_H_
#define KVBOUND_TESTING_TINY_MODEL_H_

#include <ggml.h>

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "model/hparams.h"
#include "testing/gguf_writer.h"

namespace kvbound::testing {

// An entry of the vocabulary. Types as in a file: 1 normal, 2 unknown, 3 control, 6 byte.
struct TinyPiece {
  std::string text;
  float score = 0.0f;
  int type = 1;
};

struct TinyModelOptions {
  Arch arch = Arch::kLlama;  // qwen2, qwen3: NEOX rotation; qwen3: q/k norms
  std::string name = "tiny";
  int n_layer = 2;
  int n_embd = 32;
  int n_head = 4;
  int n_kv_head = 2;
  int head_dim = 8;
  int n_ff = 48;
  int n_ctx = 128;
  int n_rot = 0;  // 0: head_dim
  bool tied = false;
  bool qkv_bias = false;
  std::vector<float> rope_factors;  // n_rot / 2 of them, or none
  float rope_scale = 1.0f;          // linear scaling: positions are divided by this
  float freq_base = 10000.0f;
  uint64_t seed = 1;
  uint32_t alignment = 32;
  std::vector<TinyPiece> extra_pieces;
  // Type of the matrices in the file. `values` below are what the file's bytes mean.
  ggml_type matrix_type = GGML_TYPE_F32;
};

struct TinyTensor {
  std::string name;
  std::vector<int64_t> dims;  // ggml order: fastest first
  std::vector<float> values;  // row by row
  ggml_type type = GGML_TYPE_F32;
  std::vector<uint8_t> bytes;
};

// A complete model, small enough for a forward pass in plain loops.
// Vocabulary: 0 <unk>, 1 <s>, 2 </s>, 3..258 the bytes, 259 U+2581, 260..285 a..z, then extras.
struct TinyModel {
  TinyModelOptions options;
  float rms_eps = 1e-5f;
  std::vector<TinyPiece> pieces;
  std::vector<TinyTensor> tensors;
  std::vector<int32_t> order;  // of a spelling model: ids in the order in which they follow

  int n_vocab() const { return static_cast<int>(pieces.size()); }
  int n_rot() const { return options.n_rot > 0 ? options.n_rot : options.head_dim; }
  const TinyTensor* Find(std::string_view name) const;            // nullptr when absent
  const std::vector<float>& Values(std::string_view name) const;  // REQUIRES: present

  GgufSpec Spec() const;
  GgufBytes Bytes() const { return BuildGguf(Spec()); }
  std::string Write() const { return WriteTemp(Bytes(), options.name + ".gguf"); }
};

// Random but fixed weights, the same on every machine.
TinyModel MakeTinyModel(const TinyModelOptions& options = {});

struct SpellingOptions {
  std::string name = "cycle";
  std::string bytes_after_z = "\xf0\x9f\x98\xb8\n";
  int n_embd = 64;
  int n_ctx = 64;
  std::vector<TinyPiece> extra_pieces;
  std::vector<int32_t> order;  // empty: a..z, then the bytes
  int32_t eos_after = -1;      // an id that </s> follows
  // Logit of the successor of the k-th id of the order; all other logits are 0.
  std::function<float(int k)> strength = [](int) { return 12.0f; };
};

// A model that spells: attention and FFN are zero, so the next token depends on the last one alone.
// From 'a': b c ... z, then the bytes, then a again. No policy, budget, chunk size, KV type or
// thread count may change its greedy text.
TinyModel MakeSpellingModel(const SpellingOptions& options = {});

}  // namespace kvbound::testing

#endif  // KVBOUND_TESTING_TINY_MODEL_H_
