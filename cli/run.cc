#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "cli/chat.h"
#include "cli/commands.h"
#include "cli/logging.h"
#include "cli/run_args.h"
#include "cli/runner.h"
#include "cli/signals.h"
#include "kvbound/prompt_file.h"
#include "src/base/strings.h"

namespace kvbound::cli {
namespace {

// The text of -p or -f, checked. InvalidArgument for bytes that are no text.
Result<std::string> PromptText(const RunArgs& args) {
  if (args.file) return ReadPromptFile(*args.file);
  return CheckPromptText(*args.prompt, "--prompt");
}

Result<std::vector<Token>> PromptTokens(const RunArgs& args, const std::string& text,
                                        const Tokenizer& tokenizer) {
  if (args.prompt_ids) return *args.prompt_ids;
  EncodeOptions options;
  options.add_special = !args.no_bos;
  options.parse_special = args.special.value_or(true);
  return tokenizer.Encode(text, options);
}

// {"logits_top":[[id,logit],...]} with the highest first, equal ones by id.
std::string TopLogits(std::span<const float> logits, size_t n) {
  std::vector<int32_t> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  n = std::min(n, ids.size());
  std::partial_sort(
      ids.begin(), ids.begin() + static_cast<ptrdiff_t>(n), ids.end(),
      [&](int32_t a, int32_t b) { return logits[a] != logits[b] ? logits[a] > logits[b] : a < b; });
  nlohmann::ordered_json top = nlohmann::ordered_json::array();
  for (size_t i = 0; i < n; ++i) top.push_back({ids[i], logits[ids[i]]});
  return Dump({{"logits_top", top}}) + "\n";
}

Status Continue(Runner& runner, const RunArgs& args, const std::string& text) {
  KVBOUND_ASSIGN_OR_RETURN(const std::vector<Token> tokens,
                           PromptTokens(args, text, runner.model().tokenizer()));
  KVBOUND_RETURN_IF_ERROR(runner.Feed(tokens));
  if (args.logits_top > 0) {
    runner.output().Write(TopLogits(runner.session().logits(), args.logits_top));
    return runner.output().status();
  }
  return runner.Generate(nullptr, nullptr).status();
}

int Fail(const Status& status, int exit_status) {
  PrintError(status.message());
  return exit_status;
}

// Whether text and table appear in one place.
bool OutputsMeet() {
  struct stat out, err;
  if (fstat(STDOUT_FILENO, &out) != 0 || fstat(STDERR_FILENO, &err) != 0) return false;
  return out.st_dev == err.st_dev && out.st_ino == err.st_ino;
}

// Ends what an interrupt stopped like what ran to its end; other failures end without statistics.
int End(Runner& runner, const Status& status) {
  if (runner.output().closed()) return kExitOk;
  const bool cancelled = status.code() == StatusCode::kCancelled;
  if (!status.ok() && !cancelled) return Fail(status, kExitFailure);
  if (!runner.output().ends_with_newline() && OutputsMeet()) std::fputs("\n", stderr);
  if (Status written = runner.Finish(); !written.ok()) return Fail(written, kExitFailure);
  return Interrupted() ? kExitInterrupted : kExitOk;
}

int ListAllDevices() {
  for (const DeviceInfo& device : ListDevices()) {
    std::printf("%-12s %s\n", device.name.c_str(), device.description.c_str());
  }
  return kExitOk;
}

int Run(const CLI::App& app, RunArgs& args) {
  StartLogging(args.verbose ? LogLevel::kDebug : args.quiet ? LogLevel::kWarning : LogLevel::kInfo);
  if (args.list_devices) return ListAllDevices();
  if (Status status = ResolveRun(app, &args); !status.ok()) return Fail(status, kExitUsage);
  std::string text;
  if (!args.chat && !args.prompt_ids) {
    Result<std::string> read = PromptText(args);
    if (!read.ok()) return Fail(read.status(), args.prompt ? kExitUsage : kExitFailure);
    text = *std::move(read);
  }
  InstallSignalHandlers(args.model.path);
  Result<std::unique_ptr<Runner>> runner = Runner::Create(args);
  if (!runner.ok()) return Fail(runner.status(), kExitFailure);
  return End(**runner, args.chat ? Chat(**runner, args) : Continue(**runner, args, text));
}

}  // namespace

Command AddRun(CLI::App* app) {
  CLI::App* run = app->add_subcommand("run", "Generate text, or converse, inside a bounded cache");
  auto args = std::make_shared<RunArgs>();
  AddRunOptions(run, args.get());
  run->footer(
      "Examples:\n"
      "  kvbound run -m MODEL.gguf -p \"Once upon a time\" --budget 512 -n 2000\n"
      "  kvbound run -m MODEL.gguf -f book.txt --budget-bytes 64MiB --trace cuts.jsonl -n 200\n"
      "  kvbound run -m MODEL.gguf --chat -sys \"You are a patient teacher.\"");
  return {run, [run, args] { return Run(*run, *args); }};
}

}  // namespace kvbound::cli
