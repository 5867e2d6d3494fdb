#include <algorithm>

#include "base/strings.h"
#include "generate/engine_impl.h"

namespace kvbound {

Engine::Engine(std::unique_ptr<EngineImpl> impl) : impl_(std::move(impl)) {}
Engine::~Engine() = default;

Result<std::unique_ptr<Engine>> Engine::Create(std::shared_ptr<const Model> model,
                                               const EngineOptions& options) {
  KVBOUND_ASSIGN_OR_RETURN(std::unique_ptr<EngineImpl> impl,
                           EngineImpl::Create(std::move(model), options));
  return std::unique_ptr<Engine>(new Engine(std::move(impl)));
}

Result<std::unique_ptr<Session>> Engine::NewSession(const SessionOptions& options) {
  const auto free = std::ranges::find(impl_->sessions, nullptr);
  if (free == impl_->sessions.end()) {
    return OutOfBudget(StrCat("all ", impl_->sessions.size(), " sequences are in use"));
  }
  const EngineOptions& defaults = impl_->shape.options;
  const bool use_default = !options.policy && !options.own_policy;
  const auto make_policy = [own = use_default ? defaults.own_policy : options.own_policy,
                            named = options.policy.value_or(defaults.policy)] {
    return MakePolicy(own, named);
  };
  KVBOUND_ASSIGN_OR_RETURN(std::unique_ptr<EvictionPolicy> policy, make_policy());
  const PolicyInfo info = policy->Info();
  const PolicyInfo& sized_for = impl_->shape.policy;
  if (info.granularity > sized_for.granularity ||
      (info.model_score != ModelScore::kNone && info.model_score != sized_for.model_score) ||
      (info.needs_gates && !sized_for.needs_gates) ||
      (info.needs_attention_mass && !sized_for.needs_attention_mass)) {
    return InvalidArgument(
        StrCat("policy '", info.name, "' keeps sets ", GranularityName(info.granularity),
               ", needs a model score, gates or attention mass that an engine made for '",
               sized_for.name, "' has no room for"));
  }
  KVBOUND_ASSIGN_OR_RETURN(
      ProtectedSpans protection,
      ProtectedSpans::Resolve(options.protection, info, impl_->shape.layout.budget));
  const int32_t seq = static_cast<int32_t>(free - impl_->sessions.begin());
  auto session = std::make_unique<Session::Impl>(*impl_, seq, make_policy, std::move(policy),
                                                 std::move(protection));
  return std::make_unique<Session>(std::move(session));
}

Status Engine::Step(std::span<Session* const> sessions, std::span<const Token> tokens) {
  if (sessions.empty() || sessions.size() != tokens.size()) {
    return InvalidArgument(StrCat("step: expected a token for each of at least one session, found ",
                                  sessions.size(), " sessions and ", tokens.size(), " tokens"));
  }
  KVBOUND_RETURN_IF_ERROR(impl_->CheckTokens(tokens));
  return impl_->Step(sessions, tokens);
}

const MemoryPlan& Engine::plan() const { return impl_->plan; }
MemoryPlan Engine::Allocated() const { return impl_->Allocated(); }
const EngineOptions& Engine::options() const { return impl_->shape.options; }
const Model& Engine::model() const { return *impl_->model; }

}  // namespace kvbound
