#include "cli/run_args.h"

#include <filesystem>
#include <limits>
#include <system_error>

#include "cli/options.h"
#include "src/base/strings.h"

namespace kvbound::cli {
namespace {

void AddPromptOptions(CLI::App* app, RunArgs* args) {
  AddParsed(app, "-p,--prompt", &args->prompt, AsIs, "Text to continue", "TEXT");
  AddParsed(app, "-f,--file", &args->file, AsIs,
            "File with the text to continue: every byte counts, the final newline too; only a byte "
            "order mark is dropped",
            "FILE");
  AddParsed(app, "--prompt-ids", &args->prompt_ids, ParseTokens,
            "Token ids to continue: 1,2,3 (nothing is added in front)", "IDS");
  app->add_flag("-e,--escape", args->escape,
                "\\n, \\t, \\\\, \\xHH... in -p, -sys, --stop and --dry-sequence-breaker (never in "
                "files)");
  AddSwitch(app, "special", &args->special,
            "Text of -p or -f that spells a control token (<|im_end|>) becomes that token, as "
            "in llama.cpp (default), or stays text; in a chat it always stays text");
  app->add_flag("--no-bos", args->no_bos, "No begin-of-text token, whatever the model asks for");
  GroupNewOptions(app, "Prompt");

  app->add_flag("--chat", args->chat,
                "Converse: each line of standard input is a message; /stats, /reset, /quit");
  AddParsed(app, "--system-prompt", &args->system_prompt, AsIs,
            "-sys: system message; no cut takes it (unless --no-pin-prompt)", "TEXT");
  AddParsed(app, "--chat-template", &args->chat_template, AsIs,
            "A template built into llama (chatml, llama3, ...) instead of the model's own", "NAME");
  GroupNewOptions(app, "Chat");
}

void AddGenerationOptions(CLI::App* app, RunArgs* args) {
  AddInt(app, "-n,--predict,--n-predict", &args->generate.n_predict,
         {"a number of tokens, or -1,", -1, std::numeric_limits<int64_t>::max()},
         "Tokens to generate, in a chat per reply (default -1: until the model ends)");
  app->add_flag("--ignore-eos", args->generate.ignore_eos, "Go on after end-of-text tokens");
  AddRepeated(app, "-r,--stop", &args->generate.stop, AsIs, "End before this text; repeatable",
              "TEXT");
  AddInt(app, "--logits-top", &args->logits_top, {"a number of logits", 1},
         "Print the N highest logits after the prompt as JSON and end (implies -n 0)");
  GroupNewOptions(app, "Generation");
}

void AddOutputOptions(CLI::App* app, RunArgs* args) {
  AddParsed(app, "--trace", &args->trace, AsIs,
            "Write what each cut kept and dropped, one JSON object a line", "FILE");
  AddParsed(app, "--stats", &args->stats, AsIs,
            "Write the final statistics as JSON; - for standard error", "FILE");
  app->add_flag("--no-progress", args->no_progress, "No progress bar for long prompts");
  app->add_flag("-v,--verbose", args->verbose, "Log more, ggml and llama included");
  app->add_flag("-q,--quiet", args->quiet, "Only warnings and errors; no table at the end");
  app->add_flag("--list-devices", args->list_devices, "List what --device can name, and end");
  GroupNewOptions(app, "Output");
}

struct Rule {
  const char* option;
  bool refused;
  std::string why;
};

Status CheckRules(const CLI::App& app, const std::vector<Rule>& rules) {
  for (const Rule& rule : rules) {
    if (rule.refused && app.count(rule.option) > 0) {
      return InvalidArgument(StrCat(rule.option, ": ", rule.why));
    }
  }
  return Status::Ok();
}

Status CheckCombinations(const CLI::App& app, const RunArgs& args) {
  const bool no_text = args.prompt_ids.has_value();
  const bool escapes = args.prompt || args.system_prompt || !args.generate.stop.empty() ||
                       !args.sampling.dry_breakers.empty();
  const std::string in_chat = "messages of a chat come from standard input";
  KVBOUND_RETURN_IF_ERROR(CheckRules(
      app, {{"--prompt", args.chat, in_chat},
            {"--file", args.chat, in_chat},
            {"--prompt-ids", args.chat, in_chat},
            {"--special", args.chat, "in a chat, control tokens of a message always stay text"},
            {"--no-bos", args.chat, "the chat template decides"},
            {"--logits-top", args.chat, "expected without --chat"},
            {"--system-prompt", !args.chat, "expected with --chat"},
            {"--chat-template", !args.chat, "expected with --chat"},
            {"--file", args.prompt.has_value(), "contradicts --prompt"},
            {"--prompt-ids", args.prompt || args.file, "contradicts --prompt and --file"},
            {"--special", no_text, "expected with --prompt or --file"},
            {"--no-bos", no_text, "expected with --prompt or --file"},
            {"--escape", !escapes, "expected with -p, -sys, --stop or --dry-sequence-breaker"},
            {"--quiet", args.verbose, "contradicts --verbose"},
            {"--logits-top", app.count("--n-predict") > 0 && args.generate.n_predict != 0,
             "expected with -n 0"}}));
  if (args.chat && args.cache.protection.pin_prompt == true && !args.system_prompt) {
    return InvalidArgument("--pin-prompt: expected with --system-prompt in a chat");
  }
  if (!args.chat && !args.prompt && !args.file && !args.prompt_ids) {
    return InvalidArgument("--prompt: expected -p TEXT, -f FILE or --chat, found none of them");
  }
  return Status::Ok();
}

void UnescapeTexts(RunArgs* args) {
  if (!args->escape) return;
  if (args->prompt) args->prompt = Unescape(*args->prompt);
  if (args->system_prompt) args->system_prompt = Unescape(*args->system_prompt);
  for (std::string& stop : args->generate.stop) stop = Unescape(stop);
}

}  // namespace

void AddRunOptions(CLI::App* app, RunArgs* args) {
  AddModelOptions(app, &args->model);
  AddPromptOptions(app, args);
  AddGenerationOptions(app, args);
  AddCacheOptions(app, &args->cache);
  AddSamplingOptions(app, &args->sampling);
  AddOutputOptions(app, args);
}

Status ResolveRun(const CLI::App& app, RunArgs* args) {
  if (args->model.path.empty()) return InvalidArgument("--model: expected a file, found none");
  KVBOUND_RETURN_IF_ERROR(CheckCombinations(app, *args));
  for (const std::string& stop : args->generate.stop) {
    if (stop.empty()) return InvalidArgument("--stop: expected a text, found an empty one");
  }
  UnescapeTexts(args);
  if (args->logits_top > 0) args->generate.n_predict = 0;
  KVBOUND_ASSIGN_OR_RETURN(args->cache_setup, ResolveCache(args->cache));
  KVBOUND_ASSIGN_OR_RETURN(args->sampler_options,
                           ResolveSampling(app, args->sampling, args->escape));
  return Status::Ok();
}

Status CheckOutputPath(const char* option, const std::string& path, const RunArgs& args) {
  for (const std::string& input :
       {args.model.path, args.file.value_or(""), args.sampling.grammar_file}) {
    std::error_code error;
    if (!input.empty() && std::filesystem::equivalent(path, input, error)) {
      return InvalidArgument(
          StrCat(option, ": expected a file to write, found ", Printable(path), ", which is read"));
    }
  }
  return Status::Ok();
}

}  // namespace kvbound::cli
