#ifndef KVBOUND_CLI_RUNNER_H_
#define KVBOUND_CLI_RUNNER_H_

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "cli/report.h"
#include "cli/run_args.h"
#include "cli/terminal.h"
#include "cli/trace.h"
#include "kvbound/generate.h"
#include "kvbound/sampler.h"
#include "kvbound/session.h"

namespace kvbound::cli {

// One model, one session and everything that watches it: what a prompt and a chat have in common.
class Runner {
 public:
  // Opens the files to write, then loads. `args` must outlive the runner.
  static Result<std::unique_ptr<Runner>> Create(const RunArgs& args);

  const Model& model() const { return engine_->model(); }
  int32_t budget() const { return engine_->options().budget; }
  Session& session() { return *session_; }
  Sampler& sampler() { return *sampler_; }
  TextOutput& output() { return output_; }

  // Reads tokens with a progress bar. Cancelled when interrupted.
  Status Feed(std::span<const Token> tokens);

  // Streams a continuation to standard output. `text` (if not null) receives it too.
  Result<GenerateResult> Generate(std::string* text, Token* last_token);

  // Clears the cache for another conversation.
  Status Reset();

  // The table on standard error.
  void PrintStats() const;

  // Completes the trace and the statistics file, prints the table; the first failure to write.
  Status Finish();

 private:
  explicit Runner(const RunArgs& args) : args_(args) {}
  Status OpenFiles();
  Status Load();
  void ReportThreads();
  // Says once each that the cache was rebased, and that the model sees positions that it was not
  // trained on.
  void ReportPositions();

  const RunArgs& args_;
  std::unique_ptr<Trace> trace_;
  std::ofstream stats_file_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Session> session_;
  std::optional<Sampler> sampler_;
  TextOutput output_;
  RunCounters counters_;
  bool said_rebased_ = false;
  bool warned_past_context_ = false;
};

}  // namespace kvbound::cli

#endif  // KVBOUND_CLI_RUNNER_H_
