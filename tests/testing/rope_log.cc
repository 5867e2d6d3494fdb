#include "testing/rope_log.h"

namespace kvbound::testing {

RopeLog::RopeLog(const CutLog& log, int32_t n_set, int32_t chunk, int32_t limit) {
  segments_.push_back({0, 0, std::vector<std::map<int32_t, int32_t>>(n_set)});
  for (const CutLog::Entry& cut : log.entries()) {
    const Segment& before = segments_.back();
    Segment after;
    after.first = static_cast<int32_t>(cut.tokens_seen);
    after.next_rope = before.next_rope + after.first - before.first;
    const bool rebase = after.next_rope + chunk > limit;
    for (int32_t set = 0; set < n_set; ++set) {
      auto& kept = after.kept.emplace_back();
      int32_t rank = 0;
      for (const int32_t position : cut.kept[set]) {  // ascending
        const int32_t rope = position >= before.first ? before.next_rope + position - before.first
                                                      : before.kept[set].at(position);
        kept[position] = rebase ? rank++ : rope;
      }
    }
    if (rebase) {
      after.next_rope = static_cast<int32_t>(cut.kept[0].size());
      ++n_rebase_;
    }
    segments_.push_back(std::move(after));
  }
}

const RopeLog::Segment& RopeLog::SegmentOf(int32_t position) const {
  size_t s = segments_.size() - 1;
  while (segments_[s].first > position) --s;
  return segments_[s];
}

int32_t RopeLog::Fed(int32_t position) const {
  const Segment& segment = SegmentOf(position);
  return segment.next_rope + position - segment.first;
}

int32_t RopeLog::Seen(int32_t set, int32_t query, int32_t key) const {
  const Segment& segment = SegmentOf(query);
  return key >= segment.first ? Fed(key) : segment.kept[set].at(key);
}

}  // namespace kvbound::testing
