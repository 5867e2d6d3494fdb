#ifndef KVBOUND_EVAL_FIDELITY_H_
#define KVBOUND_EVAL_FIDELITY_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "eval/contender.h"
#include "kvbound/model.h"
#include "kvbound/status.h"
#include "kvbound/types.h"

namespace kvbound::eval {

struct FidelityOptions {
  int32_t chunk = 64;
  int32_t skip = 512;     // the tokens at positions up to this one are read but not measured
  int32_t n_threads = 0;  // 0: as EngineOptions
};

// Means over the measured tokens of one text, in nats per token.
struct TextFidelity {
  double kl = 0;        // KL(uncut || bounded) of the distributions of each token
  double nll = 0;       // of the text's own tokens, bounded
  double full_nll = 0;  // the same, uncut
  double top1 = 0;      // share of tokens where both have the same most probable token
  int64_t n_token = 0;
};

// One policy over all texts. The methods are means over texts, each text counting once.
struct FidelityResult {
  std::string label;
  int32_t tokens_kept = 0;  // occupied slots per set after the last text's last token
  int64_t n_cut = 0;        // of all texts
  double seconds = 0;       // reading the texts, scoring included, without the metrics
  std::vector<TextFidelity> texts;

  double kl() const;
  double nll() const;
  double full_nll() const;
  double delta_nll() const;  // nll() - full_nll()
  double top1() const;
};

// Tokens read so far by all engines, and in all; false stops the measurement.
using FidelityProgress = std::function<bool(int64_t done, int64_t total)>;

// Reads each text by an uncut cache and by every policy's in lockstep, in chunks, and compares
// their distributions of each token after the first skip + 1. The uncut pass is shared by all
// policies. Results are in the order of `policies`. Deterministic for a given number of threads.
// InvalidArgument: no text or policy, a text of fewer than skip + 2 tokens, a chunk below 1; else
// the errors of Engine::Create (a budget too small for its protection, ...) with the policy's
// label. Cancelled by `progress`.
Result<std::vector<FidelityResult>> MeasureFidelity(std::shared_ptr<const Model> model,
                                                    const std::vector<std::vector<Token>>& texts,
                                                    const std::vector<FidelityPolicy>& policies,
                                                    const FidelityOptions& options,
                                                    const FidelityProgress& progress = nullptr);

}  // namespace kvbound::eval

#endif  // KVBOUND_EVAL_FIDELITY_H_
