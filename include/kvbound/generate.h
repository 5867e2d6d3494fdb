#ifndef KVBOUND_GENERATE_H_
#define KVBOUND_GENERATE_H_

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "kvbound/sampler.h"
#include "kvbound/session.h"
#include "kvbound/status.h"

namespace kvbound {

struct GenerateOptions {
  int64_t n_predict = -1;         // tokens at most; -1: until an end token
  bool ignore_eos = false;        // an end token is fed like any other
  std::vector<std::string> stop;  // text that ends the generation and is not printed
};

enum class FinishReason { kStopToken, kStopString, kLength, kCancelled };

struct GenerateResult {
  FinishReason reason = FinishReason::kLength;
  int64_t n_tokens = 0;         // sampled, an end token included
  std::string stopping_string;  // the one that ended it
};

// Receives valid UTF-8, never part of a character, never text that a stop string may still
// claim. Called once for every token, with an empty chunk when there is nothing to show yet, and
// once more at the end if text was held back. Returns false to stop: text held back is dropped.
using TextCallback = std::function<bool(std::string_view chunk)>;

// Streams a continuation of what `session` has been fed: samples from its logits, feeds, repeats.
// The last sampled token is not fed; `last_token` (if not null) receives it, or -1 if none was
// sampled, so that the next Feed of a conversation can begin with it.
// REQUIRES: the session has logits, i.e. a prompt was fed.
Result<GenerateResult> Generate(Engine& engine, Session& session, Sampler& sampler,
                                const GenerateOptions& options, const TextCallback& on_text,
                                Token* last_token = nullptr);

}  // namespace kvbound

#endif  // KVBOUND_GENERATE_H_
