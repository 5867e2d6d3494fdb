#ifndef KVBOUND_MEMORY_H_
#define KVBOUND_MEMORY_H_

#include <cstdint>
#include <string>
#include <vector>

#include "kvbound/options.h"
#include "kvbound/status.h"

namespace kvbound {

// One line of the plan.
struct MemoryPart {
  std::string name;     // "K", "V", "hidden rows", "log beta", "compute", "gates", "weights", ...
  std::string formula;  // how the bytes come about, with the numbers put in
  uint64_t bytes = 0;
};

// Every byte that an engine allocates, known before a weight is loaded.
struct MemoryPlan {
  std::vector<MemoryPart> parts;
  int32_t position_limit = 0;  // EngineOptions', resolved; 0 with PositionMode::kOriginal

  uint64_t total_bytes() const;
  uint64_t total_without_weights_bytes() const;  // nor those of gates
  // 0 for a part that the plan does not have.
  uint64_t part_bytes(std::string_view name) const;
};

// The plan of an engine over the model file at `path`. Reads the file's header only. Fails as
// Model::Load and Engine::Create would: bad file, unsupported pair, budget too small.
Result<MemoryPlan> PlanMemory(const std::string& path, const ModelOptions& model,
                              const EngineOptions& engine);

// The largest budget whose plan without weights fits `budget_bytes`, in `engine.budget`, with
// chunk = budget / 4 unless `fixed_chunk` (then engine.chunk stays). OutOfBudget if none does,
// with the bytes that the smallest would take.
Result<EngineOptions> FitBudget(const std::string& path, const ModelOptions& model,
                                EngineOptions engine, uint64_t budget_bytes, bool fixed_chunk);

}  // namespace kvbound

#endif  // KVBOUND_MEMORY_H_
