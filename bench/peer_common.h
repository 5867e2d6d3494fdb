#ifndef KVBOUND_BENCH_PEER_COMMON_H_
#define KVBOUND_BENCH_PEER_COMMON_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kvbound/types.h"

struct llama_context;
struct llama_model;

namespace kvbound::bench {

// The model file in libllama, whose buffers never include AMX (it crashes on some CPUs).
class PeerModel {
 public:
  explicit PeerModel(const std::string& path);  // ends the program on failure
  ~PeerModel();
  PeerModel(const PeerModel&) = delete;
  PeerModel& operator=(const PeerModel&) = delete;

  llama_model* get() const { return model_; }
  int32_t n_vocab() const;

 private:
  llama_model* model_ = nullptr;
};

// libllama with its full f16 cache: what a user has who does not bound it. One context with one of
// its two attention settings.
class Peer {
 public:
  Peer(const PeerModel& model, bool flash, int n_ctx, int n_seq, int n_threads);
  ~Peer();
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  // Forgets everything.
  void Clear();
  // Forgets what sequence 0 holds from `n` tokens on.
  void Truncate(int n);
  // Appends `tokens` to `sequence` in batches; logits of the last one.
  void Feed(std::span<const Token> tokens, int sequence = 0);
  // Feeds each sequence its last arg max, in one batch; the n_seq new arg maxes are kept.
  void Step();
  // The arg max after the last token of `sequence`.
  Token next(int sequence = 0) const { return next_[sequence]; }
  int n_seen(int sequence = 0) const { return n_seen_[sequence]; }
  bool flash() const { return flash_; }
  const char* name() const { return flash_ ? "libllama, flash on" : "libllama, flash off"; }

 private:
  struct Batch;

  Token ArgMax(int row) const;

  bool flash_;
  int32_t n_vocab_;
  int32_t n_batch_;
  llama_context* context_ = nullptr;
  std::unique_ptr<Batch> batch_;
  std::vector<Token> next_;
  std::vector<int> n_seen_;
};

// The index of the largest value.
Token ArgMax(std::span<const float> logits);

}  // namespace kvbound::bench

#endif  // KVBOUND_BENCH_PEER_COMMON_H_
