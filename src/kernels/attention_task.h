#ifndef KVBOUND_KERNELS_ATTENTION_TASK_H_
#define KVBOUND_KERNELS_ATTENTION_TASK_H_

#include <cstddef>
#include <cstdint>

#include "kernels/attention.h"

namespace kvbound {

// How Attend cuts the work of one call. A unit is a tile of query rows of one KV head of one
// sequence; a task is one unit's attention over one range of slots, and leaves a part; the thread
// that finishes the last task of a unit puts its parts together.

inline constexpr int32_t kFewRows = 8;    // up to here a unit takes queries one by one
inline constexpr int32_t kTileRows = 64;  // beyond, a tile of them lies in vector lanes
inline constexpr int32_t kBlock = 64;     // slots whose logits of a tile are in L1 at a time

// Slots of a task, whatever their number in all: small for few rows, so that many threads can
// share one head; large for tiles, of which there are more.
inline constexpr int32_t kFewRowsRange = 256;
inline constexpr int32_t kTileRange = 1024;

// Logits of keys that a query does not see, and the greatest logit of a query that sees none.
// Finite, so that differences are numbers.
inline constexpr float kHidden = -3e38f;
inline constexpr float kNoLogit = -1e30f;

// What a task leaves, in the workspace. `stride` rows: kFewRows or kTileRows.
struct AttentionPart {
  float* max;     // [stride]: greatest logit
  float* sum;     // [stride]: of exp(logit - max)
  float* values;  // [stride, head_dim]: sum of exp(logit - max) v
  // If mass is asked for. Few rows: exp(logit - max), [stride, range]. Tiles: for each block
  // exp(logit - block_max), [kBlock, stride], and the maximum that it refers to, [stride].
  float* weights;
  float* block_max;
};

// A unit's few queries as the kernels take them, times the scale of logits.
struct FewQueries {
  static constexpr int32_t kMaxBlocks = kMaxHeadDim / 32;

  alignas(64) float floats[kFewRows * kMaxHeadDim];  // rows padded to whole vectors
  // For products with q8_0 keys: in 16 bits, the middle two of each four elements swapped.
  alignas(64) int16_t shorts[kFewRows][kMaxHeadDim];
  float back[kFewRows];                 // factors from them to floats
  int32_t start[kFewRows][kMaxBlocks];  // of the sums of products with a block
};

struct AttentionTask {
  const float* q;             // of a tile; row r: q + rows[r]
  const int64_t* rows;        // [n_row]: offsets of the rows' queries in q
  const FewQueries* queries;  // of few rows
  int32_t n_row;
  const int32_t* begin;  // [n_row]: ranks that a row sees, [begin, end)
  const int32_t* end;
  const std::byte* k;  // first slot of the range
  const std::byte* v;
  const std::byte* next_k = nullptr;  // what the thread reads after this task, or null
  int32_t first;                      // its number within the head
  int32_t n_slot;                     // slots of the range
  const int32_t* ranks;               // of the range's slots, or null
  float* value_length;                // [n_slot] |v|, or null
  AttentionPart part;
};

// Fills in a unit's few queries.
void PrepareFewRows(const AttentionCall& call, const int64_t* rows, int32_t n_row,
                    FewQueries* queries);

// Few rows at a time, or a tile.
void AttendFewRows(const AttentionCall& call, const AttentionTask& task);
void AttendTile(const AttentionCall& call, const AttentionTask& task);

}  // namespace kvbound

#endif  // KVBOUND_KERNELS_ATTENTION_TASK_H_
