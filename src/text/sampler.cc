#include "kvbound/sampler.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <limits>
#include <random>

#include "base/check.h"
#include "base/strings.h"
#include "llama.h"
#include "text/llama_log.h"

namespace kvbound {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr int32_t kLongHistory = 8192;  // what -1 means for the last-n options
constexpr int32_t kMirostatTokens = 100;

struct SamplerDeleter {
  void operator()(llama_sampler* sampler) const { llama_sampler_free(sampler); }
};
using SamplerPtr = std::unique_ptr<llama_sampler, SamplerDeleter>;

SamplerPtr MakeChain() {
  llama_sampler_chain_params params = llama_sampler_chain_default_params();
  params.no_perf = true;
  return SamplerPtr(llama_sampler_chain_init(params));
}

int32_t LastN(int32_t option) { return option < 0 ? kLongHistory : option; }

bool HasPenalties(const SamplerOptions& o) {
  return o.repeat_last_n != 0 &&
         (o.repeat_penalty != 1.0f || o.presence_penalty != 0.0f || o.frequency_penalty != 0.0f);
}

bool HasDry(const SamplerOptions& o) {
  return o.dry_multiplier > 0.0f && o.dry_penalty_last_n != 0;
}

// The steps that change logits by what was said so far or asked for.
SamplerPtr MakeAdjustments(const SamplerOptions& o, const llama_vocab* vocab) {
  SamplerPtr chain = MakeChain();
  const int32_t n_vocab = llama_vocab_n_tokens(vocab);
  if (!o.logit_bias.empty()) {
    std::vector<llama_logit_bias> biases;
    for (const auto& [token, bias] : o.logit_bias) biases.push_back({token, bias});
    llama_sampler_chain_add(
        chain.get(),
        llama_sampler_init_logit_bias(n_vocab, static_cast<int32_t>(biases.size()), biases.data()));
  }
  if (HasPenalties(o)) {
    llama_sampler_chain_add(
        chain.get(), llama_sampler_init_penalties(n_vocab, LastN(o.repeat_last_n), o.repeat_penalty,
                                                  o.frequency_penalty, o.presence_penalty));
  }
  if (HasDry(o)) {
    std::vector<const char*> breakers;
    for (const std::string& text : o.dry_sequence_breakers) breakers.push_back(text.c_str());
    llama_sampler_chain_add(
        chain.get(),
        llama_sampler_init_dry(vocab, o.dry_multiplier, o.dry_base, o.dry_allowed_length,
                               LastN(o.dry_penalty_last_n), breakers.data(), breakers.size()));
  }
  return chain;
}

// The steps that narrow the choice and draw.
SamplerPtr MakeDraw(const SamplerOptions& o, int32_t n_vocab, uint32_t seed) {
  SamplerPtr chain = MakeChain();
  const auto add = [&](llama_sampler* step) { llama_sampler_chain_add(chain.get(), step); };
  const auto min_keep = static_cast<size_t>(o.min_keep);
  if (o.mirostat != 0) {
    add(llama_sampler_init_temp(o.temperature));
    add(o.mirostat == 1 ? llama_sampler_init_mirostat(n_vocab, seed, o.mirostat_tau, o.mirostat_eta,
                                                      kMirostatTokens)
                        : llama_sampler_init_mirostat_v2(seed, o.mirostat_tau, o.mirostat_eta));
    return chain;
  }
  add(llama_sampler_init_top_n_sigma(o.top_n_sigma));
  add(llama_sampler_init_top_k(o.top_k));
  add(llama_sampler_init_typical(o.typical_p, min_keep));
  add(llama_sampler_init_top_p(o.top_p, min_keep));
  add(llama_sampler_init_min_p(o.min_p, min_keep));
  add(llama_sampler_init_xtc(o.xtc_probability, o.xtc_threshold, min_keep, seed));
  add(llama_sampler_init_temp_ext(o.temperature, o.dynatemp_range, o.dynatemp_exponent));
  add(llama_sampler_init_dist(seed));
  return chain;
}

uint32_t RandomSeed() {
  std::random_device device;
  return std::uniform_int_distribution<uint32_t>(0, LLAMA_DEFAULT_SEED - 1)(device);
}

}  // namespace

struct Sampler::Impl {
  SamplerOptions options;
  std::shared_ptr<const Tokenizer> tokenizer;
  uint32_t seed = 0;
  bool greedy = false;
  bool adjusts = false;  // `adjustments` does something
  SamplerPtr adjustments, draw, grammar;
  std::vector<llama_token_data> candidates;  // [n_vocab], reused
  llama_token_data_array row = {};

  bool GrammarAllows(Token token) {
    llama_token_data one = {token, 1.0f, 0.0f};
    llama_token_data_array array = {&one, 1, -1, false};
    llama_sampler_apply(grammar.get(), &array);
    return one.logit != -kInfinity;
  }

  Result<Token> Choose(std::span<const float> logits, bool with_grammar);
  void Fill(std::span<const float> logits);
  void DropHopeless();
};

// Copies the logits to the candidates, in the order of the ids.
void Sampler::Impl::Fill(std::span<const float> logits) {
  for (size_t i = 0; i < logits.size(); ++i) {
    candidates[i] = {static_cast<Token>(i), logits[i], 0.0f};
  }
  row = {candidates.data(), candidates.size(), -1, false};
}

// Takes away candidates of probability 0, on which some of llama's steps compute NaN.
void Sampler::Impl::DropHopeless() {
  float best = -kInfinity;
  for (size_t i = 0; i < row.size; ++i) best = std::max(best, row.data[i].logit);
  constexpr float kLogOfSmallestFloat = 87.0f;
  const float least = options.typical_p < 1.0f ? best - kLogOfSmallestFloat : -kInfinity;
  llama_token_data* const end = std::remove_if(
      row.data, row.data + row.size,
      [&](const llama_token_data& c) { return c.logit == -kInfinity || c.logit < least; });
  row.size = static_cast<size_t>(end - row.data);
}

Result<Token> Sampler::Impl::Choose(std::span<const float> logits, bool with_grammar) {
  Fill(logits);
  if (with_grammar) llama_sampler_apply(grammar.get(), &row);
  if (adjusts) llama_sampler_apply(adjustments.get(), &row);
  DropHopeless();
  if (row.size == 0) {
    return Unsupported(StrCat("sampler: expected a token that ",
                              with_grammar ? "the grammar" : "logit_bias", " allows, found none"));
  }
  if (row.size == 1) return row.data[0].id;
  if (!greedy) {
    llama_sampler_apply(draw.get(), &row);
    DCHECK(row.selected >= 0 && static_cast<size_t>(row.selected) < row.size);
    return row.data[row.selected].id;
  }
  const llama_token_data* best = row.data;
  for (size_t i = 1; i < row.size; ++i) {
    const llama_token_data& c = row.data[i];
    if (c.logit > best->logit || (c.logit == best->logit && c.id < best->id)) best = &c;
  }
  return best->id;
}

Sampler::Sampler(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Sampler::Sampler(Sampler&&) noexcept = default;
Sampler& Sampler::operator=(Sampler&&) noexcept = default;
Sampler::~Sampler() = default;

Result<Sampler> Sampler::Create(const SamplerOptions& options,
                                std::shared_ptr<const Tokenizer> tokenizer) {
  KVBOUND_RETURN_IF_ERROR(options.Validate());
  const llama_vocab* vocab = tokenizer->vocab();
  const int32_t n_vocab = tokenizer->VocabSize();
  for (const auto& [token, bias] : options.logit_bias) {
    if (token >= 0 && token < n_vocab) continue;
    return InvalidArgument(
        StrCat("logit_bias: token: expected 0..", n_vocab - 1, ", found ", token));
  }
  auto impl = std::make_unique<Impl>();
  impl->options = options;
  impl->seed = options.seed < 0 ? RandomSeed() : static_cast<uint32_t>(options.seed);
  impl->greedy = options.temperature <= 0.0f;
  impl->adjusts = !options.logit_bias.empty() || HasPenalties(options) || HasDry(options);
  const LlamaErrorCapture errors;
  try {
    impl->adjustments = MakeAdjustments(options, vocab);
    if (!impl->greedy) impl->draw = MakeDraw(options, n_vocab, impl->seed);
    if (!options.grammar.empty()) {
      impl->grammar.reset(llama_sampler_init_grammar(vocab, options.grammar.c_str(), "root"));
      if (impl->grammar == nullptr) {
        return InvalidArgument(StrCat("grammar: llama refuses it: ", errors.TextOr("no reason")));
      }
    }
  } catch (const std::exception& error) {
    return InvalidArgument(StrCat("sampler: llama refuses the options: ", error.what()));
  }
  if (!impl->greedy || impl->adjusts || impl->grammar != nullptr) {
    impl->candidates.resize(static_cast<size_t>(n_vocab));
  }
  impl->tokenizer = std::move(tokenizer);
  return Sampler(std::move(impl));
}

Result<Token> Sampler::Sample(std::span<const float> logits) {
  Impl& s = *impl_;
  if (logits.size() != static_cast<size_t>(s.tokenizer->VocabSize())) {
    return InvalidArgument(
        StrCat("sampler: logits: expected ", s.tokenizer->VocabSize(), ", found ", logits.size()));
  }
  try {
    Token token = 0;
    if (s.greedy && !s.adjusts) {
      // max_element keeps the first of equals: the lowest id.
      token = static_cast<Token>(std::max_element(logits.begin(), logits.end()) - logits.begin());
    } else {
      KVBOUND_ASSIGN_OR_RETURN(token, s.Choose(logits, /*with_grammar=*/false));
    }
    // As in llama.cpp: the grammar sees the whole vocabulary only when it forbids the choice.
    if (s.grammar == nullptr || s.GrammarAllows(token)) return token;
    return s.Choose(logits, /*with_grammar=*/true);
  } catch (const std::exception& error) {
    return Internal(StrCat("sampler: llama failed: ", error.what()));
  }
}

Status Sampler::Accept(Token token, bool is_generated) {
  Impl& s = *impl_;
  if (token < 0 || token >= s.tokenizer->VocabSize()) {
    return InvalidArgument(
        StrCat("sampler: token: expected 0..", s.tokenizer->VocabSize() - 1, ", found ", token));
  }
  try {
    if (s.grammar != nullptr && is_generated) {
      // llama aborts the process when an end token comes too early.
      if (!s.GrammarAllows(token)) {
        return InvalidArgument(StrCat("sampler: expected a token that the grammar allows, found ",
                                      token, " '", Printable(s.tokenizer->Piece(token, true)),
                                      "'"));
      }
      llama_sampler_accept(s.grammar.get(), token);
    }
    if (s.adjusts) llama_sampler_accept(s.adjustments.get(), token);
    if (s.draw != nullptr) llama_sampler_accept(s.draw.get(), token);
  } catch (const std::exception& error) {
    return Internal(StrCat("sampler: llama failed: ", error.what()));
  }
  return Status::Ok();
}

void Sampler::Reset() {
  llama_sampler_reset(impl_->adjustments.get());
  if (impl_->draw != nullptr) llama_sampler_reset(impl_->draw.get());
  if (impl_->grammar != nullptr) llama_sampler_reset(impl_->grammar.get());
}

Sampler Sampler::Clone() const {
  const auto clone = [](const SamplerPtr& from) {
    return SamplerPtr(from == nullptr ? nullptr : llama_sampler_clone(from.get()));
  };
  auto impl = std::make_unique<Impl>();
  impl->options = impl_->options;
  impl->tokenizer = impl_->tokenizer;
  impl->seed = impl_->seed;
  impl->greedy = impl_->greedy;
  impl->adjusts = impl_->adjusts;
  impl->adjustments = clone(impl_->adjustments);
  impl->draw = clone(impl_->draw);
  impl->grammar = clone(impl_->grammar);
  impl->candidates.resize(impl_->candidates.size());
  return Sampler(std::move(impl));
}

uint32_t Sampler::seed() const { return impl_->seed; }

}  // namespace kvbound
