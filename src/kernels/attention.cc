#include "kernels/attention.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "kernels/attention_task.h"

namespace kvbound {
namespace {

int32_t CeilDiv(int32_t a, int32_t b) { return (a + b - 1) / b; }

// The sizes of a call's split and of its areas in the workspace.
struct Split {
  explicit Split(const AttentionShape& shape)
      : tiled(shape.n_row() > kFewRows),
        stride(tiled ? kTileRows : kFewRows),
        range(tiled ? kTileRange : kFewRowsRange),
        n_tile(CeilDiv(shape.n_row(), stride)),
        n_range(std::max(1, CeilDiv(shape.max_slots, range))),
        n_head_unit(shape.n_seq * shape.n_kv_head) {
    const size_t rows = stride;
    const size_t slots = std::min(range, CeilDiv(shape.max_slots, kBlock) * kBlock);
    weights_at = rows * (2 + shape.head_dim);
    part_floats = weights_at;
    if (shape.mass) part_floats += (tiled ? slots : range) * rows + slots / kBlock * rows;
    block_max_at = part_floats - (shape.mass ? slots / kBlock * rows : 0);
    unit_mass_at = part_floats * n_range;
    unit_floats = unit_mass_at + (shape.mass ? shape.max_slots : 0);
    head_floats = unit_floats * n_tile + (shape.mass ? shape.max_slots : 0);
  }

  bool tiled;
  int32_t stride;  // rows of a full tile
  int32_t range;   // slots of a task
  int32_t n_tile;  // units of one KV head
  int32_t n_range;
  int32_t n_head_unit;  // KV heads of all sequences
  size_t weights_at, block_max_at, part_floats;
  size_t unit_mass_at, unit_floats;
  size_t head_floats;  // the units of a KV head, then |v| of its slots
};

// One call, seen from one thread.
class Work {
 public:
  Work(const AttentionCall& call, int thread, int n_thread)
      : call_(call),
        shape_(call.shape),
        split_(call.shape),
        wants_mass_(call.mass != nullptr || call.value_mass != nullptr),
        thread_(thread),
        n_thread_(n_thread) {}

  void Run() {
    Deal();
    int64_t at = 0;
    for (int32_t seq = 0; seq < shape_.n_seq; ++seq) {
      for (int32_t head = 0; head < shape_.n_kv_head; ++head) {
        EnterHead(seq, head);
        for (int32_t tile = 0; tile < split_.n_tile; ++tile) {
          bool entered = false;
          for (int32_t range = 0; range < n_range_; ++range, ++at) {
            if (!IsOwn(at)) continue;
            if (!entered) EnterTile(tile);
            entered = true;
            RunTask(range);
          }
        }
      }
    }
  }

 private:
  // Tiles are dealt out in turn, since later ones see more; of few rows each thread takes ranges
  // that follow each other in memory.
  void Deal() {
    if (split_.tiled) return;
    int64_t n_task = 0;
    for (int32_t unit = 0; unit < split_.n_head_unit; ++unit) {
      n_task += split_.n_tile * Ranges(call_.n_slot[unit]);
    }
    first_task_ = n_task * thread_ / n_thread_;
    end_task_ = n_task * (thread_ + 1) / n_thread_;
  }
  bool IsOwn(int64_t task) const {
    if (split_.tiled) return task % n_thread_ == thread_;
    return task >= first_task_ && task < end_task_;
  }
  int32_t Ranges(int32_t n_slot) const { return std::max(1, CeilDiv(n_slot, split_.range)); }

  void EnterHead(int32_t seq, int32_t head) {
    seq_ = seq;
    head_ = head;
    const int64_t number = HeadNumber();
    n_slot_ = call_.n_slot[number];
    first_slot_ = call_.first_slot == nullptr ? 0 : call_.first_slot[number];
    n_range_ = Ranges(n_slot_);
    head_area_ = call_.workspace + number * split_.head_floats;
  }

  // Fills what the tasks of a tile share.
  void EnterTile(int32_t tile) {
    tile_ = tile;
    // Full tiles would leave a small rest: even ones share the padding.
    const int32_t even = CeilDiv(shape_.n_row(), split_.n_tile);
    first_row_ = tile * even;
    n_row_ = std::min(even, shape_.n_row() - first_row_);
    for (int32_t r = 0; r < n_row_; ++r) {
      const int32_t token = (first_row_ + r) / shape_.n_group();
      const Visible& visible = call_.visible[seq_ * shape_.n_tok + token];
      rows_[r] = Row(first_row_ + r) * shape_.head_dim;
      begin_[r] = visible.begin;
      end_[r] = n_slot_ - visible.behind;
    }
  }

  // The number of a query row of this head among all queries.
  int64_t Row(int32_t row) const {
    const int64_t token = int64_t{seq_} * shape_.n_tok + row / shape_.n_group();
    return token * shape_.n_head + head_ * shape_.n_group() + row % shape_.n_group();
  }

  AttentionPart Part(int32_t range) const {
    float* at = UnitArea(tile_) + range * split_.part_floats;
    return {at, at + split_.stride, at + 2 * split_.stride, at + split_.weights_at,
            at + split_.block_max_at};
  }
  float* UnitArea(int32_t tile) const { return head_area_ + tile * split_.unit_floats; }
  float* UnitMass(int32_t tile) const { return UnitArea(tile) + split_.unit_mass_at; }
  float* ValueLength() const { return head_area_ + split_.n_tile * split_.unit_floats; }

  const std::byte* SlotData(const SlotRows& rows, int32_t slot) const {
    return rows.data + seq_ * rows.seq_bytes + head_ * rows.head_bytes +
           (first_slot_ + slot) * rows.slot_bytes;
  }

  void RunTask(int32_t range) {
    const int32_t first = range * split_.range;
    AttentionTask task;
    task.q = call_.q;
    task.rows = rows_.data();
    task.n_row = n_row_;
    task.begin = begin_.data();
    task.end = end_.data();
    task.k = SlotData(call_.k, first);
    task.v = SlotData(call_.v, first);
    task.first = first;
    task.n_slot = std::min(split_.range, n_slot_ - first);
    task.ranks =
        call_.ranks == nullptr ? nullptr : call_.ranks + int64_t{seq_} * shape_.max_slots + first;
    task.value_length = call_.value_mass != nullptr && tile_ == 0 ? ValueLength() + first : nullptr;
    task.part = Part(range);
    if (!wants_mass_) task.part.weights = nullptr;
    (split_.tiled ? AttendTile : AttendFewRows)(call_, task);
    if (IsLast(UnitNumber(), n_range_)) FinishUnit();
  }

  // Whether this is the last of n arrivals at a counter, which then is zero again.
  bool IsLast(int64_t counter, int32_t n) const {
    if (n == 1) return true;
    if (call_.counters[counter].fetch_add(1, std::memory_order_acq_rel) + 1 < n) return false;
    call_.counters[counter].store(0, std::memory_order_relaxed);
    return true;
  }
  int64_t HeadNumber() const { return int64_t{seq_} * shape_.n_kv_head + head_; }
  int64_t UnitNumber() const { return HeadNumber() * split_.n_tile + tile_; }

  void FinishUnit() {
    std::array<float, kTileRows> lse;
    for (int32_t r = 0; r < n_row_; ++r) lse[r] = FinishRow(r);
    if (!wants_mass_) return;
    SumMass(lse);
    if (IsLast(int64_t{split_.n_head_unit} * split_.n_tile + HeadNumber(), split_.n_tile)) {
      FinishMass();
    }
  }

  // Writes the outputs of one row; its log sum exp.
  float FinishRow(int32_t r) const {
    float max = kNoLogit, sum = 0.0f;
    for (int32_t range = 0; range < n_range_; ++range) max = std::max(max, Part(range).max[r]);
    for (int32_t range = 0; range < n_range_; ++range) {
      const AttentionPart part = Part(range);
      sum += part.sum[r] * std::exp(part.max[r] - max);
    }
    const int64_t row = Row(first_row_ + r);
    float* out = call_.out + row * shape_.head_dim;
    std::fill_n(out, shape_.head_dim, 0.0f);
    // A sum of zero: nothing is seen. NaN passes.
    const float lse = sum == 0.0f ? -std::numeric_limits<float>::infinity() : max + std::log(sum);
    if (call_.lse != nullptr) call_.lse[row] = lse;
    for (int32_t range = 0; sum != 0.0f && range < n_range_; ++range) {
      const AttentionPart part = Part(range);
      const float* values = part.values + int64_t{r} * shape_.head_dim;
      const float factor = std::exp(part.max[r] - max) / sum;
      for (int32_t i = 0; i < shape_.head_dim; ++i) out[i] += factor * values[i];
    }
    return lse;
  }

  // The attention that the unit's rows give each slot.
  void SumMass(const std::array<float, kTileRows>& lse) const {
    float* mass = UnitMass(tile_);
    std::fill_n(mass, n_slot_, 0.0f);
    for (int32_t range = 0; range < n_range_; ++range) {
      const AttentionPart part = Part(range);
      const int32_t first = range * split_.range;
      const int32_t n = std::min(split_.range, n_slot_ - first);
      if (split_.tiled) {
        SumTileMass(part, n, lse, mass + first);
        continue;
      }
      for (int32_t r = 0; r < n_row_; ++r) {
        const float factor = Factor(part.max[r], lse[r]);
        const float* weights = part.weights + int64_t{r} * split_.range;
        for (int32_t i = 0; i < n; ++i) mass[first + i] += factor * weights[i];
      }
    }
  }

  void SumTileMass(const AttentionPart& part, int32_t n, const std::array<float, kTileRows>& lse,
                   float* mass) const {
    for (int32_t block = 0; block * kBlock < n; ++block) {
      std::array<float, kTileRows> factor{};
      for (int32_t r = 0; r < n_row_; ++r) {
        factor[r] = Factor(part.block_max[block * kTileRows + r], lse[r]);
      }
      const int32_t end = std::min(n, (block + 1) * kBlock);
      for (int32_t i = block * kBlock; i < end; ++i) {
        const float* weights = part.weights + int64_t{i} * kTileRows;
        for (int32_t r = 0; r < n_row_; ++r) mass[i] += factor[r] * weights[r];
      }
    }
  }

  static float Factor(float max, float lse) { return max == kNoLogit ? 0.0f : std::exp(max - lse); }

  void FinishMass() const {
    const int64_t at = HeadNumber() * shape_.max_slots;
    for (int32_t i = 0; i < n_slot_; ++i) {
      float mass = 0.0f;
      for (int32_t tile = 0; tile < split_.n_tile; ++tile) mass += UnitMass(tile)[i];
      if (call_.mass != nullptr) call_.mass[at + i] = mass;
      if (call_.value_mass != nullptr) call_.value_mass[at + i] = mass * ValueLength()[i];
    }
  }

  const AttentionCall& call_;
  const AttentionShape& shape_;
  const Split split_;
  const bool wants_mass_;
  const int thread_, n_thread_;
  int64_t first_task_ = 0, end_task_ = 0;  // this thread's, of few rows

  int32_t seq_ = 0, head_ = 0, tile_ = 0;
  int32_t n_slot_ = 0, first_slot_ = 0;
  int32_t n_range_ = 0;
  int32_t first_row_ = 0, n_row_ = 0;
  float* head_area_ = nullptr;
  std::array<int64_t, kTileRows> rows_;
  std::array<int32_t, kTileRows> begin_, end_;
};

}  // namespace

size_t AttentionWorkspace(const AttentionShape& shape) {
  const Split split(shape);
  return split.n_head_unit * split.head_floats;
}

size_t AttentionCounters(const AttentionShape& shape) {
  const Split split(shape);
  return split.n_head_unit * (split.n_tile + (shape.mass ? 1 : 0));
}

void Attend(const AttentionCall& call, int thread, int n_thread) {
  Work(call, thread, n_thread).Run();
}

}  // namespace kvbound
