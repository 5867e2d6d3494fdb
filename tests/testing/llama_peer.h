#ifndef KVBOUND_TESTING_LLAMA_PEER_H_
#define KVBOUND_TESTING_LLAMA_PEER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kvbound/options.h"
#include "kvbound/types.h"

struct llama_context_params;

namespace kvbound::testing {

// The forward pass of the llama library with its full cache. What fails throws
// std::runtime_error.
class LlamaPeer {
 public:
  // K and V as `type`, plain attention, room for n_ctx tokens; `adjust` may change the rest.
  LlamaPeer(const std::string& path, int32_t n_ctx, KvType type, int32_t n_threads,
            const std::function<void(llama_context_params&)>& adjust = nullptr);
  ~LlamaPeer();

  // Appends tokens in one pass; returns the logits after the last.
  std::vector<float> Feed(std::span<const Token> tokens);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvbound::testing

#endif  // KVBOUND_TESTING_LLAMA_PEER_H_
