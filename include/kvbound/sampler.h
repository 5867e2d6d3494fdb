#ifndef KVBOUND_SAMPLER_H_
#define KVBOUND_SAMPLER_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kvbound/status.h"
#include "kvbound/tokenizer.h"
#include "kvbound/types.h"

namespace kvbound {

// How the next token is drawn. Names, meanings and defaults are llama.cpp's; fields act in the
// order of llama.cpp's default chain: logit bias, grammar, penalties, DRY, top-n-sigma, top-k,
// typical, top-p, min-p, XTC, temperature.
struct SamplerOptions {
  // Divides the logits. <= 0: greedy, the highest logit wins and ties go to the lowest id; then
  // only logit bias, grammar, penalties and DRY act.
  float temperature = 0.8f;
  // Half width of the dynamic temperature range; 0 = off. Between temperature - range and
  // temperature + range by the entropy of the distribution.
  float dynatemp_range = 0.0f;
  // How entropy maps to the dynamic temperature.
  float dynatemp_exponent = 1.0f;
  // Only the k highest logits; <= 0 = off.
  int32_t top_k = 40;
  // The smallest set whose probabilities sum to this; 1 = off.
  float top_p = 0.95f;
  // Drops tokens below this share of the highest probability; 0 = off.
  float min_p = 0.05f;
  // Locally typical sampling; 1 = off.
  float typical_p = 1.0f;
  // Keeps logits within n standard deviations of the highest; <= 0 = off.
  float top_n_sigma = -1.0f;
  // Chance that XTC drops all but the least of the likely tokens; 0 = off.
  float xtc_probability = 0.0f;
  // Which tokens XTC calls likely; above 0.5 = off.
  float xtc_threshold = 0.1f;
  // Each truncating step leaves at least this many tokens.
  int32_t min_keep = 0;

  // How many of the last tokens the penalties look at; 0 = off, -1 = the last 8192.
  int32_t repeat_last_n = 64;
  // Divides the logits of seen tokens (multiplies negative ones); 1 = off.
  float repeat_penalty = 1.0f;
  // Subtracted once from the logit of each seen token; 0 = off.
  float presence_penalty = 0.0f;
  // Subtracted from the logit of each seen token as often as it was seen; 0 = off.
  float frequency_penalty = 0.0f;

  // Strength of DRY ("don't repeat yourself"); 0 = off.
  float dry_multiplier = 0.0f;
  // The penalty is multiplier * base ^ (length of the repetition - dry_allowed_length).
  float dry_base = 1.75f;
  // Repetitions up to this length cost nothing.
  int32_t dry_allowed_length = 2;
  // How many of the last tokens DRY looks at; 0 = off, -1 = the last 8192.
  int32_t dry_penalty_last_n = -1;
  // Repetitions end at these strings.
  std::vector<std::string> dry_sequence_breakers = {"\n", ":", "\"", "*"};

  // 0 = off, 1 or 2: Mirostat in place of every truncating step.
  int32_t mirostat = 0;
  // Mirostat's target surprise, in bits.
  float mirostat_tau = 5.0f;
  // Mirostat's learning rate.
  float mirostat_eta = 0.1f;

  // Start of the random sequence; -1 = a random start (Sampler::seed() reports which).
  int64_t seed = -1;
  // Added to the logits of these tokens; -infinity forbids one.
  std::vector<std::pair<Token, float>> logit_bias;
  // GBNF grammar that the text must follow, with a rule named `root`; empty = none.
  std::string grammar;

  // kInvalidArgument, naming the field, what is allowed and what was found.
  Status Validate() const;
};

// Draws the tokens of one sequence. Not thread-safe; movable; Clone() to copy.
class Sampler {
 public:
  // Checks the options and the grammar. kInvalidArgument for bad values, a token outside the
  // vocabulary or a grammar that does not parse.
  static Result<Sampler> Create(const SamplerOptions& options,
                                std::shared_ptr<const Tokenizer> tokenizer);
  Sampler(Sampler&&) noexcept;
  Sampler& operator=(Sampler&&) noexcept;
  ~Sampler();

  // The next token. `logits` is [n_vocab], finite, and only read. Does not Accept the token.
  // kInvalidArgument for a row of another length; kUnsupported when nothing is left to draw (a
  // grammar or bias forbids every token).
  Result<Token> Sample(std::span<const float> logits);

  // Tells the penalties, DRY and the grammar that `token` was generated. `is_generated` false for
  // a token of the prompt: penalties and DRY see it, the grammar does not.
  // kInvalidArgument when the grammar forbids the token; the sampler must not be used after that.
  Status Accept(Token token, bool is_generated = true);

  // Forgets every accepted token and starts the random sequence again.
  void Reset();

  // An equal sampler: same state, same random sequence from here on.
  Sampler Clone() const;

  // The seed in use: options.seed, or the one drawn for -1.
  uint32_t seed() const;

 private:
  struct Impl;
  explicit Sampler(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvbound

#endif  // KVBOUND_SAMPLER_H_
