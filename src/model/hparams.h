#ifndef KVBOUND_MODEL_HPARAMS_H_
#define KVBOUND_MODEL_HPARAMS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "kvbound/status.h"
#include "model/gguf_file.h"

namespace kvbound {

enum class Arch { kLlama, kQwen2, kQwen3 };

// The name as in general.architecture: "llama", ...
std::string_view ArchName(Arch arch);

enum class RopeScaling { kNone, kLinear, kYarn };

// Rotary positions, ready for ggml_rope_ext.
struct RopeParams {
  int32_t n_rot = 0;  // rotated elements of a head, even, <= head_dim
  bool neox = false;  // pairs (j, j + n_rot / 2); else (2 j, 2 j + 1)
  float freq_base = 10000.0f;
  RopeScaling scaling = RopeScaling::kNone;
  float factor = 1.0f;       // context is stretched by this; ggml's freq_scale is its inverse
  int32_t orig_ctx = 0;      // positions trained before stretching
  float ext_factor = 0.0f;   // 0 without YaRN
  float attn_factor = 1.0f;  // as ggml_rope_ext takes it
  float beta_fast = 32.0f;
  float beta_slow = 1.0f;

  float freq_scale() const { return 1.0f / factor; }
};

// The numbers that decide a model's shapes, all checked: counts >= 1, n_head a multiple of
// n_kv_head, finite and positive epsilon and frequency base.
struct HParams {
  Arch arch = Arch::kLlama;
  std::string name;  // general.name, may be empty
  int32_t n_layer = 0;
  int32_t n_embd = 0;
  int32_t n_head = 0;
  int32_t n_kv_head = 0;
  int32_t head_dim = 0;  // of K and of V
  int32_t n_ff = 0;
  int32_t n_vocab = 0;
  int32_t n_ctx_train = 0;
  float rms_eps = 0.0f;
  RopeParams rope;

  bool may_have_qkv_bias = false;  // blk.N.attn_{q,k,v}.bias are used where the file has them
  bool has_qk_norm = false;        // blk.N.attn_{q,k}_norm.weight are required

  std::optional<int32_t> bos_id;
  std::optional<int32_t> eos_id;

  int32_t n_group() const { return n_head / n_kv_head; }  // query heads per kv_head
};

// Reads and checks the hyperparameters. Refuses, by key: architectures other than llama, qwen2 and
// qwen3; mixtures of experts; sliding windows; values that contradict one another.
Result<HParams> ReadHParams(const GgufFile& file);

// Checks everything the llama library would abort or throw on when it loads the vocabulary:
// tokenizer kind, array types and lengths, entries that occur twice, byte tokens, special ids.
Status CheckVocabulary(const GgufFile& file, const HParams& hparams);

// Checks that every tensor of the architecture is there with the right shape and a type the CPU
// back end can multiply, that nothing that would change the result is left over, and that small
// models' weights are finite.
Status CheckTensors(const GgufFile& file, const HParams& hparams);

}  // namespace kvbound

#endif  // KVBOUND_MODEL_HPARAMS_H_
