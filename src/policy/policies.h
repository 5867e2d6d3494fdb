#ifndef KVBOUND_POLICY_POLICIES_H_
#define KVBOUND_POLICY_POLICIES_H_

#include <memory>

#include "kvbound/policy.h"
#include "kvbound/status.h"

namespace kvbound {

// One maker per file of this folder; the registry is their only caller.
using MadePolicy = Result<std::unique_ptr<EvictionPolicy>>;

MadePolicy MakeNone(const PolicyOptions& options);
MadePolicy MakeWindow(const PolicyOptions& options);
MadePolicy MakeStreaming(const PolicyOptions& options);
MadePolicy MakeH2o(const PolicyOptions& options);
MadePolicy MakeRandom(const PolicyOptions& options);
MadePolicy MakeCounterCausal(const PolicyOptions& options);
MadePolicy MakeCounterCausalFast(const PolicyOptions& options);
MadePolicy MakeRetention(const PolicyOptions& options);

}  // namespace kvbound

#endif  // KVBOUND_POLICY_POLICIES_H_
