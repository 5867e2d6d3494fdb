#include "testing/tiny_engine.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <utility>

#include "testing/random_gates.h"

namespace kvbound::testing {
namespace {

template <typename T>
T ValueOf(Result<T> result) {
  if (!result.ok()) throw std::runtime_error(result.status().ToString());
  return std::move(result).value();
}

template <typename A, typename B>
double Difference(const A& a, const B& b) {
  if (a.size() != b.size()) return std::numeric_limits<double>::infinity();
  double largest = 0.0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double d = std::fabs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
    if (std::isnan(d)) return std::numeric_limits<double>::infinity();
    largest = std::max(largest, d);
  }
  return largest;
}

}  // namespace

std::shared_ptr<const Model> LoadTiny(const TinyModel& model, const ModelOptions& options) {
  return ValueOf(Model::Load(model.Write(), options));
}

EngineOptions ExactEngine(const std::string& policy, int32_t budget, int32_t chunk) {
  EngineOptions options;
  options.policy.name = policy;
  options.budget = budget;
  options.chunk = chunk;
  options.type_k = options.type_v = KvType::kF32;
  options.n_threads = 1;
  return options;
}

std::unique_ptr<Engine> MakeEngine(std::shared_ptr<const Model> model,
                                   const EngineOptions& options) {
  EngineOptions with_gates = options;
  if (!options.gates) with_gates.gates = MakeRandomGates(*model);
  return ValueOf(Engine::Create(std::move(model), with_gates));
}

std::unique_ptr<Session> MakeSession(Engine& engine, const SessionOptions& options) {
  return ValueOf(engine.NewSession(options));
}

SessionOptions Protected(int32_t sinks, int32_t recent) {
  SessionOptions options;
  options.protection.sinks = sinks;
  options.protection.recent = recent;
  return options;
}

std::vector<Token> TestTokens(int32_t n, uint64_t seed) {
  std::vector<Token> tokens;
  uint64_t x = seed * 0x9e3779b97f4a7c15u;
  for (int32_t i = 0; i < n; ++i) {
    x = x * 6364136223846793005u + 1442695040888963407u;
    tokens.push_back(static_cast<Token>((x >> 33) % 286));
  }
  return tokens;
}

Status StepOne(Engine& engine, Session& session, Token token) {
  Session* const sessions[] = {&session};
  const Token tokens[] = {token};
  return engine.Step(sessions, tokens);
}

std::vector<float> CopyLogits(const Session& session) {
  return {session.logits().begin(), session.logits().end()};
}

double LargestDifference(const std::vector<float>& a, const std::vector<float>& b) {
  return Difference(a, b);
}
double LargestDifference(const std::vector<float>& a, const std::vector<double>& b) {
  return Difference(a, b);
}

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return !a.empty() && a.size() == b.size() &&
         std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

std::vector<int32_t> SortedPositions(const Session& session, int32_t set) {
  std::vector<int32_t> sorted;
  for (const Position p : session.positions(set)) sorted.push_back(p.value);
  std::ranges::sort(sorted);
  return sorted;
}

CutLog::CutLog(Session& session) {
  session.SetCutObserver([this](const CutEvent& event) {
    Entry entry{event.tokens_seen, event.n_before, {}};
    for (int32_t set = 0; set < event.n_set; ++set) {
      std::vector<int32_t>& kept = entry.kept.emplace_back();
      for (int32_t slot = 0; slot < event.n_before; ++slot) {
        const int32_t i = set * event.n_before + slot;
        const int32_t position = event.positions[i].value;
        if (event.kept[i]) {
          kept.push_back(position);
        } else {
          gone_[{set, position}] = event.tokens_seen;
        }
      }
      std::ranges::sort(kept);
    }
    entries_.push_back(std::move(entry));
  });
}

bool CutLog::Saw(int32_t set, int32_t query, int32_t key) const {
  if (key > query) return false;
  const auto gone = gone_.find({set, key});
  return gone == gone_.end() || query < gone->second;
}

}  // namespace kvbound::testing
