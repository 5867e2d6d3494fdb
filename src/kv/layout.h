#ifndef KVBOUND_KV_LAYOUT_H_
#define KVBOUND_KV_LAYOUT_H_

#include <cstdint>
#include <string>

#include "kvbound/options.h"
#include "kvbound/status.h"

namespace kvbound {

// Attention reads slots in whole groups of this many, with a mask over the rest of the last
// group, so that one graph serves many cache sizes. Storage is rounded up to it.
inline constexpr int32_t kSlotGroup = 32;

// n rounded up to whole groups.
inline int32_t GroupedSlots(int32_t n) { return (n + kSlotGroup - 1) / kSlotGroup * kSlotGroup; }

// Every tensor of the store starts at a multiple of this many bytes, which serves the alignment
// of every backend, so that a plan does not depend on the device.
inline constexpr uint64_t kTensorAlignment = 256;

// The shape and byte arithmetic of the bounded store: all of it, and nothing else knows it.
struct KvLayout {
  int32_t n_layer = 0;
  int32_t n_kv_head = 0;
  int32_t head_dim = 0;
  int32_t budget = 0;  // J
  int32_t chunk = 0;   // h
  int32_t n_seq = 1;
  KvType type_k = KvType::kF16;
  KvType type_v = KvType::kF16;
  bool v_transposed = true;  // V as [n_seq, n_kv_head, head_dim, n_slot] for plain attention
  Granularity granularity = Granularity::kShared;  // the finest that a session may use
  int32_t n_hidden = 0;                            // width of the hidden row kept per slot; 0: none
  KvType type_hidden = KvType::kF16;
  // Columns, on the host: one number per slot, layer and KV head.
  bool log_beta = false;
  bool attention_mass = false;

  int32_t max_slots() const { return budget + chunk; }  // occupied at most
  int32_t n_slot() const;                               // allocated: max_slots up to kSlotGroup
  int32_t n_set() const;                                // token sets per sequence

  // Bytes of one element row of `n` values of a type; block sizes included.
  static uint64_t RowBytes(KvType type, int64_t n);

  // One tensor of one layer, all sequences, with the padding behind it.
  uint64_t k_tensor_bytes() const;
  uint64_t v_tensor_bytes() const;

  uint64_t k_bytes() const;  // all layers and sequences, as the store allocates them
  uint64_t v_bytes() const;
  uint64_t hidden_bytes() const;
  uint64_t log_beta_bytes() const;
  uint64_t attention_mass_bytes() const;
  uint64_t host_bytes() const;  // positions, tokens, scores, keep sets, moves, tensor headers

  // Bytes of the host row or plane through which rows move in a buffer that the CPU cannot
  // address; part of host_bytes().
  uint64_t staging_bytes() const;

  std::string k_formula() const;  // "30 layers x 3 kv_heads x 640 slots x 64 x f16"
  std::string v_formula() const;
  std::string hidden_formula() const;
  std::string log_beta_formula() const;
  std::string attention_mass_formula() const;

  // Impossible shapes by option name: budget < 2, chunk < 1, n_seq < 1, sizes beyond 2^31 slots
  // or 2^46 bytes; block types on a head size that is no multiple of the block, naming type, head
  // size and block size; a block type for a transposed V; hidden rows beside more than one set.
  Status Validate() const;

 private:
  uint64_t column_bytes() const;
  std::string column_formula() const;
};

}  // namespace kvbound

#endif  // KVBOUND_KV_LAYOUT_H_
