#ifndef KVBOUND_KV_STORE_H_
#define KVBOUND_KV_STORE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "ggml-backend.h"
#include "ggml.h"
#include "kv/key_rotation.h"
#include "kv/layout.h"
#include "kv/slot_moves.h"
#include "kv/tensors.h"
#include "kvbound/status.h"
#include "kvbound/types.h"

namespace kvbound {

// K, V and hidden rows of n_seq sequences in buffers (one each) that are allocated by Create and
// never grow, and beside them who sits in which slot. After every Append or Keep the occupied
// slots of each (sequence, layer, kv_head) are exactly [0, n): survivors of a cut fill holes and
// are never sorted. Not thread-safe; a backend must have finished its work on the tensors before
// Keep, Rebase or a Read.
class KvStore {
 public:
  // All rows start zeroed (attention multiplies the unoccupied rest of a slot group by zero).
  // OutOfBudget, with the bytes asked for, if the buffer type has no room.
  // `rotation` is how keys are rotated before they are stored, which Rebase continues.
  static Result<std::unique_ptr<KvStore>> Create(const KvLayout& layout,
                                                 ggml_backend_buffer_type_t buffer_type,
                                                 KeyRotation rotation = {});
  ~KvStore();
  KvStore(const KvStore&) = delete;
  KvStore& operator=(const KvStore&) = delete;

  const KvLayout& layout() const { return layout_; }

  const KvTensors& tensors() const { return tensors_; }
  // ne = {head_dim, n_slot, n_kv_head, n_seq}.
  ggml_tensor* k(int32_t layer) const { return tensors_.k[layer]; }
  // ne = {n_slot, head_dim, n_kv_head, n_seq} if v_transposed, else as k.
  ggml_tensor* v(int32_t layer) const { return tensors_.v[layer]; }
  // ne = {n_hidden, n_slot, n_seq}, or nullptr.
  ggml_tensor* hidden() const { return tensors_.hidden; }

  // Occupied slots of a sequence, the same for all its sets.
  int32_t n(int32_t seq) const { return seqs_[seq].n; }
  int32_t n_set(int32_t seq) const { return seqs_[seq].n_set; }
  std::span<const Position> positions(int32_t seq, int32_t set) const;  // [n], in slot order
  std::span<const Token> tokens(int32_t seq, int32_t set) const;        // [n]
  // By which positions the keys are rotated: [n], and by which the next token's will be.
  std::span<const RopePosition> rope_positions(int32_t seq, int32_t set) const;
  RopePosition next_rope(int32_t seq) const { return seqs_[seq].next_rope; }
  // Columns of one head, in the slot order of its set: [n]. REQUIRES: layout().log_beta, or
  // attention_mass.
  std::span<const float> log_beta(int32_t seq, int32_t layer, int32_t kv_head) const;
  std::span<const float> attention_mass(int32_t seq, int32_t layer, int32_t kv_head) const;

  // Empties a sequence, zeroes its rows and fixes how many sets its session cuts (1, n_layer, or
  // n_layer * n_kv_head). REQUIRES: no finer than layout().granularity.
  void Clear(int32_t seq, Granularity granularity);

  // Enters tokens.size() tokens at consecutive positions from `first`, and RoPE positions from
  // next_rope(), into slots [n, n + t) of every set, whose K and V rows a forward pass writes.
  // OutOfBudget (nothing changed) if that exceeds max_slots; InvalidArgument if positions would
  // pass 2^31 - 1.
  Status Append(int32_t seq, std::span<const Token> tokens, Position first);

  // Fills log beta of the last t slots of a layer, whatever the set: values [t, n_kv_head].
  void WriteLogBeta(int32_t seq, int32_t layer, std::span<const float> values);

  // Adds to the attention mass of all slots of a layer: head h's begin at values[h * stride]. That
  // of slots entered since the last call was zero.
  void AddAttentionMass(int32_t seq, int32_t layer, std::span<const float> values, size_t stride);

  // Takes back the last t slots of Append after a failed forward pass, and zeroes their rows.
  // REQUIRES: t <= n and no cut since.
  void Rollback(int32_t seq, int32_t t);

  // Replaces the token entered for the slot at `position` (align=published), in every set that
  // still holds it.
  void Relabel(int32_t seq, Position position, Token token);

  // Keeps the slots with keep[set * n + slot] != 0 and releases the others, in K, V, positions,
  // tokens, columns and hidden rows alike. Every set must keep the same number, at most the
  // budget: else InvalidArgument and nothing changed. Moves at most (n - kept) rows per head;
  // allocates nothing.
  Status Keep(int32_t seq, std::span<const uint8_t> keep);

  // Moves a sequence back to the beginning: in every set the keys are rotated on to the RoPE
  // positions 0, 1, ..., n - 1 in the order of their positions, and the next token's follows.
  // Keys that are there already stay as they are. Allocates nothing.
  void Rebase(int32_t seq);

  // Room for the scores and the keep set of one cut of `seq`, [n_set, n], and for Select's order,
  // [n]. Shared by all sequences: their content lasts until the next cut of any of them.
  std::span<float> score_scratch(int32_t seq);
  std::span<uint8_t> keep_scratch(int32_t seq);
  std::span<int32_t> order_scratch(int32_t seq);

  // Rows converted to float: [n, head_dim] of one head. V likewise, whatever its layout.
  Status ReadKeys(int32_t seq, int32_t layer, int32_t kv_head, std::span<float> out) const;
  Status ReadValues(int32_t seq, int32_t layer, int32_t kv_head, std::span<float> out) const;

  // Bytes of the buffers as the backend reports them, and of the arrays in host memory: equal to
  // those of the layout.
  uint64_t allocated_k_bytes() const;
  uint64_t allocated_v_bytes() const;
  uint64_t allocated_hidden_bytes() const;
  uint64_t allocated_log_beta_bytes() const;
  uint64_t allocated_attention_mass_bytes() const;
  uint64_t allocated_host_bytes() const;

 private:
  struct Sequence {
    int32_t n = 0;
    int32_t n_set = 1;
    RopePosition next_rope;
    std::vector<Position> positions;           // [n_set, n_slot]
    std::vector<RopePosition> rope_positions;  // the same
    std::vector<Token> tokens;                 // the same
    std::vector<float> log_beta;               // [n_layer * n_kv_head, n_slot]
    std::vector<float> attention_mass;         // the same
  };
  struct FreeContext {
    void operator()(ggml_context* context) const { ggml_free(context); }
  };
  struct FreeBuffer {
    void operator()(ggml_backend_buffer_t buffer) const { ggml_backend_buffer_free(buffer); }
  };
  using Buffer = std::unique_ptr<ggml_backend_buffer, FreeBuffer>;

  explicit KvStore(const KvLayout& layout) : layout_(layout) {}

  Status CreateTensors(ggml_backend_buffer_type_t buffer_type);
  void CreateHostArrays();

  SlotPlane KeyPlane(int32_t seq, int32_t layer, int32_t kv_head) const;
  SlotPlane ValuePlane(int32_t seq, int32_t layer, int32_t kv_head) const;
  SlotPlane HiddenPlane(int32_t seq) const;
  void ZeroSlots(int32_t seq, int32_t begin, int32_t end);

  // Whether every set of `keep` keeps the same number; that number goes to `kept`.
  Status CheckKeep(int32_t seq, std::span<const uint8_t> keep, int32_t* kept) const;
  uint64_t ColumnBytes(std::vector<float> Sequence::*column) const;
  std::span<const float> Column(const std::vector<float>& column, int32_t seq, int32_t layer,
                                int32_t kv_head) const;
  void ApplyMoves(int32_t seq, int32_t set, std::span<const SlotMove> moves);
  void MovePlane(const SlotPlane& plane, std::span<const SlotMove> moves);
  void TurnKey(int32_t seq, int32_t head, int32_t slot);

  Status ReadPlane(const SlotPlane& plane, int32_t n, std::span<float> out) const;

  KvLayout layout_;
  std::unique_ptr<ggml_context, FreeContext> context_;
  Buffer k_buffer_, v_buffer_, hidden_buffer_;
  bool host_ = true;  // the CPU can address the buffers
  KvTensors tensors_;

  std::vector<Sequence> seqs_;
  std::vector<float> scores_;    // [n_set, n_slot]
  std::vector<uint8_t> keep_;    // [n_set, n_slot]
  std::vector<int32_t> order_;   // [n_slot]
  std::vector<SlotMove> moves_;  // [n_slot]
  std::optional<KeyTurner> turner_;
  mutable std::vector<uint8_t> staging_;
};

}  // namespace kvbound

#endif  // KVBOUND_KV_STORE_H_
