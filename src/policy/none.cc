// none: the unbounded reference inside a bounded store.
//
// Paper        -
// Keeps        every token; feeding beyond the budget is an error
// Granularity  shared
// Cost         none

#include "policy/policies.h"

namespace kvbound {

namespace {

class None : public EvictionPolicy {
 public:
  PolicyInfo Info() const override {
    PolicyInfo info;
    info.name = "none";
    info.summary = "keeps everything; feeding beyond the budget is an error";
    info.paper = "-";
    info.evicts = false;
    return info;
  }

  Status Score(const CacheView&, ScoreTable&) override {
    return Internal("policy 'none': expected no cut, found one");
  }
};

}  // namespace

MadePolicy MakeNone(const PolicyOptions&) { return MadePolicy(std::make_unique<None>()); }

}  // namespace kvbound
