#include "kv/layout.h"

#include <algorithm>

#include "base/strings.h"
#include "ggml.h"
#include "kv/key_rotation.h"
#include "kv/kv_type.h"
#include "kv/slot_moves.h"
#include "kvbound/types.h"

namespace kvbound {

namespace {

constexpr uint64_t kMaxBytes = uint64_t{1} << 46;
constexpr int64_t kMaxSlots = (int64_t{1} << 31) - 1;

// GPU kernels read a row of a block type up to a multiple of this many values, so backends ask
// for room behind the last row.
constexpr int64_t kBlockRowPadding = 512;

uint64_t RoundUp(uint64_t value, uint64_t step) { return (value + step - 1) / step * step; }

// Bytes of a tensor with `rows` rows of `n` values.
uint64_t TensorBytes(KvType type, int64_t n, uint64_t rows) {
  uint64_t bytes = rows * KvLayout::RowBytes(type, n);
  const int64_t rest = n % kBlockRowPadding;
  if (BlockSize(type) > 1 && rest != 0) bytes += KvLayout::RowBytes(type, kBlockRowPadding - rest);
  return RoundUp(bytes, kTensorAlignment);
}

std::string Sequences(int32_t n_seq) { return n_seq == 1 ? "" : StrCat(n_seq, " sequences x "); }

Status CheckAtLeast(const char* option, int64_t found, int64_t least) {
  if (found >= least) return Status::Ok();
  std::string message = StrCat(option, ": expected at least ", least, ", found ", found);
  if (std::string_view(option) == "budget") return OutOfBudget(std::move(message));
  return InvalidArgument(std::move(message));
}

Status CheckBlocks(const char* what, KvType type, const char* size_name, int32_t size) {
  const int64_t block = BlockSize(type);
  if (size % block == 0) return Status::Ok();
  return Unsupported(StrCat(what, " type ", KvTypeName(type), ": expected a ", size_name,
                            " divisible by its block size ", block, ", found ", size_name, " ",
                            size));
}

}  // namespace

int32_t KvLayout::n_slot() const { return GroupedSlots(max_slots()); }

int32_t KvLayout::n_set() const {
  switch (granularity) {
    case Granularity::kShared:
      return 1;
    case Granularity::kPerLayer:
      return n_layer;
    case Granularity::kPerHead:
      return n_layer * n_kv_head;
  }
  return 1;
}

uint64_t KvLayout::RowBytes(KvType type, int64_t n) { return ggml_row_size(ToGgmlType(type), n); }

uint64_t KvLayout::k_tensor_bytes() const {
  return TensorBytes(type_k, head_dim, uint64_t(n_seq) * n_kv_head * n_slot());
}

uint64_t KvLayout::v_tensor_bytes() const {
  if (v_transposed) return TensorBytes(type_v, n_slot(), uint64_t(n_seq) * n_kv_head * head_dim);
  return TensorBytes(type_v, head_dim, uint64_t(n_seq) * n_kv_head * n_slot());
}

uint64_t KvLayout::k_bytes() const { return n_layer * k_tensor_bytes(); }
uint64_t KvLayout::v_bytes() const { return n_layer * v_tensor_bytes(); }

uint64_t KvLayout::hidden_bytes() const {
  if (n_hidden == 0) return 0;
  return TensorBytes(type_hidden, n_hidden, uint64_t(n_seq) * n_slot());
}

uint64_t KvLayout::log_beta_bytes() const { return log_beta ? column_bytes() : 0; }
uint64_t KvLayout::attention_mass_bytes() const { return attention_mass ? column_bytes() : 0; }

uint64_t KvLayout::column_bytes() const {
  return uint64_t(n_seq) * n_layer * n_kv_head * n_slot() * sizeof(float);
}

uint64_t KvLayout::staging_bytes() const {
  const uint64_t k_plane = uint64_t(n_slot()) * RowBytes(type_k, head_dim);
  const uint64_t v_plane = v_transposed ? uint64_t(head_dim) * RowBytes(type_v, n_slot())
                                        : uint64_t(n_slot()) * RowBytes(type_v, head_dim);
  return std::max({k_plane, v_plane, n_hidden == 0 ? 0 : RowBytes(type_hidden, n_hidden)});
}

uint64_t KvLayout::host_bytes() const {
  const uint64_t slots = n_slot();
  const uint64_t owners =
      uint64_t(n_seq) * n_set() * slots * (sizeof(Position) + sizeof(RopePosition) + sizeof(Token));
  const uint64_t cut = n_set() * slots * (sizeof(float) + sizeof(uint8_t)) +
                       slots * (sizeof(int32_t) + sizeof(SlotMove));
  const uint64_t n_tensor = 2 * uint64_t(n_layer) + (n_hidden > 0 ? 1 : 0);
  return owners + cut + staging_bytes() + KeyTurner::Bytes(head_dim) +
         n_tensor * ggml_tensor_overhead();
}

std::string KvLayout::k_formula() const {
  return StrCat(Sequences(n_seq), n_layer, " layers x ", n_kv_head, " kv_heads x ", n_slot(),
                " slots x ", head_dim, " x ", KvTypeName(type_k));
}

std::string KvLayout::v_formula() const {
  return StrCat(Sequences(n_seq), n_layer, " layers x ", n_kv_head, " kv_heads x ", n_slot(),
                " slots x ", head_dim, " x ", KvTypeName(type_v));
}

std::string KvLayout::hidden_formula() const {
  if (n_hidden == 0) return "none";
  return StrCat(Sequences(n_seq), n_slot(), " slots x ", n_hidden, " x ", KvTypeName(type_hidden));
}

std::string KvLayout::log_beta_formula() const { return log_beta ? column_formula() : "none"; }
std::string KvLayout::attention_mass_formula() const {
  return attention_mass ? column_formula() : "none";
}

std::string KvLayout::column_formula() const {
  return StrCat(Sequences(n_seq), n_layer, " layers x ", n_kv_head, " kv_heads x ", n_slot(),
                " slots x f32");
}

Status KvLayout::Validate() const {
  KVBOUND_RETURN_IF_ERROR(CheckAtLeast("budget", budget, 2));
  KVBOUND_RETURN_IF_ERROR(CheckAtLeast("chunk", chunk, 1));
  KVBOUND_RETURN_IF_ERROR(CheckAtLeast("n_seq", n_seq, 1));
  KVBOUND_RETURN_IF_ERROR(CheckAtLeast("n_layer", n_layer, 1));
  KVBOUND_RETURN_IF_ERROR(CheckAtLeast("n_kv_head", n_kv_head, 1));
  KVBOUND_RETURN_IF_ERROR(CheckAtLeast("head_dim", head_dim, 1));
  KVBOUND_RETURN_IF_ERROR(CheckAtLeast("n_hidden", n_hidden, 0));

  // In doubles, which these products cannot overflow and which are exact up to the limits.
  const double slots_in_all = double(n_seq) * (double(budget) + double(chunk) + double(kSlotGroup));
  if (slots_in_all > double(kMaxSlots)) {
    return InvalidArgument(StrCat("budget ", budget, " + chunk ", chunk, " for n_seq ", n_seq,
                                  ": expected at most ", kMaxSlots, " slots in all"));
  }
  const double values = slots_in_all * (2.0 * n_layer * n_kv_head * head_dim + n_hidden) +
                        2.0 * slots_in_all * n_layer * n_kv_head;
  if (values * sizeof(float) > double(kMaxBytes)) {
    return InvalidArgument(StrCat("budget ", budget, " + chunk ", chunk, " for n_seq ", n_seq,
                                  ": expected a cache of at most 2^46 bytes, found ",
                                  values * sizeof(float)));
  }

  KVBOUND_RETURN_IF_ERROR(CheckBlocks("K", type_k, "head size", head_dim));
  KVBOUND_RETURN_IF_ERROR(CheckBlocks("V", type_v, "head size", head_dim));
  if (n_hidden > 0) {
    KVBOUND_RETURN_IF_ERROR(CheckBlocks("hidden row", type_hidden, "width", n_hidden));
  }
  if (v_transposed && BlockSize(type_v) > 1) {
    return Unsupported(StrCat("V type ", KvTypeName(type_v),
                              ": expected a float type for plain attention, whose V is transposed "
                              "(a block holds ",
                              BlockSize(type_v), " values of one slot); fused attention takes it"));
  }
  if (n_hidden > 0 && n_set() > 1) {
    return Unsupported(StrCat("hidden rows: expected granularity shared, found ",
                              GranularityName(granularity), " with ", n_set(), " token sets"));
  }
  return Status::Ok();
}

}  // namespace kvbound
