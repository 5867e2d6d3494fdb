#include "eval/contender.h"

#include <algorithm>
#include <utility>

#include "src/base/strings.h"

namespace kvbound::eval {
namespace {

Status WithLabel(const std::string& label, const Status& status) {
  return Status(status.code(), StrCat(label, ": ", status.message()));
}

}  // namespace

Result<Contender> MakeContender(std::shared_ptr<const Model> model, const FidelityPolicy& policy,
                                const CacheShape& shape) {
  EngineOptions options;
  options.policy = policy.policy;
  options.gates = policy.gates;
  options.budget = policy.budget;
  options.chunk = shape.chunk;
  options.n_threads = shape.n_threads;
  options.max_logit_rows = shape.max_logit_rows;
  SessionOptions session_options;
  session_options.protection = policy.protection;

  Contender contender;
  Result<std::unique_ptr<Engine>> engine = Engine::Create(std::move(model), options);
  if (!engine.ok()) return WithLabel(policy.label, engine.status());
  contender.engine = *std::move(engine);
  Result<std::unique_ptr<Session>> session = contender.engine->NewSession(session_options);
  if (!session.ok()) return WithLabel(policy.label, session.status());
  contender.session = *std::move(session);
  return contender;
}

Result<Contender> MakeUncut(std::shared_ptr<const Model> model, int32_t n_token,
                            const CacheShape& shape) {
  FidelityPolicy uncut;
  uncut.label = "uncut";
  uncut.policy.name = "none";
  uncut.budget = n_token;
  return MakeContender(std::move(model), uncut, shape);
}

}  // namespace kvbound::eval
