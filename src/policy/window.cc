// window: a sliding window over the text.
//
// Paper        -
// Keeps        the last J positions
// Granularity  shared
// Cost         one pass over the positions
// Protection   none by default; sinks turn it into `streaming`

#include "policy/policies.h"
#include "policy/recency.h"

namespace kvbound {

namespace {

class Window : public EvictionPolicy {
 public:
  PolicyInfo Info() const override {
    PolicyInfo info;
    info.name = "window";
    info.summary = "keeps the last J tokens";
    info.paper = "-";
    return info;
  }

  Status Score(const CacheView& view, ScoreTable& scores) override {
    ScoreByRecency(view, scores);
    return Status::Ok();
  }
};

}  // namespace

MadePolicy MakeWindow(const PolicyOptions&) { return MadePolicy(std::make_unique<Window>()); }

}  // namespace kvbound
