#include "kv/store.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <new>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "base/strings.h"
#include "kv/kv_type.h"

namespace kvbound {

namespace {

// A buffer of exactly `bytes`, zeroed, in which `tensors` lie one after the other, `stride` apart.
Status PlaceTensors(ggml_backend_buffer_type_t type, std::span<ggml_tensor* const> tensors,
                    uint64_t stride, const char* what, ggml_backend_buffer_t* buffer) {
  if (kTensorAlignment % ggml_backend_buft_get_alignment(type) != 0) {
    return Unsupported(StrCat(what, " rows in ", ggml_backend_buft_name(type),
                              ": expected an alignment that divides ", kTensorAlignment, ", found ",
                              ggml_backend_buft_get_alignment(type)));
  }
  const uint64_t bytes = stride * tensors.size();
  const uint64_t most = ggml_backend_buft_get_max_size(type);
  if (bytes > most) {
    return OutOfBudget(StrCat(what, " rows in ", ggml_backend_buft_name(type),
                              ": expected at most ", most, " bytes, found ", bytes));
  }
  *buffer = ggml_backend_buft_alloc_buffer(type, bytes);
  if (*buffer == nullptr) {
    return OutOfBudget(
        StrCat(what, " rows: no room for ", bytes, " bytes in ", ggml_backend_buft_name(type)));
  }
  auto* address = static_cast<uint8_t*>(ggml_backend_buffer_get_base(*buffer));
  for (ggml_tensor* tensor : tensors) {
    const uint64_t needed = ggml_backend_buft_get_alloc_size(type, tensor);
    if (needed > stride) {
      return Unsupported(StrCat(what, " rows in ", ggml_backend_buft_name(type), ": expected ",
                                stride, " bytes per tensor to do, found ", needed, " needed"));
    }
    if (ggml_backend_tensor_alloc(*buffer, tensor, address) != GGML_STATUS_SUCCESS) {
      return Internal(StrCat(what, " rows: a tensor does not fit its buffer"));
    }
    address += stride;
  }
  ggml_backend_buffer_clear(*buffer, 0);
  return Status::Ok();
}

template <typename T>
uint64_t Bytes(const std::vector<T>& v) {
  return v.capacity() * sizeof(T);
}

// A single allocation of exactly `n` elements.
template <typename T>
void Allocate(std::vector<T>& v, uint64_t n) {
  v = std::vector<T>(n);
}

uint64_t BufferBytes(ggml_backend_buffer_t buffer) {
  return buffer == nullptr ? 0 : ggml_backend_buffer_get_size(buffer);
}

}  // namespace

KvStore::~KvStore() = default;

Result<std::unique_ptr<KvStore>> KvStore::Create(const KvLayout& layout,
                                                 ggml_backend_buffer_type_t buffer_type,
                                                 KeyRotation rotation) {
  KVBOUND_RETURN_IF_ERROR(layout.Validate());
  std::unique_ptr<KvStore> store(new KvStore(layout));
  KVBOUND_RETURN_IF_ERROR(store->CreateTensors(buffer_type));
  try {
    store->CreateHostArrays();
    store->turner_.emplace(std::move(rotation), ToGgmlType(layout.type_k), layout.head_dim);
  } catch (const std::bad_alloc&) {
    return OutOfBudget(
        StrCat("slot tables: no room for ", layout.host_bytes(), " bytes in host memory"));
  }
  for (int32_t seq = 0; seq < layout.n_seq; ++seq) store->Clear(seq, layout.granularity);
  return store;
}

Status KvStore::CreateTensors(ggml_backend_buffer_type_t buffer_type) {
  const KvLayout& l = layout_;
  const size_t n_tensor = 2 * static_cast<size_t>(l.n_layer) + (l.n_hidden > 0 ? 1 : 0);
  context_.reset(ggml_init({n_tensor * ggml_tensor_overhead(), nullptr, /*no_alloc=*/true}));
  if (context_ == nullptr) return Internal("K and V: no tensor context");

  tensors_ = KvTensors::Declare(l, context_.get());
  ggml_backend_buffer_t buffer = nullptr;
  Status placed = PlaceTensors(buffer_type, tensors_.k, l.k_tensor_bytes(), "K", &buffer);
  k_buffer_.reset(std::exchange(buffer, nullptr));
  KVBOUND_RETURN_IF_ERROR(std::move(placed));
  placed = PlaceTensors(buffer_type, tensors_.v, l.v_tensor_bytes(), "V", &buffer);
  v_buffer_.reset(std::exchange(buffer, nullptr));
  KVBOUND_RETURN_IF_ERROR(std::move(placed));
  host_ = ggml_backend_buffer_is_host(k_buffer_.get());
  if (l.n_hidden == 0) return Status::Ok();

  placed = PlaceTensors(buffer_type, std::span(&tensors_.hidden, 1), l.hidden_bytes(), "hidden",
                        &buffer);
  hidden_buffer_.reset(buffer);
  return placed;
}

void KvStore::CreateHostArrays() {
  const uint64_t slots = layout_.n_slot();
  const uint64_t all = layout_.n_set() * slots;
  Allocate(seqs_, layout_.n_seq);
  for (Sequence& sequence : seqs_) {
    Allocate(sequence.positions, all);
    Allocate(sequence.rope_positions, all);
    Allocate(sequence.tokens, all);
    Allocate(sequence.log_beta, layout_.log_beta_bytes() / layout_.n_seq / sizeof(float));
    Allocate(sequence.attention_mass,
             layout_.attention_mass_bytes() / layout_.n_seq / sizeof(float));
  }
  Allocate(scores_, all);
  Allocate(keep_, all);
  Allocate(order_, slots);
  Allocate(moves_, slots);
  Allocate(staging_, layout_.staging_bytes());
}

std::span<const Position> KvStore::positions(int32_t seq, int32_t set) const {
  const Sequence& s = seqs_[seq];
  return std::span(s.positions).subspan(static_cast<size_t>(set) * layout_.n_slot(), s.n);
}

std::span<const Token> KvStore::tokens(int32_t seq, int32_t set) const {
  const Sequence& s = seqs_[seq];
  return std::span(s.tokens).subspan(static_cast<size_t>(set) * layout_.n_slot(), s.n);
}

std::span<const RopePosition> KvStore::rope_positions(int32_t seq, int32_t set) const {
  const Sequence& s = seqs_[seq];
  return std::span(s.rope_positions).subspan(static_cast<size_t>(set) * layout_.n_slot(), s.n);
}

void KvStore::Clear(int32_t seq, Granularity granularity) {
  KvLayout layout = layout_;
  layout.granularity = granularity;
  DCHECK(layout.n_set() <= layout_.n_set());
  ZeroSlots(seq, 0, layout_.n_slot());
  seqs_[seq].n = 0;
  seqs_[seq].next_rope = {};
  seqs_[seq].n_set = layout.n_set();
}

Status KvStore::Append(int32_t seq, std::span<const Token> tokens, Position first) {
  Sequence& s = seqs_[seq];
  const int64_t t = static_cast<int64_t>(tokens.size());
  if (s.n + t > layout_.max_slots()) {
    return OutOfBudget(StrCat("sequence ", seq, ": expected at most budget ", layout_.budget,
                              " + chunk ", layout_.chunk, " slots, found ", s.n, " occupied and ",
                              t, " to append"));
  }
  if (first.value < 0 || first.value + t > std::numeric_limits<int32_t>::max()) {
    return InvalidArgument(StrCat("sequence ", seq, ": expected positions below 2^31 - 1, found ",
                                  first.value, " for ", t, " tokens"));
  }
  for (int32_t set = 0; set < s.n_set; ++set) {
    const size_t begin = static_cast<size_t>(set) * layout_.n_slot() + s.n;
    std::copy(tokens.begin(), tokens.end(), s.tokens.begin() + begin);
    for (int32_t i = 0; i < t; ++i) {
      s.positions[begin + i] = {first.value + i};
      s.rope_positions[begin + i] = {s.next_rope.value + i};
    }
  }
  for (size_t row = s.n; row < s.attention_mass.size(); row += layout_.n_slot()) {
    std::fill_n(s.attention_mass.begin() + row, t, 0.0f);
  }
  s.n += static_cast<int32_t>(t);
  s.next_rope.value += static_cast<int32_t>(t);
  return Status::Ok();
}

std::span<const float> KvStore::Column(const std::vector<float>& column, int32_t seq, int32_t layer,
                                       int32_t kv_head) const {
  const size_t head = static_cast<size_t>(layer) * layout_.n_kv_head + kv_head;
  return std::span(column).subspan(head * layout_.n_slot(), seqs_[seq].n);
}

std::span<const float> KvStore::log_beta(int32_t seq, int32_t layer, int32_t kv_head) const {
  return Column(seqs_[seq].log_beta, seq, layer, kv_head);
}

std::span<const float> KvStore::attention_mass(int32_t seq, int32_t layer, int32_t kv_head) const {
  return Column(seqs_[seq].attention_mass, seq, layer, kv_head);
}

void KvStore::AddAttentionMass(int32_t seq, int32_t layer, std::span<const float> values,
                               size_t stride) {
  Sequence& s = seqs_[seq];
  for (int32_t head = 0; head < layout_.n_kv_head; ++head) {
    float* row = &s.attention_mass[(size_t(layer) * layout_.n_kv_head + head) * layout_.n_slot()];
    const float* from = &values[head * stride];
    for (int32_t slot = 0; slot < s.n; ++slot) row[slot] += from[slot];
  }
}

void KvStore::WriteLogBeta(int32_t seq, int32_t layer, std::span<const float> values) {
  Sequence& s = seqs_[seq];
  const size_t n_head = layout_.n_kv_head;
  const size_t first = s.n - values.size() / n_head;
  for (size_t head = 0; head < n_head; ++head) {
    float* row = &s.log_beta[(layer * n_head + head) * layout_.n_slot() + first];
    for (size_t i = head; i < values.size(); i += n_head) *row++ = values[i];
  }
}

void KvStore::Rollback(int32_t seq, int32_t t) {
  const int32_t n = seqs_[seq].n;
  DCHECK(0 <= t && t <= n);
  ZeroSlots(seq, n - t, n);
  seqs_[seq].n = n - t;
  seqs_[seq].next_rope.value -= t;
}

// Attention multiplies unoccupied rows by zero, which an infinity or NaN in them would survive.
void KvStore::ZeroSlots(int32_t seq, int32_t begin, int32_t end) {
  if (begin == end) return;
  const auto zero = [&](const SlotPlane& plane) {
    const size_t slot_bytes = plane.transposed ? plane.tensor->nb[0] : plane.row_bytes;
    const int32_t n_row = plane.transposed ? plane.n_dim : 1;
    for (int32_t d = 0; d < n_row; ++d) {
      ggml_backend_tensor_memset(plane.tensor, 0,
                                 plane.offset + d * plane.row_bytes + begin * slot_bytes,
                                 (end - begin) * slot_bytes);
    }
  };
  for (int32_t layer = 0; layer < layout_.n_layer; ++layer) {
    for (int32_t kv_head = 0; kv_head < layout_.n_kv_head; ++kv_head) {
      zero(KeyPlane(seq, layer, kv_head));
      zero(ValuePlane(seq, layer, kv_head));
    }
  }
  if (tensors_.hidden != nullptr) zero(HiddenPlane(seq));
}

void KvStore::Relabel(int32_t seq, Position position, Token token) {
  Sequence& s = seqs_[seq];
  for (int32_t set = 0; set < s.n_set; ++set) {
    const std::span<const Position> row = positions(seq, set);
    const auto found = std::find(row.rbegin(), row.rend(), position);
    if (found == row.rend()) continue;
    const auto slot = row.rend() - found - 1;
    s.tokens[static_cast<size_t>(set) * layout_.n_slot() + slot] = token;
  }
}

Status KvStore::CheckKeep(int32_t seq, std::span<const uint8_t> keep, int32_t* kept) const {
  const Sequence& s = seqs_[seq];
  const size_t expected = static_cast<size_t>(s.n_set) * s.n;
  if (keep.size() != expected) {
    return InvalidArgument(StrCat("keep set of sequence ", seq, ": expected ", expected,
                                  " entries (", s.n_set, " sets of ", s.n, " slots), found ",
                                  keep.size()));
  }
  for (int32_t set = 0; set < s.n_set; ++set) {
    const auto row = keep.subspan(static_cast<size_t>(set) * s.n, s.n);
    const auto count = static_cast<int32_t>(s.n - std::count(row.begin(), row.end(), 0));
    if (set == 0) *kept = count;
    if (count != *kept) {
      return InvalidArgument(StrCat("keep set of sequence ", seq, ": expected ", *kept,
                                    " slots in every set, found ", count, " in set ", set));
    }
  }
  if (*kept > layout_.budget) {
    return InvalidArgument(StrCat("keep set of sequence ", seq, ": expected at most the budget of ",
                                  layout_.budget, " slots, found ", *kept));
  }
  return Status::Ok();
}

Status KvStore::Keep(int32_t seq, std::span<const uint8_t> keep) {
  int32_t kept = 0;
  KVBOUND_RETURN_IF_ERROR(CheckKeep(seq, keep, &kept));
  Sequence& s = seqs_[seq];
  for (int32_t set = 0; set < s.n_set; ++set) {
    const auto row = keep.subspan(static_cast<size_t>(set) * s.n, s.n);
    const int32_t n_move = PlanMoves(row, kept, moves_);
    ApplyMoves(seq, set, std::span(moves_).first(n_move));
  }
  s.n = kept;
  return Status::Ok();
}

void KvStore::ApplyMoves(int32_t seq, int32_t set, std::span<const SlotMove> moves) {
  Sequence& s = seqs_[seq];
  const size_t begin = static_cast<size_t>(set) * layout_.n_slot();
  for (const SlotMove& move : moves) {
    s.positions[begin + move.to] = s.positions[begin + move.from];
    s.rope_positions[begin + move.to] = s.rope_positions[begin + move.from];
    s.tokens[begin + move.to] = s.tokens[begin + move.from];
  }
  const int32_t n_head_all = layout_.n_layer * layout_.n_kv_head;
  const int32_t n_head = n_head_all / s.n_set;  // heads that share this set
  for (int32_t head = set * n_head; head < (set + 1) * n_head; ++head) {
    const int32_t layer = head / layout_.n_kv_head;
    const int32_t kv_head = head % layout_.n_kv_head;
    MovePlane(KeyPlane(seq, layer, kv_head), moves);
    MovePlane(ValuePlane(seq, layer, kv_head), moves);
    for (std::vector<float>* column : {&s.log_beta, &s.attention_mass}) {
      if (column->empty()) continue;
      float* row = &(*column)[static_cast<size_t>(head) * layout_.n_slot()];
      for (const SlotMove& move : moves) row[move.to] = row[move.from];
    }
  }
  if (tensors_.hidden != nullptr) MovePlane(HiddenPlane(seq), moves);
}

void KvStore::Rebase(int32_t seq) {
  Sequence& s = seqs_[seq];
  const int32_t n_head = layout_.n_layer * layout_.n_kv_head / s.n_set;  // heads that share a set
  const auto order = std::span(order_).first(s.n);
  for (int32_t set = 0; set < s.n_set; ++set) {
    const std::span<const Position> positions = this->positions(seq, set);
    RopePosition* const rope = &s.rope_positions[static_cast<size_t>(set) * layout_.n_slot()];
    std::iota(order.begin(), order.end(), 0);
    std::ranges::sort(order, {}, [&](int32_t slot) { return positions[slot]; });
    for (int32_t rank = 0; rank < s.n; ++rank) {
      const int32_t slot = order[rank];
      const int32_t delta = rank - rope[slot].value;
      if (delta == 0) continue;
      rope[slot].value = rank;
      turner_->SetDelta(delta);
      for (int32_t head = set * n_head; head < (set + 1) * n_head; ++head) TurnKey(seq, head, slot);
    }
  }
  s.next_rope.value = s.n;
}

void KvStore::TurnKey(int32_t seq, int32_t head, int32_t slot) {
  const SlotPlane plane = KeyPlane(seq, head / layout_.n_kv_head, head % layout_.n_kv_head);
  const size_t offset = plane.offset + slot * plane.row_bytes;
  if (host_) return turner_->Turn(static_cast<uint8_t*>(plane.tensor->data) + offset);
  ggml_backend_tensor_get(plane.tensor, staging_.data(), offset, plane.row_bytes);
  turner_->Turn(staging_.data());
  ggml_backend_tensor_set(plane.tensor, staging_.data(), offset, plane.row_bytes);
}

void KvStore::MovePlane(const SlotPlane& plane, std::span<const SlotMove> moves) {
  if (host_) {
    MoveDirect(plane, moves);
  } else {
    MoveStaged(plane, moves, staging_);
  }
}

SlotPlane KvStore::KeyPlane(int32_t seq, int32_t layer, int32_t kv_head) const {
  ggml_tensor* t = tensors_.k[layer];
  return {t, seq * t->nb[3] + kv_head * t->nb[2], layout_.n_slot(), t->nb[1], 0, false};
}

SlotPlane KvStore::ValuePlane(int32_t seq, int32_t layer, int32_t kv_head) const {
  ggml_tensor* t = tensors_.v[layer];
  const size_t offset = seq * t->nb[3] + kv_head * t->nb[2];
  return {t, offset, layout_.n_slot(), t->nb[1], layout_.head_dim, layout_.v_transposed};
}

SlotPlane KvStore::HiddenPlane(int32_t seq) const {
  ggml_tensor* t = tensors_.hidden;
  return {t, seq * t->nb[2], layout_.n_slot(), t->nb[1], 0, false};
}

Status KvStore::ReadKeys(int32_t seq, int32_t layer, int32_t kv_head, std::span<float> out) const {
  return ReadPlane(KeyPlane(seq, layer, kv_head), seqs_[seq].n, out);
}

Status KvStore::ReadValues(int32_t seq, int32_t layer, int32_t kv_head,
                           std::span<float> out) const {
  return ReadPlane(ValuePlane(seq, layer, kv_head), seqs_[seq].n, out);
}

Status KvStore::ReadPlane(const SlotPlane& plane, int32_t n, std::span<float> out) const {
  const size_t dim = layout_.head_dim;
  if (out.size() != n * dim) {
    return InvalidArgument(StrCat("read of a head: expected room for ", n, " slots x ", dim,
                                  " values, found ", out.size()));
  }
  const uint8_t* base = staging_.data();
  if (host_) {
    base = static_cast<const uint8_t*>(plane.tensor->data) + plane.offset;
  } else {
    ggml_backend_tensor_get(plane.tensor, staging_.data(), plane.offset, plane.bytes());
  }
  const ggml_type type = plane.tensor->type;
  const auto convert = [type](const uint8_t* from, float* to, int64_t count) {
    if (type == GGML_TYPE_F32) {
      std::memcpy(to, from, count * sizeof(float));
    } else {
      ggml_get_type_traits(type)->to_float(from, to, count);
    }
  };
  if (!plane.transposed) {
    for (int32_t slot = 0; slot < n; ++slot) {
      convert(base + slot * plane.row_bytes, &out[slot * dim], static_cast<int64_t>(dim));
    }
    return Status::Ok();
  }
  const size_t element = plane.tensor->nb[0];
  for (size_t d = 0; d < dim; ++d) {
    const uint8_t* row = base + d * plane.row_bytes;
    for (int32_t slot = 0; slot < n; ++slot) convert(row + slot * element, &out[slot * dim + d], 1);
  }
  return Status::Ok();
}

std::span<float> KvStore::score_scratch(int32_t seq) {
  return std::span(scores_).first(static_cast<size_t>(seqs_[seq].n_set) * seqs_[seq].n);
}

std::span<uint8_t> KvStore::keep_scratch(int32_t seq) {
  return std::span(keep_).first(static_cast<size_t>(seqs_[seq].n_set) * seqs_[seq].n);
}

std::span<int32_t> KvStore::order_scratch(int32_t seq) {
  return std::span(order_).first(seqs_[seq].n);
}

uint64_t KvStore::allocated_k_bytes() const { return BufferBytes(k_buffer_.get()); }
uint64_t KvStore::allocated_v_bytes() const { return BufferBytes(v_buffer_.get()); }
uint64_t KvStore::allocated_hidden_bytes() const { return BufferBytes(hidden_buffer_.get()); }

uint64_t KvStore::allocated_log_beta_bytes() const { return ColumnBytes(&Sequence::log_beta); }
uint64_t KvStore::allocated_attention_mass_bytes() const {
  return ColumnBytes(&Sequence::attention_mass);
}

uint64_t KvStore::ColumnBytes(std::vector<float> Sequence::*column) const {
  uint64_t bytes = 0;
  for (const Sequence& s : seqs_) bytes += Bytes(s.*column);
  return bytes;
}

uint64_t KvStore::allocated_host_bytes() const {
  uint64_t bytes = ggml_get_mem_size(context_.get());
  for (const Sequence& s : seqs_) {
    bytes += Bytes(s.positions) + Bytes(s.rope_positions) + Bytes(s.tokens);
  }
  return bytes + turner_->allocated_bytes() + Bytes(scores_) + Bytes(keep_) + Bytes(order_) +
         Bytes(moves_) + Bytes(staging_);
}

}  // namespace kvbound
