#ifndef KVBOUND_TESTING_ROPE_LOG_H_
#define KVBOUND_TESTING_ROPE_LOG_H_

#include <cstdint>
#include <map>
#include <vector>

#include "testing/tiny_engine.h"

namespace kvbound::testing {

// Where RoPE must have put every key of a finished run, worked out from its cuts alone.
class RopeLog {
 public:
  // A session that cuts after chunks of `chunk` tokens and keeps its positions below `limit`.
  RopeLog(const CutLog& log, int32_t n_set, int32_t chunk, int32_t limit);

  // RoPE position of a token when it was fed.
  int32_t Fed(int32_t position) const;
  // RoPE position of the key at `key` when the token at `query` was fed. REQUIRES: it was kept.
  int32_t Seen(int32_t set, int32_t query, int32_t key) const;
  // By how many positions the query stands after the key.
  int32_t Distance(int32_t set, int32_t query, int32_t key) const {
    return Fed(query) - Seen(set, query, key);
  }
  int32_t n_rebase() const { return n_rebase_; }

 private:
  // From one cut to the next.
  struct Segment {
    int32_t first = 0;                             // its first token
    int32_t next_rope = 0;                         // RoPE position of that token
    std::vector<std::map<int32_t, int32_t>> kept;  // [n_set], RoPE positions of older tokens
  };
  const Segment& SegmentOf(int32_t position) const;

  std::vector<Segment> segments_;
  int32_t n_rebase_ = 0;
};

}  // namespace kvbound::testing

#endif  // KVBOUND_TESTING_ROPE_LOG_H_
