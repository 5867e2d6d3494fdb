// streaming: attention sinks and a sliding window.
//
// Paper        StreamingLLM, Xiao et al., arXiv 2309.17453
// Keeps        the first positions (4 by default, as protected sinks) and the last J - sinks
// Granularity  shared
// Cost         one pass over the positions
// Deviations   the paper rotates keys anew by their index in the cache at every step; here keys
//              keep the rotation of their original position, as for every other policy. A cut
//              comes once a chunk, not once a token.

#include "policy/policies.h"
#include "policy/recency.h"

namespace kvbound {

namespace {

class Streaming : public EvictionPolicy {
 public:
  PolicyInfo Info() const override {
    PolicyInfo info;
    info.name = "streaming";
    info.summary = "keeps the first tokens (sinks) and the last J - sinks";
    info.paper = "arXiv 2309.17453";
    info.default_protection.sinks = 4;
    info.min_sinks = 1;
    return info;
  }

  Status Score(const CacheView& view, ScoreTable& scores) override {
    ScoreByRecency(view, scores);
    return Status::Ok();
  }
};

}  // namespace

MadePolicy MakeStreaming(const PolicyOptions&) { return MadePolicy(std::make_unique<Streaming>()); }

}  // namespace kvbound
