#include "cli/sampling_args.h"

#include <limits>

#include "cli/options.h"
#include "kvbound/prompt_file.h"
#include "src/base/strings.h"

namespace kvbound::cli {
namespace {

constexpr float kLeast = std::numeric_limits<float>::lowest();

void AddTruncation(CLI::App* app, SamplerOptions* o) {
  AddInt(app, "-s,--seed", &o->seed,
         {"a seed, or -1 for a random one,", -1, std::numeric_limits<uint32_t>::max()},
         "Start of the random sequence (default -1: random)");
  AddFloat(app, "--temp", &o->temperature, {"a temperature", kLeast},
           "Temperature (default 0.8); 0: always the most likely token");
  AddFloat(app, "--dynatemp-range", &o->dynatemp_range, {"a half width"},
           "Half width of a dynamic temperature (default 0: off)");
  AddFloat(app, "--dynatemp-exp", &o->dynatemp_exponent, {"an exponent"},
           "How entropy maps to it (default 1)");
  AddInt(app, "--top-k", &o->top_k, {"a number of tokens"},
         "Only the N most likely tokens (default 40; 0: off)");
  AddFloat(app, "--top-p", &o->top_p, {"a probability", 0, 1},
           "The smallest set with this probability (default 0.95; 1: off)");
  AddFloat(app, "--min-p", &o->min_p, {"a share", 0, 1},
           "Drop tokens below this share of the most likely one (default 0.05; 0: off)");
  AddFloat(app, "--typical,--typical-p", &o->typical_p, {"a probability", 0, 1},
           "Locally typical sampling (default 1: off)");
  AddFloat(app, "--top-n-sigma", &o->top_n_sigma, {"a number of deviations", kLeast},
           "Keep logits within X deviations of the highest (default -1: off)");
  AddFloat(app, "--xtc-probability", &o->xtc_probability, {"a probability", 0, 1},
           "Chance that XTC acts (default 0: off)");
  AddFloat(app, "--xtc-threshold", &o->xtc_threshold, {"a probability", 0, 1},
           "Which tokens XTC calls likely (default 0.1)");
  AddInt(app, "--mirostat", &o->mirostat, {"a version", 0, 2},
         "Mirostat 1 or 2 in place of every truncating step (default 0: off)");
  AddFloat(app, "--mirostat-lr", &o->mirostat_eta, {"a learning rate"}, "Its rate (default 0.1)");
  AddFloat(app, "--mirostat-ent", &o->mirostat_tau, {"a number of bits"},
           "Its target surprise (default 5)");
}

void AddPenalties(CLI::App* app, SamplingArgs* args) {
  SamplerOptions* o = &args->options;
  AddInt(app, "--repeat-last-n", &o->repeat_last_n, {"a number of tokens, or -1,", -1},
         "How many of the last tokens the penalties look at (default 64; 0: off)");
  AddFloat(app, "--repeat-penalty", &o->repeat_penalty, {"a divisor"},
           "Divides the logits of seen tokens (default 1: off)");
  AddFloat(app, "--presence-penalty", &o->presence_penalty, {"a number", kLeast},
           "Subtracted once for a seen token (default 0)");
  AddFloat(app, "--frequency-penalty", &o->frequency_penalty, {"a number", kLeast},
           "Subtracted for each time it was seen (default 0)");
  AddFloat(app, "--dry-multiplier", &o->dry_multiplier, {"a number"},
           "Strength of DRY against repetition (default 0: off)");
  AddFloat(app, "--dry-base", &o->dry_base, {"a number"}, "Its base (default 1.75)");
  AddInt(app, "--dry-allowed-length", &o->dry_allowed_length, {"a number of tokens"},
         "Repetitions up to this length cost nothing (default 2)");
  AddInt(app, "--dry-penalty-last-n", &o->dry_penalty_last_n, {"a number of tokens, or -1,", -1},
         "How many of the last tokens DRY looks at (default -1: many)");
  AddRepeated(app, "--dry-sequence-breaker", &args->dry_breakers, AsIs,
              "Where repetitions end; replaces the default set (none: nowhere); repeatable",
              "TEXT");
}

struct Pair {
  const char* option;
  bool useless;
  const char* why;
};

// Options that were given but would have no effect.
Status CheckEffects(const CLI::App& app, const SamplerOptions& o) {
  const bool mirostat = o.mirostat != 0;
  const char* replaced = "--mirostat takes its place";
  const char* dry = "expected with --dry-multiplier above 0";
  const Pair pairs[] = {
      {"--top-k", mirostat, replaced},
      {"--top-p", mirostat, replaced},
      {"--min-p", mirostat, replaced},
      {"--typical", mirostat, replaced},
      {"--top-n-sigma", mirostat, replaced},
      {"--xtc-probability", mirostat, replaced},
      {"--mirostat-lr", !mirostat, "expected with --mirostat 1 or 2"},
      {"--mirostat-ent", !mirostat, "expected with --mirostat 1 or 2"},
      {"--xtc-threshold", o.xtc_probability == 0, "expected with --xtc-probability above 0"},
      {"--dynatemp-exp", o.dynatemp_range == 0, "expected with --dynatemp-range above 0"},
      {"--dry-base", o.dry_multiplier == 0, dry},
      {"--dry-allowed-length", o.dry_multiplier == 0, dry},
      {"--dry-penalty-last-n", o.dry_multiplier == 0, dry},
      {"--dry-sequence-breaker", o.dry_multiplier == 0, dry},
      {"--grammar-file", app.count("--grammar") > 0, "contradicts --grammar"},
  };
  for (const Pair& pair : pairs) {
    if (pair.useless && app.count(pair.option) > 0) {
      return InvalidArgument(StrCat(pair.option, ": ", pair.why));
    }
  }
  return Status::Ok();
}

}  // namespace

void AddSamplingOptions(CLI::App* app, SamplingArgs* args) {
  AddTruncation(app, &args->options);
  AddPenalties(app, args);
  AddRepeated(app, "-l,--logit-bias", &args->options.logit_bias, ParseLogitBias,
              "Add to a token's logit: 15043+1, 15043-inf; repeatable", "ID(+/-)BIAS");
  AddParsed(app, "--grammar", &args->options.grammar, AsIs, "GBNF grammar that the text follows",
            "GBNF");
  AddParsed(app, "--grammar-file", &args->grammar_file, AsIs, "The same from a file", "FILE");
  GroupNewOptions(app, "Sampling");
}

Result<SamplerOptions> ResolveSampling(const CLI::App& app, const SamplingArgs& args,
                                       bool unescape) {
  SamplerOptions options = args.options;
  KVBOUND_RETURN_IF_ERROR(CheckEffects(app, options));
  if (!args.grammar_file.empty()) {
    KVBOUND_ASSIGN_OR_RETURN(options.grammar, ReadPromptFile(args.grammar_file));
  }
  if (!args.dry_breakers.empty()) {
    options.dry_sequence_breakers.clear();
    for (const std::string& text : args.dry_breakers) {
      if (text == "none") continue;
      options.dry_sequence_breakers.push_back(unescape ? Unescape(text) : text);
    }
  }
  KVBOUND_RETURN_IF_ERROR(options.Validate());
  return options;
}

}  // namespace kvbound::cli
