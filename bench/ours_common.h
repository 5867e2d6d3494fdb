#ifndef KVBOUND_BENCH_OURS_COMMON_H_
#define KVBOUND_BENCH_OURS_COMMON_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kvbound/model.h"
#include "kvbound/session.h"
#include "report_common.h"

namespace kvbound::bench {

// The value, or the end of the program with the error.
template <typename T>
T Must(Result<T> result) {
  if (!result.ok()) Fail(result.status().ToString());
  return std::move(result).value();
}
void Must(const Status& status);

std::shared_ptr<const Model> LoadModel(const std::string& path);

// What every benchmark that runs the engine takes; the defaults are those of the acceptance tables.
EngineOptions EngineFor(const std::string& policy, int budget, int chunk, int n_threads,
                        int n_seq = 1);

// The first `n` tokens of the file's text, repeated as often as needed.
std::vector<Token> TextTokens(const Model& model, const std::string& path, int64_t n);

// The path given, or the model and the text that come with the source tree.
std::string ModelPath(const Arguments& arguments);
std::string TextPath(const Arguments& arguments);

// "a,b,c" in parts.
std::vector<std::string> SplitList(const std::string& list);

// An engine and its sessions behind the same calls as Peer.
class Ours {
 public:
  Ours(std::shared_ptr<const Model> model, const EngineOptions& options);

  void Clear();
  void Feed(std::span<const Token> tokens, int sequence = 0);
  // Feeds each session its last arg max, in one batch.
  void Step();

  Engine& engine() { return *engine_; }
  Session& session(int sequence = 0) { return *sessions_[sequence]; }
  int n_threads() const { return engine_->options().n_threads; }
  double scoring_seconds() const;  // of all sessions
  std::string name() const;        // "kvbound, POLICY, J = 512, h = 128"

 private:
  std::unique_ptr<Engine> engine_;
  std::vector<std::unique_ptr<Session>> sessions_;
  std::vector<Session*> batch_;
  std::vector<Token> next_;
};

// Bytes that one decoded token reads: all weights once, and the f16 rows of `slots` slots.
double BytesPerToken(const ModelInfo& info, double slots);

}  // namespace kvbound::bench

#endif  // KVBOUND_BENCH_OURS_COMMON_H_
