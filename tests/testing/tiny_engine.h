#ifndef KVBOUND_TESTING_TINY_ENGINE_H_
#define KVBOUND_TESTING_TINY_ENGINE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "kvbound/model.h"
#include "kvbound/session.h"
#include "testing/tiny_model.h"

namespace kvbound::testing {

// Engines over tiny models. What a test does not expect to fail throws std::runtime_error with the
// status.

std::shared_ptr<const Model> LoadTiny(const TinyModel& model, const ModelOptions& options = {});

// f32 K and V, one thread, one sequence.
EngineOptions ExactEngine(const std::string& policy, int32_t budget, int32_t chunk);

// A policy that needs gates gets MakeRandomGates of the model, unless options.gates is set.
std::unique_ptr<Engine> MakeEngine(std::shared_ptr<const Model> model,
                                   const EngineOptions& options);

// `options` with protection left to the policy unless set.
std::unique_ptr<Session> MakeSession(Engine& engine, const SessionOptions& options = {});

// Exactly these protected slots.
SessionOptions Protected(int32_t sinks, int32_t recent);

// `n` ids of a tiny vocabulary (all kinds), the same for equal seeds.
std::vector<Token> TestTokens(int32_t n, uint64_t seed = 1);

Status StepOne(Engine& engine, Session& session, Token token);

std::vector<float> CopyLogits(const Session& session);

// Largest difference of two rows; infinite if their lengths differ or one holds NaN.
double LargestDifference(const std::vector<float>& a, const std::vector<float>& b);
double LargestDifference(const std::vector<float>& a, const std::vector<double>& b);

// Whether two rows have the same bits.
bool SameBits(const std::vector<float>& a, const std::vector<float>& b);

// The positions of a set, ascending.
std::vector<int32_t> SortedPositions(const Session& session, int32_t set = 0);

// Listens to the cuts of a session and knows from them when each position left each set. The
// session's observer refers to this object.
class CutLog {
 public:
  explicit CutLog(Session& session);
  CutLog(const CutLog&) = delete;
  CutLog& operator=(const CutLog&) = delete;

  struct Entry {
    int64_t tokens_seen = 0;
    int32_t n_before = 0;
    std::vector<std::vector<int32_t>> kept;  // [n_set, budget], positions ascending
    bool operator==(const Entry&) const = default;
  };
  const std::vector<Entry>& entries() const { return entries_; }

  // Whether the token at position `query` saw the key of position `key` when it was fed.
  bool Saw(int32_t set, int32_t query, int32_t key) const;

 private:
  std::vector<Entry> entries_;
  std::map<std::pair<int32_t, int32_t>, int64_t> gone_;  // (set, position): tokens seen at its cut
};

}  // namespace kvbound::testing

#endif  // KVBOUND_TESTING_TINY_ENGINE_H_
