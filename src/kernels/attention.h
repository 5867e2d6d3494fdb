#ifndef KVBOUND_KERNELS_ATTENTION_H_
#define KVBOUND_KERNELS_ATTENTION_H_

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "kvbound/options.h"

namespace kvbound {

// Attention of queries over the slots of a bounded cache, for CPUs. Each row of K and V is read
// once for all queries that share it: the query heads of its group and the tokens of a chunk.
// Softmax is online and in f32 (as in FlashAttention, arXiv 2205.14135, and split over ranges of
// slots as in Flash-Decoding); docs/design.md draws the tiles.

// K or V of one layer: a row of head_dim elements per slot, block types as ggml lays them out.
struct SlotRows {
  KvType type = KvType::kF32;
  const std::byte* data = nullptr;  // slot 0 of the first KV head of the first sequence
  size_t slot_bytes = 0;            // from a slot to the next
  size_t head_bytes = 0;            // from a KV head to the next
  size_t seq_bytes = 0;             // from a sequence to the next
};

// The keys that a query sees: of n slots those with ranks in [begin, n - behind).
struct Visible {
  int32_t begin = 0;
  int32_t behind = 0;
};

struct AttentionShape {
  int32_t n_seq = 1;
  int32_t n_tok = 1;  // queries of a sequence, each with n_head heads
  int32_t n_head = 1;
  int32_t n_kv_head = 1;  // divides n_head; query heads of a group are neighbours
  int32_t head_dim = 64;  // at most kMaxHeadDim; a multiple of 32 for block types
  int32_t max_slots = 0;  // that any head may hold
  bool mass = false;      // whether calls may ask for it

  int32_t n_group() const { return n_head / n_kv_head; }
  int32_t n_row() const { return n_tok * n_group(); }  // queries that share a KV head
};

inline constexpr int32_t kMaxHeadDim = 256;

struct AttentionCall {
  AttentionShape shape;
  const float* q = nullptr;  // [n_seq, n_tok, n_head, head_dim]
  float scale = 1.0f;        // of the logits
  SlotRows k, v;
  const int32_t* n_slot = nullptr;      // [n_seq, n_kv_head]: slots that a head holds
  const int32_t* first_slot = nullptr;  // [n_seq, n_kv_head]: where they begin; null: 0
  const int32_t* ranks = nullptr;       // [n_seq, max_slots]: of a head's slots; null: in order
  const Visible* visible = nullptr;     // [n_seq, n_tok]

  float* out = nullptr;  // [n_seq, n_tok, n_head, head_dim]; zeros for a query that sees nothing

  // Asked for by not being null.
  float* lse = nullptr;         // [n_seq, n_tok, n_head]: log sum exp of a query's logits, or -inf
  float* mass = nullptr;        // [n_seq, n_kv_head, max_slots]: attention that each of the head's
                                // slots gets, summed over the queries of the group and the chunk
  float* value_mass = nullptr;  // the same times the length of the slot's v

  float* workspace = nullptr;                // AttentionWorkspace(shape) floats
  std::atomic<int32_t>* counters = nullptr;  // AttentionCounters(shape), zero before and after
};

// Floats of `workspace`, and numbers of `counters`.
size_t AttentionWorkspace(const AttentionShape& shape);
size_t AttentionCounters(const AttentionShape& shape);

// To be called by `n_thread` threads, once each, with the same arguments at about the same time;
// all must have returned before the outputs are read. The work is cut by shape and slots alone and
// each thread takes what is left, so results do not depend on n_thread. A NaN in q, or in a K or V
// row that is seen, makes the outputs of the queries NaN.
void Attend(const AttentionCall& call, int n_thread);

// The instruction set that Attend uses on this machine, "AVX3" and the like.
const char* AttentionTarget();

}  // namespace kvbound

#endif  // KVBOUND_KERNELS_ATTENTION_H_
