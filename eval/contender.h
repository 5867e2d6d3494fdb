#ifndef KVBOUND_EVAL_CONTENDER_H_
#define KVBOUND_EVAL_CONTENDER_H_

#include <cstdint>
#include <memory>
#include <string>

#include "kvbound/gates.h"
#include "kvbound/model.h"
#include "kvbound/options.h"
#include "kvbound/policy.h"
#include "kvbound/session.h"
#include "kvbound/status.h"

namespace kvbound::eval {

// One bounded cache to be measured.
struct FidelityPolicy {
  std::string label;  // in tables and messages
  PolicyOptions policy;
  ProtectionOptions protection;
  std::shared_ptr<const Gates> gates;  // for policies that need them, else null
  int32_t budget = 128;
};

// What all caches of one measurement have in common.
struct CacheShape {
  int32_t chunk = 64;
  int32_t n_threads = 0;       // 0: as EngineOptions
  int32_t max_logit_rows = 0;  // as EngineOptions
};

// An engine of one sequence, and its session. Movable; one thread at a time.
struct Contender {
  std::unique_ptr<Engine> engine;
  std::unique_ptr<Session> session;  // after the engine: destroyed first
};

// Errors of Engine::Create and Engine::NewSession, with the label in front.
Result<Contender> MakeContender(std::shared_ptr<const Model> model, const FidelityPolicy& policy,
                                const CacheShape& shape);

// The cache that keeps everything: policy `none` with room for `n_token` tokens.
Result<Contender> MakeUncut(std::shared_ptr<const Model> model, int32_t n_token,
                            const CacheShape& shape);

}  // namespace kvbound::eval

#endif  // KVBOUND_EVAL_CONTENDER_H_
