#include "cli/args.h"

#include <algorithm>
#include <utility>

#include "cli/options.h"
#include "kvbound/memory.h"
#include "src/base/strings.h"

namespace kvbound::cli {
namespace {

using Cc = CounterCausalOptions;
using Rt = RetentionOptions;

void AddStorageOptions(CLI::App* app, CacheArgs* args) {
  const std::vector<std::pair<std::string, KvType>> types = {{"f32", KvType::kF32},
                                                             {"f16", KvType::kF16},
                                                             {"bf16", KvType::kBF16},
                                                             {"q8_0", KvType::kQ8_0},
                                                             {"q4_0", KvType::kQ4_0}};
  AddInt(app, "--budget", &args->budget, {"a number of slots", 2},
         "Slots that survive a cut, per kv_head (J; default 512)");
  AddParsed(app, "--budget-bytes", &args->budget_bytes, ParseSize,
            "The largest J whose memory, weights left out, fits SIZE: 64MiB, 1.5GiB, 67108864",
            "SIZE");
  AddInt(app, "--chunk", &args->chunk, {"a number of tokens", 1},
         "Tokens between two cuts (h; default J/4); at most J + h slots are ever occupied");
  AddChoice(app, "--cache-type-k", &args->type_k, types, "-ctk: how K is stored (default f16)");
  AddChoice(app, "--cache-type-v", &args->type_v, types, "-ctv: how V is stored (default f16)");
  AddChoice<AttentionPath, AttentionPath>(
      app, "--attention", &args->attention,
      {{"auto", AttentionPath::kAuto},
       {"fused", AttentionPath::kFused},
       {"stock", AttentionPath::kStock},
       {"flash", AttentionPath::kFlash}},
      "What computes attention: our fused operator (auto takes it on CPUs), ggml's operators, or "
      "its flash attention throughout");
  AddChoice<PositionMode, PositionMode>(
      app, "--positions", &args->positions,
      {{"auto", PositionMode::kAuto}, {"original", PositionMode::kOriginal}},
      "auto: where a text goes past --position-limit, the kept tokens are moved back to the first "
      "positions, so that it can go on without end; original: never (default auto)");
  AddInt(app, "--position-limit", &args->position_limit, {"a number of positions", 2},
         "--positions auto: positions that the model may see (at least J + h; default the context "
         "that it was trained on)");
  AddInt(app, "-t,--threads", &args->n_threads, {"a number of threads", 1, 512},
         "Threads (default: cores and CPU quota of this process)");
}

void AddPolicyOptions(CLI::App* app, CacheArgs* args) {
  std::vector<std::pair<std::string, std::string>> names;
  for (const PolicyInfo& info : ListPolicies()) names.emplace_back(info.name, info.name);
  AddChoice(app, "--policy", &args->policy, names,
            "What a cut drops (default counter-causal-fast); see `kvbound policies`");
  AddChoice<std::optional<std::string>, std::string>(
      app, "--preset", &args->preset, {{"published", "published"}},
      "The paper's setting, with no protection. Counter-causal: --align published, --reading A, "
      "--score logit; retention: --retention-score decay, --age code, --cadence full");
  AddChoice<std::optional<Cc::Reading>, Cc::Reading>(
      app, "--reading", &args->reading,
      {{"A", Cc::Reading::kA},
       {"B", Cc::Reading::kB},
       {"C", Cc::Reading::kC},
       {"D", Cc::Reading::kD}},
      "counter-causal: what starts the residual stream of a slot (default A)");
  AddChoice<std::optional<Cc::Neutral>, Cc::Neutral>(
      app, "--neutral", &args->neutral,
      {{"mean", Cc::Neutral::kMeanEmbedding}, {"bos", Cc::Neutral::kBos}},
      "--reading D: the neutral vector (default mean)");
  AddChoice<std::optional<Cc::Align>, Cc::Align>(
      app, "--align", &args->align,
      {{"aligned", Cc::Align::kAligned}, {"published", Cc::Align::kPublished}},
      "counter-causal policies: which token a generated slot is scored for (default aligned)");
  AddChoice<std::optional<Cc::Score>, Cc::Score>(app, "--score", &args->score,
                                                 {{"logit", Cc::Score::kLogit},
                                                  {"centred", Cc::Score::kCentred},
                                                  {"logprob", Cc::Score::kLogProb},
                                                  {"pmi", Cc::Score::kPmi}},
                                                 "counter-causal policies (default logit)");
  app->add_flag("--ffn", args->ffn, "counter-causal-fast: apply the last feed-forward block too");
  AddInt(app, "--min-gap", &args->min_gap, {"a number of tokens"},
         "counter-causal policies: a slot is predicted from tokens at least N + 1 later");
  AddChoice<std::optional<Granularity>, Granularity>(
      app, "--granularity", &args->granularity,
      {{"shared", Granularity::kShared},
       {"per_layer", Granularity::kPerLayer},
       {"per_head", Granularity::kPerHead}},
      "h2o, random, retention: what shares one choice");
  AddInt(app, "--policy-seed", &args->policy_seed,
         {"a seed", 0, std::numeric_limits<int64_t>::max()}, "random: seed of its choices");
}

void AddRetentionOptions(CLI::App* app, CacheArgs* args) {
  AddParsed(app, "--gates", &args->gates, AsIs, "retention: the model's gate file", "FILE");
  AddChoice<std::optional<Rt::Score>, Rt::Score>(
      app, "--retention-score", &args->retention_score,
      {{"decay", Rt::Score::kDecay}, {"future", Rt::Score::kFuture}},
      "beta^age, or its sum over the steps to come (default decay)");
  AddInt(app, "--horizon", &args->horizon,
         {"a number of steps", 1, std::numeric_limits<int32_t>::max()},
         "--retention-score future: steps that count (default: all)");
  AddChoice<std::optional<Rt::Age>, Rt::Age>(
      app, "--age", &args->age, {{"next", Rt::Age::kNext}, {"code", Rt::Age::kCode}},
      "A token's age at the next query, or one more as in the authors' code (default next)");
  AddChoice<std::optional<Rt::Cadence>, Rt::Cadence>(
      app, "--cadence", &args->cadence,
      {{"chunk", Rt::Cadence::kChunk}, {"full", Rt::Cadence::kFull}},
      "A cut after every chunk, or only when J + h slots are occupied (default chunk)");
}

void AddProtectionOptions(CLI::App* app, CacheArgs* args) {
  AddInt(app, "--sinks", &args->protection.sinks, {"a number of tokens"},
         "Never drop the first N positions");
  AddInt(app, "--recent", &args->protection.recent, {"a number of tokens"},
         "Never drop the last N positions");
  AddSwitch(app, "pin-prompt", &args->protection.pin_prompt,
            "Never drop the prompt (in a chat: the system prompt)");
}

Status Refused(const char* option, std::string why) {
  return InvalidArgument(StrCat(option, ": ", why));
}

Result<PolicyInfo> FindPolicy(const std::string& name) {
  for (PolicyInfo& info : ListPolicies()) {
    if (info.name == name) return std::move(info);
  }
  return NotFound(StrCat("--policy: no policy '", Printable(name), "'"));
}

// Options that the policy does not take.
Status CheckTaken(const CacheArgs& args, const PolicyInfo& info) {
  const bool full = info.model_score == ModelScore::kCounterCausalFull;
  const bool fast = info.model_score == ModelScore::kCounterCausalFast;
  const ProtectionOptions& protection = args.protection;
  const std::pair<const char*, bool> refused[] = {
      {"--reading", args.reading && !full},
      {"--neutral", args.neutral && !full},
      {"--align", args.align && !full && !fast},
      {"--score", args.score && !full && !fast},
      {"--min-gap", args.min_gap && !full && !fast},
      {"--ffn", args.ffn && !fast},
      {"--preset", args.preset && !full && !fast && !info.needs_gates},
      {"--gates", !args.gates.empty() && !info.needs_gates},
      {"--retention-score", args.retention_score && !info.needs_gates},
      {"--horizon", args.horizon && !info.needs_gates},
      {"--age", args.age && !info.needs_gates},
      {"--cadence", args.cadence && !info.needs_gates},
      {"--position-limit", args.position_limit && !info.evicts},
      {"--sinks", protection.sinks && !info.evicts},
      {"--recent", protection.recent && !info.evicts},
      {"--pin-prompt", protection.pin_prompt && !info.evicts},
  };
  for (const auto& [option, is_refused] : refused) {
    if (is_refused) return Refused(option, StrCat("policy '", info.name, "' does not take it"));
  }
  PolicyOptions with_seed;
  with_seed.name = info.name;
  with_seed.seed = args.policy_seed;
  if (Status made = MakePolicy(with_seed).status(); !made.ok()) {
    return Refused("--policy-seed", made.message());
  }
  PolicyOptions with_granularity;
  with_granularity.name = info.name;
  with_granularity.granularity = args.granularity;
  if (Status made = MakePolicy(with_granularity).status(); !made.ok()) {
    return Refused("--granularity", made.message());
  }
  if (args.neutral && args.reading != Cc::Reading::kD) {
    return Refused("--neutral", "expected with --reading D only");
  }
  if (args.horizon && args.retention_score != Rt::Score::kFuture) {
    return Refused("--horizon", "expected with --retention-score future only");
  }
  if (info.needs_gates && args.gates.empty()) {
    return Refused("--gates", StrCat("policy '", info.name, "' needs a gate file, found none"));
  }
  return Status::Ok();
}

// What --preset published sets cannot be set otherwise.
Status CheckPreset(const CacheArgs& args) {
  if (!args.preset) return Status::Ok();
  const std::pair<const char*, bool> given[] = {
      {"--sinks", args.protection.sinks.has_value()},
      {"--recent", args.protection.recent.has_value()},
      {"--pin-prompt", args.protection.pin_prompt.has_value()},
      {"--align", args.align.has_value()},
      {"--reading", args.reading.has_value()},
      {"--neutral", args.neutral.has_value()},
      {"--score", args.score.has_value()},
      {"--min-gap", args.min_gap.has_value()},
      {"--ffn", args.ffn},
      {"--retention-score", args.retention_score.has_value()},
      {"--age", args.age.has_value()},
      {"--cadence", args.cadence.has_value()},
  };
  for (const auto& [option, is_given] : given) {
    if (is_given) return Refused(option, "contradicts --preset published, which sets it");
  }
  return Status::Ok();
}

CounterCausalOptions ResolveCounterCausal(const CacheArgs& args) {
  CounterCausalOptions options;
  options.reading = args.reading.value_or(options.reading);
  options.neutral = args.neutral.value_or(options.neutral);
  options.align = args.align.value_or(args.preset ? Cc::Align::kPublished : options.align);
  options.score = args.score.value_or(options.score);
  options.min_gap = args.min_gap.value_or(options.min_gap);
  options.ffn = args.ffn;
  return options;
}

RetentionOptions ResolveRetention(const CacheArgs& args) {
  RetentionOptions options;
  options.score = args.retention_score.value_or(options.score);
  options.horizon = args.horizon.value_or(options.horizon);
  options.age = args.age.value_or(args.preset ? Rt::Age::kCode : options.age);
  options.cadence = args.cadence.value_or(args.preset ? Rt::Cadence::kFull : options.cadence);
  return options;
}

Status ResolvePositions(const CacheArgs& args, CacheSetup* setup) {
  setup->engine.positions = args.positions;
  if (!args.position_limit) return Status::Ok();
  if (args.positions == PositionMode::kOriginal) {
    return Refused("--position-limit", "contradicts --positions original, which has no limit");
  }
  const int64_t slots = int64_t{setup->engine.budget} + setup->engine.chunk;
  if (!args.budget_bytes && *args.position_limit < slots) {
    return Refused("--position-limit",
                   StrCat("expected at least J + h = ", slots, ", found ", *args.position_limit));
  }
  setup->engine.position_limit = *args.position_limit;
  return Status::Ok();
}

Status ResolveBudget(const CacheArgs& args, CacheSetup* setup) {
  if (args.budget && args.budget_bytes) {
    return Refused("--budget-bytes", "contradicts --budget, which sets the same");
  }
  EngineOptions& engine = setup->engine;
  engine.budget = args.budget.value_or(engine.budget);
  engine.chunk = args.chunk.value_or(std::max(engine.budget / 4, 1));
  setup->budget_bytes = args.budget_bytes;
  setup->fixed_chunk = args.chunk.has_value();

  const ProtectionOptions& protection = args.protection;
  const int64_t kept = int64_t{protection.sinks.value_or(0)} + protection.recent.value_or(0);
  if (kept >= engine.budget && !args.budget_bytes) {
    return Refused("--budget",
                   StrCat("expected more than the ", kept,
                          " slots that --sinks and --recent protect, found ", engine.budget));
  }
  return Status::Ok();
}

}  // namespace

void AddModelOptions(CLI::App* app, ModelArgs* args) {
  AddParsed(app, "-m,--model", &args->path, AsIs, "GGUF model file (any part of a sharded one)",
            "FILE");
  app->add_flag("!--no-mmap", args->options.mmap, "Read the file into memory, do not map it");
  app->add_flag("!--no-repack", args->options.repack,
                "Do not rearrange weights for the CPU's vector units");
  app->add_flag("--f32-weights", args->options.dequantize_f32, "Hold every weight as f32");
  AddParsed(app, "--device", &args->options.device, AsIs,
            "Where to compute (default cpu); see `kvbound run --list-devices`", "NAME");
  GroupNewOptions(app, "Model");
}

void AddCacheOptions(CLI::App* app, CacheArgs* args) {
  AddStorageOptions(app, args);
  GroupNewOptions(app, "Cache");
  AddPolicyOptions(app, args);
  GroupNewOptions(app, "Policy");
  AddRetentionOptions(app, args);
  GroupNewOptions(app, "Policy retention");
  AddProtectionOptions(app, args);
  GroupNewOptions(app, "Protection (counts inside the budget)");
}

Result<CacheSetup> ResolveCache(const CacheArgs& args) {
  KVBOUND_ASSIGN_OR_RETURN(const PolicyInfo info, FindPolicy(args.policy));
  KVBOUND_RETURN_IF_ERROR(CheckTaken(args, info));
  KVBOUND_RETURN_IF_ERROR(CheckPreset(args));

  CacheSetup setup;
  KVBOUND_RETURN_IF_ERROR(ResolveBudget(args, &setup));
  KVBOUND_RETURN_IF_ERROR(ResolvePositions(args, &setup));
  setup.engine.type_k = args.type_k;
  setup.engine.type_v = args.type_v;
  setup.engine.attention = args.attention;
  setup.engine.n_threads = args.n_threads;
  setup.engine.policy.name = args.policy;
  setup.engine.policy.seed = args.policy_seed;
  setup.engine.policy.granularity = args.granularity;
  if (info.model_score != ModelScore::kNone) {
    setup.engine.policy.counter_causal = ResolveCounterCausal(args);
  }
  if (info.needs_gates) {
    setup.engine.policy.retention = ResolveRetention(args);
    setup.gates = args.gates;
  }
  setup.session.protection = args.protection;
  if (args.preset) setup.session.protection = {.sinks = 0, .recent = 0, .pin_prompt = false};
  return setup;
}

Status Complete(const ModelArgs& model, CacheSetup* setup) {
  if (!setup->gates.empty()) {
    KVBOUND_ASSIGN_OR_RETURN(setup->engine.gates, Gates::Load(setup->gates));
  }
  if (!setup->budget_bytes) return Status::Ok();
  KVBOUND_ASSIGN_OR_RETURN(setup->engine, FitBudget(model.path, model.options, setup->engine,
                                                    *setup->budget_bytes, setup->fixed_chunk));
  return Status::Ok();
}

}  // namespace kvbound::cli
