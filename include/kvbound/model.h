#ifndef KVBOUND_MODEL_H_
#define KVBOUND_MODEL_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kvbound/options.h"
#include "kvbound/status.h"
#include "kvbound/tokenizer.h"

namespace kvbound {

class LoadedModel;  // weights and hyperparameters, internal

struct ModelInfo {
  std::string path;
  std::string architecture;  // "llama", "qwen2", "qwen3"
  std::string name;
  int32_t n_layer = 0;
  int32_t n_embd = 0;
  int32_t n_head = 0;
  int32_t n_kv_head = 0;
  int32_t head_dim = 0;
  int32_t n_vocab = 0;
  int32_t n_ctx_train = 0;     // positions seen in training: quality is unknown beyond
  uint64_t weight_bytes = 0;   // as held: mapped, read or converted
  std::string weight_buffers;  // "CPU_Mapped 94 MiB, CPU_REPACK 0 MiB"
  std::string chat_template;   // of the file; empty if it has none
};

// A GGUF model: immutable after Load, shared by any number of engines and threads.
class Model {
 public:
  // Checks the whole header, then maps or reads the weights. Errors name file, key or tensor,
  // expected and found; nothing stays allocated after a failure.
  static Result<std::shared_ptr<const Model>> Load(const std::string& path,
                                                   const ModelOptions& options);
  ~Model();

  const ModelInfo& info() const { return info_; }
  const Tokenizer& tokenizer() const { return *tokenizer_; }
  std::shared_ptr<const Tokenizer> shared_tokenizer() const { return tokenizer_; }
  const LoadedModel& loaded() const { return *loaded_; }

 private:
  Model();

  ModelInfo info_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::unique_ptr<LoadedModel> loaded_;
};

}  // namespace kvbound

#endif  // KVBOUND_MODEL_H_
