#ifndef KVBOUND_CLI_SAMPLING_ARGS_H_
#define KVBOUND_CLI_SAMPLING_ARGS_H_

#include <CLI/App.hpp>
#include <string>

#include "kvbound/sampler.h"
#include "kvbound/status.h"

namespace kvbound::cli {

struct SamplingArgs {
  SamplerOptions options;
  std::string grammar_file;
  std::vector<std::string> dry_breakers;
};

// Names, meanings and defaults are llama.cpp's.
void AddSamplingOptions(CLI::App* app, SamplingArgs* args);

// Reads the grammar file and refuses, by name, options that would have no effect beside the others
// (`app` knows which were given). `unescape`: backslashes in DRY's sequence breakers.
Result<SamplerOptions> ResolveSampling(const CLI::App& app, const SamplingArgs& args,
                                       bool unescape);

}  // namespace kvbound::cli

#endif  // KVBOUND_CLI_SAMPLING_ARGS_H_
