#include "cli/runner.h"

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <utility>

#include "cli/logging.h"
#include "cli/signals.h"
#include "src/base/strings.h"
#include "src/base/threads.h"

namespace kvbound::cli {
namespace {

// Adds the time between construction and destruction to `total`.
class Stopwatch {
 public:
  explicit Stopwatch(double* total) : total_(total), start_(std::chrono::steady_clock::now()) {}
  ~Stopwatch() {
    *total_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  double* total_;
  std::chrono::steady_clock::time_point start_;
};

}  // namespace

Result<std::unique_ptr<Runner>> Runner::Create(const RunArgs& args) {
  std::unique_ptr<Runner> runner(new Runner(args));
  KVBOUND_RETURN_IF_ERROR(runner->OpenFiles());
  runner->ReportThreads();
  KVBOUND_RETURN_IF_ERROR(runner->Load());
  return runner;
}

Status Runner::OpenFiles() {
  if (!args_.trace.empty()) {
    KVBOUND_RETURN_IF_ERROR(CheckOutputPath("--trace", args_.trace, args_));
    KVBOUND_ASSIGN_OR_RETURN(trace_, Trace::Open(args_.trace));
  }
  if (!args_.stats.empty() && args_.stats != "-") {
    KVBOUND_RETURN_IF_ERROR(CheckOutputPath("--stats", args_.stats, args_));
    errno = 0;
    stats_file_.open(args_.stats, std::ios::binary | std::ios::trunc);
    if (!stats_file_) {
      return IoError(StrCat("--stats: ", Printable(args_.stats),
                            ": cannot be written: ", std::strerror(errno)));
    }
  }
  return Status::Ok();
}

void Runner::ReportThreads() {
  const ThreadLimit limit = DefaultThreads();
  const int32_t asked = args_.cache.n_threads;
  counters_.threads_reason = asked == 0 ? limit.reason : "as --threads asks";
  if (asked > limit.n) {
    Say(LogLevel::kWarning, StrCat("--threads ", asked, " is more than the ", limit.n,
                                   " that are useful here: ", limit.reason));
  }
  Say(LogLevel::kInfo,
      StrCat("threads: ", asked == 0 ? limit.n : asked, " (", counters_.threads_reason, ")"));
}

Status Runner::Load() {
  CacheSetup setup = args_.cache_setup;
  KVBOUND_RETURN_IF_ERROR(Complete(args_.model, &setup));
  KVBOUND_ASSIGN_OR_RETURN(std::shared_ptr<const Model> model,
                           Model::Load(args_.model.path, args_.model.options));
  KVBOUND_ASSIGN_OR_RETURN(sampler_,
                           Sampler::Create(args_.sampler_options, model->shared_tokenizer()));
  KVBOUND_ASSIGN_OR_RETURN(engine_, Engine::Create(model, setup.engine));
  // In a chat the system message is pinned by its span, not the first message as a whole.
  if (args_.chat) setup.session.protection.pin_prompt = false;
  KVBOUND_ASSIGN_OR_RETURN(session_, engine_->NewSession(setup.session));

  counters_.seed = sampler_->seed();
  const ModelInfo& info = model->info();
  Say(LogLevel::kInfo, StrCat("model: ", info.architecture, " ", Printable(info.name), ", weights ",
                              info.weight_buffers));
  if (trace_) {
    trace_->WriteHeader(*engine_, *session_);
    session_->SetCutObserver([this](const CutEvent& event) { trace_->WriteCut(event); });
  }
  return Status::Ok();
}

void Runner::ReportPositions() {
  const SessionStats& stats = session_->stats();
  if (stats.rebases > 0 && !std::exchange(said_rebased_, true)) {
    Say(LogLevel::kInfo,
        StrCat("positions: the text has reached the limit of ", engine_->options().position_limit,
               "; what is kept moves back to the first ", budget(),
               " positions, now and whenever the limit is reached again"));
  }
  const int32_t trained = model().info().n_ctx_train;
  if (session_->next_rope_position().value > trained &&
      !std::exchange(warned_past_context_, true)) {
    Say(LogLevel::kWarning, StrCat("position ", trained, " is past the ", trained,
                                   " positions that the model was trained on: its text may break "
                                   "down from here on"));
  }
}

Status Runner::Feed(std::span<const Token> tokens) {
  const bool is_long = static_cast<int64_t>(tokens.size()) > 2 * engine_->options().chunk;
  {
    ProgressBar bar(is_long && !args_.no_progress && !args_.quiet);
    const Stopwatch watch(&counters_.prompt_seconds);
    const Status fed = session_->Feed(tokens, [&](int64_t done, int64_t total) {
      bar.Update(done, total);
      return !Interrupted() && (!trace_ || trace_->status().ok());
    });
    if (fed.code() == StatusCode::kCancelled) counters_.finish = FinishReason::kCancelled;
    KVBOUND_RETURN_IF_ERROR(fed);
  }
  ReportPositions();
  for (const Token token : tokens) {
    KVBOUND_RETURN_IF_ERROR(sampler_->Accept(token, /*is_generated=*/false));
  }
  return Status::Ok();
}

Result<GenerateResult> Runner::Generate(std::string* text, Token* last_token) {
  const Stopwatch watch(&counters_.generate_seconds);
  ++counters_.n_turns;
  const int64_t decoded_before = session_->stats().decoded_tokens;
  Result<GenerateResult> result = kvbound::Generate(
      *engine_, *session_, *sampler_, args_.generate,
      [&](std::string_view chunk) {
        if (text) *text += chunk;
        ReportPositions();
        return output_.Write(chunk) && !Interrupted() && (!trace_ || trace_->status().ok());
      },
      last_token);
  if (result.ok()) {
    counters_.finish = result->reason;
    counters_.n_generated += result->n_tokens;
  } else {
    counters_.n_generated += session_->stats().decoded_tokens - decoded_before;
  }
  KVBOUND_RETURN_IF_ERROR(output_.status());
  return result;
}

Status Runner::Reset() {
  KVBOUND_RETURN_IF_ERROR(session_->Reset());
  sampler_->Reset();
  if (trace_) trace_->WriteReset();
  const RunCounters before = std::exchange(counters_, {});
  counters_.seed = before.seed;
  counters_.threads_reason = before.threads_reason;
  return Status::Ok();
}

void Runner::PrintStats() const { PrintTable(StatsTable(*engine_, *session_, counters_)); }

Status Runner::Finish() {
  if (!args_.quiet) PrintStats();
  if (!args_.stats.empty()) {
    const std::string line = Dump(StatsRecord(*engine_, *session_, counters_)) + "\n";
    if (args_.stats == "-") {
      std::fputs(line.c_str(), stderr);
    } else if (!(stats_file_ << line).flush()) {
      return IoError(StrCat("--stats: ", Printable(args_.stats), ": cannot be written"));
    }
  }
  if (!trace_) return Status::Ok();
  trace_->WriteEnd(*session_, model().info().n_kv_head);
  return trace_->status();
}

}  // namespace kvbound::cli
