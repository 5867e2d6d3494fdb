#ifndef KVBOUND_GENERATE_MEMORY_PLAN_H_
#define KVBOUND_GENERATE_MEMORY_PLAN_H_

#include <cstdint>
#include <memory>

#include "kv/layout.h"
#include "kvbound/memory.h"
#include "kvbound/options.h"
#include "kvbound/status.h"
#include "model/graph_inputs.h"
#include "model/graph_runner.h"
#include "model/loaded_model.h"

namespace kvbound {

// Everything that decides what an engine allocates.
struct EngineShape {
  EngineOptions options;  // threads, attention and max_logit_rows resolved
  PolicyInfo policy;      // of the default policy
  KvLayout layout;
  RunnerOptions runner;
  std::shared_ptr<const Gates> gates;  // set iff the default policy needs them
  GraphInputs::Sizes inputs;           // of the largest forward or scoring pass
};

// The policy of `own` if set, else the registry's.
Result<std::unique_ptr<EvictionPolicy>> MakePolicy(const PolicyFactory& own,
                                                   const PolicyOptions& options);

// Resolves and checks the options against the model.
Result<EngineShape> ShapeEngine(const LoadedModel& model, const EngineOptions& options);

// The plan of a shape: parts in the order of the design document.
// `gates` is null without.
MemoryPlan MakePlan(const LoadedModel& model, const LoadedGates* gates, const EngineShape& shape,
                    const RunnerSizes& sizes);

}  // namespace kvbound

#endif  // KVBOUND_GENERATE_MEMORY_PLAN_H_
