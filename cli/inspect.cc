#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>

#include "cli/commands.h"
#include "cli/inspect_page.h"
#include "cli/logging.h"
#include "cli/options.h"
#include "cli/trace_reader.h"
#include "src/base/strings.h"

namespace kvbound::cli {
namespace {

struct InspectArgs {
  std::string trace;
  std::string output;
  std::optional<int64_t> conversation;  // from 1
  std::optional<PositionRange> positions;
};

// "A-B": positions A to B, both included.
Result<PositionRange> ParseRange(const std::string& text) {
  const size_t dash = text.find('-');
  if (dash == std::string::npos) return Expected("FIRST-LAST", text);
  const auto first = ParseInt(text.substr(0, dash), "a position", 0, kInt32Max - 1);
  const auto last = ParseInt(text.substr(dash + 1), "a position", 0, kInt32Max - 1);
  if (!first.ok() || !last.ok() || *first > *last) return Expected("FIRST-LAST", text);
  return PositionRange{*first, *last + 1};
}

// The conversation asked for, else the last one that was cut.
Result<size_t> ChooseRun(const InspectArgs& args, const TraceFile& trace) {
  const std::string name = Printable(args.trace);
  const size_t n_run = trace.runs.size();
  if (args.conversation) {
    const size_t run = static_cast<size_t>(*args.conversation - 1);
    if (run >= n_run) {
      return InvalidArgument(StrCat("--conversation: expected a number from 1 to ", n_run,
                                    ", as many as ", name, " has, found ", run + 1));
    }
    if (trace.runs[run].n_cut() > 0) return run;
    return InvalidArgument(
        StrCat(name, ": conversation ", run + 1,
               " has no cuts: nothing was evicted, so there is nothing to show"));
  }
  for (size_t run = n_run; run-- > 0;) {
    if (trace.runs[run].n_cut() > 0) return run;
  }
  return InvalidArgument(
      StrCat(name, ": expected a trace with cuts, found none in ", trace.runs.back().n_token(),
             " tokens: nothing was evicted, so there is nothing to show; a budget smaller than the "
             "text gives cuts"));
}

Result<PositionRange> ChooseRange(const InspectArgs& args, const TraceFile& trace,
                                  const TracedRun& run) {
  if (!args.positions) return LargestRange(trace, run);
  if (args.positions->first >= run.n_token()) {
    return InvalidArgument(StrCat("--positions: expected positions below ", run.n_token(),
                                  ", as many as were read, found ", args.positions->first));
  }
  return PositionRange{args.positions->first, std::min(args.positions->end, run.n_token())};
}

Status WriteFile(const std::string& path, const std::string& bytes) {
  errno = 0;
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  if (!out || !out.write(bytes.data(), static_cast<std::streamsize>(bytes.size())).flush()) {
    return IoError(
        StrCat("--output: ", Printable(path), ": cannot be written: ", std::strerror(errno)));
  }
  return Status::Ok();
}

Status WritePage(const InspectArgs& args) {
  const std::string output = args.output.empty() ? args.trace + ".html" : args.output;
  std::error_code error;
  if (std::filesystem::equivalent(args.trace, output, error)) {
    return InvalidArgument(
        StrCat("--output: expected a file to write, found ", Printable(output), ", which is read"));
  }
  KVBOUND_ASSIGN_OR_RETURN(const TraceFile trace, ReadTrace(args.trace));
  KVBOUND_ASSIGN_OR_RETURN(const size_t n_run, ChooseRun(args, trace));
  const TracedRun& run = trace.runs[n_run];
  KVBOUND_ASSIGN_OR_RETURN(const PositionRange range, ChooseRange(args, trace, run));
  const std::string page = InspectPage(trace, n_run, range);
  KVBOUND_RETURN_IF_ERROR(WriteFile(output, page));
  std::printf("%s: %s tokens, %s cuts, %s token sets, %s, %s\n", Printable(output).c_str(),
              Grouped(range.end - range.first).c_str(), Grouped(run.n_cut()).c_str(),
              Grouped(trace.n_set).c_str(), run.log_beta.empty() ? "no log beta" : "log beta",
              HumanBytes(page.size()).c_str());
  if (range.end - range.first < run.n_token() && !args.positions) {
    std::printf("only the last %s of %s tokens fit; --positions FIRST-LAST chooses others\n",
                Grouped(range.end - range.first).c_str(), Grouped(run.n_token()).c_str());
  }
  return Status::Ok();
}

int Inspect(const InspectArgs& args) {
  StartLogging(LogLevel::kWarning);
  const Status status = WritePage(args);
  if (status.ok()) return kExitOk;
  PrintError(status.message());
  return kExitFailure;
}

}  // namespace

Command AddInspect(CLI::App* app) {
  CLI::App* inspect =
      app->add_subcommand("inspect", "Pictures of what was kept and evicted, as one HTML page");
  auto args = std::make_shared<InspectArgs>();
  AddParsed(inspect, "trace", &args->trace, AsIs, "A file that run --trace wrote", "TRACE")
      ->required();
  AddParsed(inspect, "-o,--output", &args->output, AsIs, "The page (default TRACE.html)", "FILE");
  AddInt(inspect, "--conversation", &args->conversation, {"a number of a conversation", 1},
         "Of a chat that was cleared: which one, from 1 (default the last that was cut)");
  AddParsed(inspect, "--positions", &args->positions, ParseRange,
            "Show these positions only (default all, or the last ones that fit the page)",
            "FIRST-LAST");
  inspect->footer(
      "Example:\n"
      "  kvbound run -m MODEL.gguf -f book.txt --budget 256 --trace cuts.jsonl -n 100\n"
      "  kvbound inspect cuts.jsonl -o cuts.html");
  return {inspect, [args] { return Inspect(*args); }};
}

}  // namespace kvbound::cli
