#include "peer_common.h"

#include <algorithm>

#include "ggml-cpu.h"
#include "llama.h"
#include "report_common.h"

namespace kvbound::bench {

Token ArgMax(std::span<const float> logits) {
  return static_cast<Token>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

PeerModel::PeerModel(const std::string& path) {
  llama_log_set([](ggml_log_level, const char*, void*) {}, nullptr);
  llama_backend_init();
  llama_model_params params = llama_model_default_params();
  params.n_gpu_layers = 0;
  params.use_extra_bufts = !ggml_cpu_has_amx_int8();
  model_ = llama_model_load_from_file(path.c_str(), params);
  if (model_ == nullptr) Fail(path + ": libllama cannot load it");
}

PeerModel::~PeerModel() { llama_model_free(model_); }

int32_t PeerModel::n_vocab() const { return llama_vocab_n_tokens(llama_model_get_vocab(model_)); }

struct Peer::Batch {
  explicit Batch(int n) : batch(llama_batch_init(n, 0, 1)) {}
  ~Batch() { llama_batch_free(batch); }

  void Add(Token token, int position, int sequence, bool logits) {
    const int i = batch.n_tokens++;
    batch.token[i] = token;
    batch.pos[i] = position;
    batch.n_seq_id[i] = 1;
    batch.seq_id[i][0] = sequence;
    batch.logits[i] = logits;
  }

  llama_batch batch;
};

Peer::Peer(const PeerModel& model, bool flash, int n_ctx, int n_seq, int n_threads)
    : flash_(flash), n_vocab_(model.n_vocab()), next_(n_seq, 0), n_seen_(n_seq, 0) {
  llama_context_params params = llama_context_default_params();
  params.n_ctx = n_ctx * n_seq;
  params.n_seq_max = n_seq;
  params.n_threads = n_threads;
  params.n_threads_batch = n_threads;
  params.no_perf = true;
  params.flash_attn_type = flash ? LLAMA_FLASH_ATTN_TYPE_ENABLED : LLAMA_FLASH_ATTN_TYPE_DISABLED;
  n_batch_ = static_cast<int32_t>(params.n_batch);
  context_ = llama_init_from_model(model.get(), params);
  if (context_ == nullptr) Fail("libllama cannot make a context");
  batch_ = std::make_unique<Batch>(n_batch_);
}

Peer::~Peer() { llama_free(context_); }

void Peer::Clear() {
  llama_memory_clear(llama_get_memory(context_), false);
  std::fill(n_seen_.begin(), n_seen_.end(), 0);
}

void Peer::Truncate(int n) {
  llama_memory_seq_rm(llama_get_memory(context_), 0, n, -1);
  n_seen_[0] = std::min(n_seen_[0], n);
}

void Peer::Feed(std::span<const Token> tokens, int sequence) {
  for (size_t begin = 0; begin < tokens.size(); begin += n_batch_) {
    const size_t end = std::min(tokens.size(), begin + n_batch_);
    batch_->batch.n_tokens = 0;
    for (size_t i = begin; i < end; ++i) {
      batch_->Add(tokens[i], n_seen_[sequence]++, sequence, i + 1 == tokens.size());
    }
    if (llama_decode(context_, batch_->batch) != 0) Fail("llama_decode failed");
  }
  next_[sequence] = ArgMax(-1);
}

void Peer::Step() {
  batch_->batch.n_tokens = 0;
  const int n_seq = static_cast<int>(next_.size());
  for (int s = 0; s < n_seq; ++s) batch_->Add(next_[s], n_seen_[s]++, s, true);
  if (llama_decode(context_, batch_->batch) != 0) Fail("llama_decode failed");
  for (int s = 0; s < n_seq; ++s) next_[s] = ArgMax(s);
}

Token Peer::ArgMax(int row) const {
  return bench::ArgMax({llama_get_logits_ith(context_, row), static_cast<size_t>(n_vocab_)});
}

}  // namespace kvbound::bench
