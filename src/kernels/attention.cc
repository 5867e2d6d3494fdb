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

// Where a task lies. Past the last one, `head` is the number of heads.
struct Place {
  int32_t head = 0;  // of all sequences
  int32_t tile = 0;
  int32_t range = 0;
};

// The tasks of one thread, which it draws from those that no thread has yet.
class Tasks {
 public:
  Tasks(const AttentionCall& call, const Split& split, int n_thread)
      : call_(call), split_(split), n_thread_(n_thread) {
    for (int32_t head = 0; head < split.n_head_unit; ++head) n_task_ += OfHead(head);
  }

  int32_t Ranges(int32_t head) const {
    return std::max(1, CeilDiv(call_.n_slot[head], split_.range));
  }

  // Each lies behind the one before.
  Place Next() {
    if (next_ == end_) Draw();
    return next_ == end_ ? Place{split_.n_head_unit} : At(next_++);
  }

  // What Next will return, as far as that is known. A task is drawn for it unless there are so few
  // that another thread could want it.
  Place Following() {
    if (next_ == end_ && !split_.tiled && n_task_ >= 2 * n_thread_) Draw();
    return next_ == end_ ? Place{split_.n_head_unit} : At(next_);
  }

 private:
  int32_t OfHead(int32_t head) const { return split_.n_tile * Ranges(head); }

  Place At(int32_t task) {
    while (task >= head_first_ + OfHead(head_)) head_first_ += OfHead(head_++);
    const int32_t n_range = Ranges(head_), in_head = task - head_first_;
    return {head_, in_head / n_range, in_head % n_range};
  }

  // A part of what is left, so that a thread reads on in memory, down to one task, so that all
  // threads end together however fast each is. Tiles one by one: later ones see more. The last
  // thread that finds nothing left sets the counter back.
  void Draw() {
    if (all_drawn_) return;
    std::atomic<int32_t>& drawn = call_.counters[0];
    int32_t first = drawn.load(std::memory_order_relaxed), n = 0;
    do {
      if (first >= n_task_) {
        all_drawn_ = true;
        const int32_t n_done = drawn.fetch_add(1, std::memory_order_relaxed) - n_task_ + 1;
        if (n_done == n_thread_) drawn.store(0, std::memory_order_relaxed);
        return;
      }
      n = split_.tiled ? 1 : std::max(1, (n_task_ - first) / (2 * n_thread_));
    } while (!drawn.compare_exchange_weak(first, first + n, std::memory_order_relaxed));
    next_ = first;
    end_ = first + n;
  }

  const AttentionCall& call_;
  const Split& split_;
  const int n_thread_;
  int32_t n_task_ = 0;          // of the call
  int32_t next_ = 0, end_ = 0;  // drawn and not begun
  bool all_drawn_ = false;
  int32_t head_ = 0, head_first_ = 0;  // of the last task, and the first task of that head
};

// One call, seen from one thread.
class Work {
 public:
  Work(const AttentionCall& call, int n_thread)
      : call_(call),
        shape_(call.shape),
        split_(call.shape),
        wants_mass_(call.mass != nullptr || call.value_mass != nullptr),
        tasks_(call, split_, n_thread) {}

  void Run() {
    for (Place at = tasks_.Next(); at.head < split_.n_head_unit; at = tasks_.Next()) {
      if (at.head != head_) EnterHead(at.head);
      if (at.tile != tile_) EnterTile(at.tile);
      RunTask(at.range, tasks_.Following());
    }
  }

 private:
  void EnterHead(int32_t head) {
    head_ = head;
    tile_ = -1;
    n_slot_ = call_.n_slot[head];
    n_range_ = tasks_.Ranges(head);
    head_area_ = call_.workspace + head * split_.head_floats;
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
      const Visible& visible = call_.visible[Seq(head_) * shape_.n_tok + token];
      rows_[r] = Row(first_row_ + r) * shape_.head_dim;
      begin_[r] = visible.begin;
      end_[r] = n_slot_ - visible.behind;
    }
    if (!split_.tiled) PrepareFewRows(call_, rows_.data(), n_row_, &few_queries_);
  }

  int32_t Seq(int32_t head) const { return head / shape_.n_kv_head; }

  // The number of a query row of this head among all queries.
  int64_t Row(int32_t row) const {
    const int64_t token = int64_t{Seq(head_)} * shape_.n_tok + row / shape_.n_group();
    return token * shape_.n_head + head_ % shape_.n_kv_head * shape_.n_group() +
           row % shape_.n_group();
  }

  AttentionPart Part(int32_t range) const {
    float* at = UnitArea(tile_) + range * split_.part_floats;
    return {at, at + split_.stride, at + 2 * split_.stride, at + split_.weights_at,
            at + split_.block_max_at};
  }
  float* UnitArea(int32_t tile) const { return head_area_ + tile * split_.unit_floats; }
  float* UnitMass(int32_t tile) const { return UnitArea(tile) + split_.unit_mass_at; }
  float* ValueLength() const { return head_area_ + split_.n_tile * split_.unit_floats; }

  const std::byte* SlotData(const SlotRows& rows, int32_t head, int32_t slot) const {
    if (call_.first_slot != nullptr) slot += call_.first_slot[head];
    return rows.data + Seq(head) * rows.seq_bytes + head % shape_.n_kv_head * rows.head_bytes +
           slot * rows.slot_bytes;
  }

  void RunTask(int32_t range, const Place& next) {
    const int32_t first = range * split_.range;
    AttentionTask task;
    task.q = call_.q;
    task.rows = rows_.data();
    task.queries = &few_queries_;
    task.n_row = n_row_;
    task.begin = begin_.data();
    task.end = end_.data();
    task.k = SlotData(call_.k, head_, first);
    task.v = SlotData(call_.v, head_, first);
    if (next.head < split_.n_head_unit) {
      task.next_k = SlotData(call_.k, next.head, next.range * split_.range);
    }
    task.first = first;
    task.n_slot = std::min(split_.range, n_slot_ - first);
    task.ranks = call_.ranks == nullptr
                     ? nullptr
                     : call_.ranks + int64_t{Seq(head_)} * shape_.max_slots + first;
    task.value_length = call_.value_mass != nullptr && tile_ == 0 ? ValueLength() + first : nullptr;
    task.part = Part(range);
    if (!wants_mass_) task.part.weights = nullptr;
    (split_.tiled ? AttendTile : AttendFewRows)(call_, task);
    if (IsLast(1 + int64_t{head_} * split_.n_tile + tile_, n_range_)) FinishUnit();
  }

  // Whether this is the last of n arrivals at a counter, which then is zero again.
  bool IsLast(int64_t counter, int32_t n) const {
    if (n == 1) return true;
    if (call_.counters[counter].fetch_add(1, std::memory_order_acq_rel) + 1 < n) return false;
    call_.counters[counter].store(0, std::memory_order_relaxed);
    return true;
  }

  void FinishUnit() {
    std::array<float, kTileRows> lse;
    for (int32_t r = 0; r < n_row_; ++r) lse[r] = FinishRow(r);
    if (!wants_mass_) return;
    SumMass(lse);
    if (IsLast(1 + int64_t{split_.n_head_unit} * split_.n_tile + head_, split_.n_tile)) {
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
    const int64_t at = int64_t{head_} * shape_.max_slots;
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
  Tasks tasks_;

  int32_t head_ = -1, tile_ = -1;
  int32_t n_slot_ = 0, n_range_ = 0;
  int32_t first_row_ = 0, n_row_ = 0;
  float* head_area_ = nullptr;
  std::array<int64_t, kTileRows> rows_;
  std::array<int32_t, kTileRows> begin_, end_;
  FewQueries few_queries_;
};

}  // namespace

size_t AttentionWorkspace(const AttentionShape& shape) {
  const Split split(shape);
  return split.n_head_unit * split.head_floats;
}

size_t AttentionCounters(const AttentionShape& shape) {
  const Split split(shape);
  return 1 + split.n_head_unit * (split.n_tile + (shape.mass ? 1 : 0));
}

void Attend(const AttentionCall& call, int n_thread) { Work(call, n_thread).Run(); }

}  // namespace kvbound
