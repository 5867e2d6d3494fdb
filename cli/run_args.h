#ifndef KVBOUND_CLI_RUN_ARGS_H_
#define KVBOUND_CLI_RUN_ARGS_H_

#include <CLI/App.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/args.h"
#include "cli/sampling_args.h"
#include "kvbound/generate.h"
#include "kvbound/types.h"

namespace kvbound::cli {

// Everything that `run` takes.
struct RunArgs {
  ModelArgs model;
  CacheArgs cache;
  SamplingArgs sampling;

  std::optional<std::string> prompt;
  std::optional<std::string> file;
  std::optional<std::vector<Token>> prompt_ids;
  bool escape = false;
  std::optional<bool> special;  // control tokens of a raw prompt; default true, as llama.cpp
  bool no_bos = false;

  bool chat = false;
  std::string chat_template;
  std::optional<std::string> system_prompt;

  GenerateOptions generate;
  int32_t logits_top = 0;  // 0: not asked for

  std::string trace;
  std::string stats;  // file, or "-" for standard error
  bool no_progress = false;
  bool verbose = false;
  bool quiet = false;
  bool list_devices = false;

  // What the given options amount to (ResolveRun).
  CacheSetup cache_setup;
  SamplerOptions sampler_options;
};

void AddRunOptions(CLI::App* app, RunArgs* args);

// Fills the last part of `args`. InvalidArgument, naming the option, for options that contradict
// each other or would have no effect; `app` knows which were given.
Status ResolveRun(const CLI::App& app, RunArgs* args);

// Whether `path` may be written: false when it is one of the files that are read.
Status CheckOutputPath(const char* option, const std::string& path, const RunArgs& args);

}  // namespace kvbound::cli

#endif  // KVBOUND_CLI_RUN_ARGS_H_
