#include "cli/report.h"

#include <array>
#include <cstdio>
#include <cstring>
#include <span>
#include <string_view>

#include "cli/values.h"
#include "kvbound/version.h"
#include "src/base/strings.h"

namespace kvbound::cli {
namespace {

using Json = nlohmann::ordered_json;

uint64_t KvBytes(const MemoryPlan& plan) {
  return plan.part_bytes("K") + plan.part_bytes("V") + plan.part_bytes("hidden rows");
}

// A fingerprint that two runs share if and only if their last logits are the same bits (FNV-1a).
std::string LogitsHash(std::span<const float> logits) {
  uint32_t hash = 2166136261u;
  for (const float logit : logits) {
    std::array<unsigned char, sizeof(float)> bytes;
    std::memcpy(bytes.data(), &logit, sizeof(logit));
    for (const unsigned char byte : bytes) hash = (hash ^ byte) * 16777619u;
  }
  char text[16];
  std::snprintf(text, sizeof(text), "%08x", hash);
  return text;
}

std::string Fixed(const char* format, double value) {
  char text[64];
  std::snprintf(text, sizeof(text), format, value);
  return text;
}

double Rate(double n, double seconds) { return seconds > 0 ? n / seconds : 0; }

Json PolicyRecord(const PolicyOptions& options, const Session& session) {
  const PolicyInfo& info = session.policy();
  Json record = {{"name", info.name},
                 {"paper", info.paper},
                 {"granularity", GranularityName(info.granularity)}};
  if (options.seed) record["seed"] = *options.seed;
  if (options.counter_causal) {
    const CounterCausalOptions& cc = *options.counter_causal;
    constexpr std::array<const char*, 4> kReadings = {"A", "B", "C", "D"};
    constexpr std::array<const char*, 2> kNeutrals = {"mean", "bos"};
    constexpr std::array<const char*, 2> kAligns = {"aligned", "published"};
    constexpr std::array<const char*, 4> kScores = {"logit", "centred", "logprob", "pmi"};
    record["reading"] = kReadings[static_cast<size_t>(cc.reading)];
    record["neutral"] = kNeutrals[static_cast<size_t>(cc.neutral)];
    record["align"] = kAligns[static_cast<size_t>(cc.align)];
    record["score"] = kScores[static_cast<size_t>(cc.score)];
    record["ffn"] = cc.ffn;
    record["min_gap"] = cc.min_gap;
  }
  return record;
}

std::string KvText(const Engine& engine) {
  const uint64_t allocated = KvBytes(engine.Allocated());
  const uint64_t planned = KvBytes(engine.plan());
  return StrCat(HumanBytes(allocated), " allocated, ",
                allocated == planned ? "as planned" : StrCat(HumanBytes(planned), " planned"), " (",
                KvTypeName(engine.options().type_k), "/", KvTypeName(engine.options().type_v), ")");
}

}  // namespace

std::string FinishName(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStopToken:
      return "stop token";
    case FinishReason::kStopString:
      return "stop string";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kCancelled:
      return "cancelled";
  }
  return "unknown";
}

std::string PositionsText(PositionMode mode, int32_t limit) {
  if (mode == PositionMode::kOriginal) return "original, without a limit";
  return StrCat("auto, below ", Grouped(limit));
}

std::string Dump(const Json& json) {
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

Json RunRecord(const Engine& engine, const Session& session) {
  const ModelInfo& model = engine.model().info();
  const EngineOptions& options = engine.options();
  const Protection protection = session.protection();
  return {{"kvbound", kVersion},
          {"model",
           {{"path", model.path},
            {"name", model.name},
            {"architecture", model.architecture},
            {"n_layer", model.n_layer},
            {"n_head", model.n_head},
            {"n_kv_head", model.n_kv_head},
            {"head_dim", model.head_dim},
            {"n_vocab", model.n_vocab},
            {"n_ctx_train", model.n_ctx_train}}},
          {"policy", PolicyRecord(options.policy, session)},
          {"budget", options.budget},
          {"chunk", options.chunk},
          {"protection",
           {{"sinks", protection.sinks},
            {"recent", protection.recent},
            {"pin_prompt", protection.pin_prompt}}},
          {"type_k", KvTypeName(options.type_k)},
          {"type_v", KvTypeName(options.type_v)},
          {"attention", AttentionPathName(options.attention)},
          {"positions", PositionModeName(options.positions)},
          {"position_limit", options.position_limit},
          {"threads", options.n_threads},
          {"n_set", session.n_set()}};
}

Json StatsRecord(const Engine& engine, const Session& session, const RunCounters& counters) {
  const SessionStats& stats = session.stats();
  const double total_seconds = counters.prompt_seconds + counters.generate_seconds;
  return {{"tokens_seen", stats.tokens_seen},
          {"prompt_tokens", stats.prompt_tokens},
          {"decoded_tokens", stats.decoded_tokens},
          {"generated_tokens", counters.n_generated},
          {"finish", FinishName(counters.finish)},
          {"tokens_kept", stats.tokens_kept},
          {"tokens_evicted", stats.tokens_evicted},
          {"cuts", stats.cuts},
          {"rebases", stats.rebases},
          {"peak_slots", stats.peak_slots},
          {"max_slots", engine.options().budget + engine.options().chunk},
          {"kv_bytes", KvBytes(engine.Allocated())},
          {"kv_bytes_planned", KvBytes(engine.plan())},
          {"total_bytes", engine.Allocated().total_bytes()},
          {"total_bytes_planned", engine.plan().total_bytes()},
          {"total_without_weights_bytes", engine.Allocated().total_without_weights_bytes()},
          {"prompt_seconds", counters.prompt_seconds},
          {"prompt_tokens_per_second", Rate(stats.prompt_tokens, counters.prompt_seconds)},
          {"generate_seconds", counters.generate_seconds},
          {"generated_tokens_per_second", Rate(counters.n_generated, counters.generate_seconds)},
          {"scoring_seconds", stats.scoring_seconds},
          {"scoring_share", Rate(stats.scoring_seconds, total_seconds)},
          {"threads_reason", counters.threads_reason},
          {"weight_buffers", engine.model().info().weight_buffers},
          {"seed", counters.seed},
          {"last_logits_hash", LogitsHash(session.logits())},
          {"run", RunRecord(engine, session)}};
}

Table StatsTable(const Engine& engine, const Session& session, const RunCounters& counters) {
  const SessionStats& stats = session.stats();
  const EngineOptions& options = engine.options();
  const double total_seconds = counters.prompt_seconds + counters.generate_seconds;
  return {
      {"policy",
       StrCat(session.policy().name, ", budget ", options.budget, ", chunk ", options.chunk)},
      {"tokens seen", StrCat(Grouped(stats.tokens_seen), " (prompt ", Grouped(stats.prompt_tokens),
                             " + generated ", Grouped(stats.decoded_tokens), ")")},
      {"kept", Grouped(stats.tokens_kept)},
      {"evicted", StrCat(Grouped(stats.tokens_evicted), " in ", Grouped(stats.cuts), " cuts")},
      {"peak slots", StrCat(Grouped(stats.peak_slots), " of at most ",
                            Grouped(int64_t{options.budget} + options.chunk))},
      {"positions", StrCat(PositionsText(options.positions, options.position_limit), ", ",
                           Grouped(stats.rebases), stats.rebases == 1 ? " rebase" : " rebases")},
      {"KV memory", KvText(engine)},
      {"all memory", StrCat(HumanBytes(engine.Allocated().total_without_weights_bytes()),
                            " beside the weights (", engine.model().info().weight_buffers, ")")},
      {"prompt",
       StrCat(Fixed("%.1f tokens/s (", Rate(stats.prompt_tokens, counters.prompt_seconds)),
              Fixed("%.2f s)", counters.prompt_seconds))},
      {"generation",
       StrCat(Fixed("%.1f tokens/s (", Rate(counters.n_generated, counters.generate_seconds)),
              Fixed("%.2f s), ", counters.generate_seconds), Grouped(counters.n_generated),
              " sampled, ended by ", FinishName(counters.finish))},
      {"scoring",
       StrCat(Fixed("%.3f s, ", stats.scoring_seconds),
              Fixed("%.1f %% of the time", 100 * Rate(stats.scoring_seconds, total_seconds)))},
      {"threads", StrCat(options.n_threads, " (", counters.threads_reason, "), ",
                         AttentionPathName(options.attention), " attention")},
      {"seed", StrCat(counters.seed, ", last logits ", LogitsHash(session.logits()))},
  };
}

}  // namespace kvbound::cli
