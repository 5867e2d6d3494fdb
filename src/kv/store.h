#ifndef KVBOUND_KV_STORE_H_
#define KVBOUND_KV_STORE_H_

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "ggml-backend.h"
#include "ggml.h"
#include "kv/layout.h"
#include "kvbound/status.h"
#include "kvbound/types.h"

namespace kvbound {

// K, V and hidden rows of n_seq sequences in one buffer that is allocated by Create and never
// grows, and beside it who sits in which slot. After every Append or Keep the occupied slots of
// each (sequence, layer, kv_head) are exactly [0, n): survivors of a cut fill holes and are never
// sorted or re-rotated. Not thread-safe.
class KvStore {
 public:
  // All rows start zeroed (attention multiplies the unoccupied rest of a slot group by zero).
  static Result<std::unique_ptr<KvStore>> Create(const KvLayout& layout,
                                                 ggml_backend_buffer_type_t buffer_type);
  ~KvStore();

  const KvLayout& layout() const { return layout_; }

  // ne = {head_dim, n_slot, n_kv_head, n_seq}.
  ggml_tensor* k(int32_t layer) const { return k_[layer]; }
  // ne = {n_slot, head_dim, n_kv_head, n_seq} if v_transposed, else as k.
  ggml_tensor* v(int32_t layer) const { return v_[layer]; }
  // ne = {n_hidden, n_slot, n_seq}, or nullptr.
  ggml_tensor* hidden() const { return hidden_; }

  // Occupied slots of a sequence, the same for all its sets.
  int32_t n(int32_t seq) const { return seqs_[seq].n; }
  int32_t n_set(int32_t seq) const { return seqs_[seq].n_set; }
  std::span<const Position> positions(int32_t seq, int32_t set) const;  // [n], in slot order
  std::span<const Token> tokens(int32_t seq, int32_t set) const;        // [n]

  // Empties a sequence and fixes how many sets its sessions cuts (1, n_layer, or n_layer *
  // n_kv_head, at most layout().n_set()).
  void Clear(int32_t seq, Granularity granularity);

  // Enters tokens.size() tokens at consecutive positions from `first` into slots [n, n + t) of
  // every set, whose K and V rows a forward pass writes. OutOfBudget (nothing changed) if that
  // exceeds max_slots.
  Status Append(int32_t seq, std::span<const Token> tokens, Position first);

  // Takes back the last t slots of Append after a failed forward pass. REQUIRES: t <= n and no
  // cut since.
  void Rollback(int32_t seq, int32_t t);

  // Replaces the token entered for the slot at `position` (align=published), in every set.
  void Relabel(int32_t seq, Position position, Token token);

  // Keeps the slots with keep[set * n + slot] != 0 and releases the others, in K, V, positions,
  // tokens and hidden rows alike. Every set must keep the same number, at most n: else
  // InvalidArgument and nothing changed. Moves at most (n - kept) rows per head; allocates
  // nothing.
  Status Keep(int32_t seq, std::span<const uint8_t> keep);

  // Rows converted to float: [n, head_dim] of one head. V likewise, whatever its layout.
  Status ReadKeys(int32_t seq, int32_t layer, int32_t kv_head, std::span<float> out) const;
  Status ReadValues(int32_t seq, int32_t layer, int32_t kv_head, std::span<float> out) const;

  // Bytes of the buffer as the backend reports them, K, V and hidden rows each.
  uint64_t allocated_k_bytes() const;
  uint64_t allocated_v_bytes() const;
  uint64_t allocated_hidden_bytes() const;
  uint64_t allocated_host_bytes() const;

 private:
  struct Sequence {
    int32_t n = 0;
    int32_t n_set = 1;
    std::vector<Position> positions;  // [n_set, n_slot]
    std::vector<Token> tokens;        // [n_set, n_slot]
  };

  explicit KvStore(const KvLayout& layout) : layout_(layout) {}

  KvLayout layout_;
  std::vector<ggml_tensor*> k_;
  std::vector<ggml_tensor*> v_;
  ggml_tensor* hidden_ = nullptr;
  std::vector<Sequence> seqs_;
};

}  // namespace kvbound

#endif  // KVBOUND_KV_STORE_H_
