#include "testing/llama_peer.h"

#include <stdexcept>

#include "ggml-cpu.h"
#include "kv/kv_type.h"
#include "llama.h"
#include "text/llama_log.h"

namespace kvbound::testing {
namespace {

struct FreeModel {
  void operator()(llama_model* model) const { llama_model_free(model); }
};
struct FreeContext {
  void operator()(llama_context* context) const { llama_free(context); }
};

}  // namespace

struct LlamaPeer::Impl {
  std::unique_ptr<llama_model, FreeModel> model;
  std::unique_ptr<llama_context, FreeContext> context;
};

LlamaPeer::LlamaPeer(const std::string& path, int32_t n_ctx, KvType type, int32_t n_threads,
                     const std::function<void(llama_context_params&)>& adjust)
    : impl_(std::make_unique<Impl>()) {
  InstallLlamaLog();
  llama_model_params model_params = llama_model_default_params();
  model_params.n_gpu_layers = 0;
  model_params.use_extra_bufts = !ggml_cpu_has_amx_int8();  // AMX crashes in llama itself
  impl_->model.reset(llama_model_load_from_file(path.c_str(), model_params));
  if (impl_->model == nullptr) throw std::runtime_error("llama cannot load " + path);
  llama_context_params params = llama_context_default_params();
  params.n_ctx = params.n_batch = params.n_ubatch = static_cast<uint32_t>(n_ctx);
  params.n_threads = params.n_threads_batch = n_threads;
  params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
  params.type_k = params.type_v = ToGgmlType(type);
  if (adjust) adjust(params);
  impl_->context.reset(llama_init_from_model(impl_->model.get(), params));
  if (impl_->context == nullptr) throw std::runtime_error("llama makes no context for " + path);
}

LlamaPeer::~LlamaPeer() = default;

std::vector<float> LlamaPeer::Feed(std::span<const Token> tokens) {
  std::vector<Token> copy(tokens.begin(), tokens.end());
  const llama_batch batch = llama_batch_get_one(copy.data(), static_cast<int32_t>(copy.size()));
  if (llama_decode(impl_->context.get(), batch) != 0) throw std::runtime_error("llama_decode");
  const float* logits = llama_get_logits_ith(impl_->context.get(), -1);
  const int32_t n_vocab = llama_vocab_n_tokens(llama_model_get_vocab(impl_->model.get()));
  return {logits, logits + n_vocab};
}

}  // namespace kvbound::testing
