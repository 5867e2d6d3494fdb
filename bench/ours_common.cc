#include "ours_common.h"

#include <fstream>
#include <sstream>

#include "peer_common.h"

namespace kvbound::bench {

void Must(const Status& status) {
  if (!status.ok()) Fail(status.ToString());
}

std::shared_ptr<const Model> LoadModel(const std::string& path) {
  return Must(Model::Load(path, ModelOptions{}));
}

EngineOptions EngineFor(const std::string& policy, int budget, int chunk, int n_threads,
                        int n_seq) {
  EngineOptions options;
  options.policy.name = policy;
  options.budget = budget;
  options.chunk = chunk;
  options.n_threads = n_threads;
  options.n_seq = n_seq;
  return options;
}

std::vector<Token> TextTokens(const Model& model, const std::string& path, int64_t n) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream text;
  text << in.rdbuf();
  if (!in || text.str().empty()) Fail(path + ": cannot be read, or is empty");
  const std::vector<Token> once = Must(model.tokenizer().Encode(text.str()));
  std::vector<Token> tokens;
  while (static_cast<int64_t>(tokens.size()) < n) {
    tokens.insert(tokens.end(), once.begin(), once.end());
  }
  tokens.resize(n);
  return tokens;
}

std::string ModelPath(const Arguments& arguments) {
  return arguments.Text("model", KVBOUND_SOURCE_DIR "/models/smollm2-135m-instruct-q4_1.gguf");
}

std::string TextPath(const Arguments& arguments) {
  return arguments.Text("text", KVBOUND_SOURCE_DIR "/examples/dracula.txt");
}

std::vector<std::string> SplitList(const std::string& list) {
  std::vector<std::string> parts;
  std::istringstream in(list);
  for (std::string part; std::getline(in, part, ',');) parts.push_back(part);
  return parts;
}

Ours::Ours(std::shared_ptr<const Model> model, const EngineOptions& options)
    : engine_(Must(Engine::Create(std::move(model), options))), next_(options.n_seq, 0) {
  for (int s = 0; s < options.n_seq; ++s) {
    sessions_.push_back(Must(engine_->NewSession(SessionOptions{})));
    batch_.push_back(sessions_.back().get());
  }
}

void Ours::Clear() {
  for (auto& session : sessions_) Must(session->Reset());
}

void Ours::Feed(std::span<const Token> tokens, int sequence) {
  Must(sessions_[sequence]->Feed(tokens));
  next_[sequence] = ArgMax(sessions_[sequence]->logits());
}

void Ours::Step() {
  Must(engine_->Step(batch_, next_));
  for (size_t s = 0; s < next_.size(); ++s) next_[s] = ArgMax(sessions_[s]->logits());
}

double Ours::scoring_seconds() const {
  double sum = 0;
  for (const auto& session : sessions_) sum += session->stats().scoring_seconds;
  return sum;
}

std::string Ours::name() const {
  const EngineOptions& options = engine_->options();
  return "kvbound, " + options.policy.name + ", J = " + std::to_string(options.budget) +
         ", h = " + std::to_string(options.chunk);
}

double BytesPerToken(const ModelInfo& info, double slots) {
  constexpr double kRowTypeBytes = 2;
  const double row = 2.0 * info.n_layer * info.n_kv_head * info.head_dim * kRowTypeBytes;
  return static_cast<double>(info.weight_bytes) + slots * row;
}

}  // namespace kvbound::bench
