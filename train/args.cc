#include "train/args.h"

#include <cctype>
#include <limits>
#include <string>

#include "base/strings.h"
#include "cli/options.h"

namespace kvbound::train {
namespace {

using cli::AddChoice;
using cli::AddFloat;
using cli::AddInt;
using cli::AddParsed;
using cli::AddRepeated;
using cli::AsIs;
using cli::GroupNewOptions;

constexpr int64_t kMost = std::numeric_limits<int32_t>::max();

// 500000, 500k, 2M.
Result<int64_t> ParseCount(const std::string& text) {
  std::string digits = text;
  int64_t unit = 1;
  if (!digits.empty() && (digits.back() == 'k' || digits.back() == 'M')) {
    unit = digits.back() == 'k' ? 1000 : 1000000;
    digits.pop_back();
  }
  const Result<int64_t> number =
      cli::ParseInt(digits, "a number of tokens (500k, 2M)", 1, int64_t{1000000000000} / unit);
  if (!number.ok()) return cli::Expected("a number of tokens (500000, 500k, 2M)", text);
  return *number * unit;
}

Result<uint64_t> ParseSeed(const std::string& text) {
  KVBOUND_ASSIGN_OR_RETURN(const int64_t seed,
                           cli::ParseInt(text, "a seed", 0, std::numeric_limits<int64_t>::max()));
  return static_cast<uint64_t>(seed);
}

void AddFiles(CLI::App* app, TrainConfig* c) {
  AddParsed(app, "-m,--model", &c->model, AsIs, "The model's GGUF file", "FILE");
  AddRepeated(app, "--text", &c->texts, AsIs,
              "Text to train on: .txt, .jsonl or .json, or a folder of them (repeatable)", "PATH")
      ->expected(1, -1)
      ->allow_extra_args();
  AddParsed(app, "-o,--output", &c->output, AsIs, "The gate file to write", "FILE");
  AddParsed(app, "--type", &c->type, ParseGateType, "How it stores matrices (default q8_0)",
            "f32|f16|q8_0");
  AddParsed(app, "--init", &c->init, AsIs, "Gates to start from", "FILE");
  AddParsed(app, "--checkpoint", &c->checkpoint, AsIs,
            "Where an unfinished run is kept (default OUTPUT.ckpt)", "FILE");
  AddInt(app, "--checkpoint-every", &c->checkpoint_every, {"a number of steps", 1, kMost},
         "Steps between two checkpoints (default 50)");
  app->add_flag("--resume", c->resume, "Go on from the checkpoint: the result is the same");
  GroupNewOptions(app, "Files");
}

void AddGateShape(CLI::App* app, TrainConfig* c) {
  AddInt(app, "--hidden", &c->n_hidden, {"a number of units", 1, 65536},
         "Hidden units (default 512)");
  AddInt(app, "--hidden-layers", &c->n_hidden_layer, {"a number of layers", 1, 2},
         "1 (TRIM-KV, default) or 2 (DBTrimKV)");
  app->add_flag_callback(
      "--tie-output", [c] { c->tied_output = true; }, "One output for all layers (DBTrimKV)");
  AddParsed(
      app, "--output-bias", &c->output_bias,
      [](const std::string& text) -> Result<double> {
        KVBOUND_ASSIGN_OR_RETURN(const float bias, cli::ParseFloat(text, "a bias", -30, 30));
        return static_cast<double>(bias);
      },
      "Where fresh gates start: log beta = logsigmoid of it (default 6)", "X");
  GroupNewOptions(app, "Gates");
}

void AddObjective(CLI::App* app, TrainConfig* c) {
  AddChoice(
      app, "--stage", &c->stage,
      std::vector<std::pair<std::string, Stage>>{{"local", Stage::kLocal}, {"full", Stage::kFull}},
      "local (default): layer by layer, forward passes only; full: TRIM-KV's objective, "
      "through the whole model");
  AddInt(app, "--memory", &c->memory, {"a number of tokens", 1, kMost},
         "Tokens a head may hold, M of the capacity loss (default 128)");
  AddFloat(app, "--lambda", &c->capacity_weight, {"a weight", 0, 1e6f},
           "Weight of the capacity loss (default 1)");
  AddChoice(app, "--capacity", &c->form,
            std::vector<std::pair<std::string, CapacityForm>>{{"code", CapacityForm::kCode},
                                                              {"paper", CapacityForm::kPaper}},
            "Capacity loss as in the authors' code (default) or in the paper");
  AddChoice(app, "--scope", &c->scope,
            std::vector<std::pair<std::string, CapacityScope>>{{"local", CapacityScope::kLocal},
                                                               {"global", CapacityScope::kGlobal}},
            "M for each layer and head (default), or for their mean (DBTrimKV)");
  AddInt(app, "--sinks", &c->sinks, {"a number of tokens", 0, 65536},
         "First tokens of a document that are always kept (default 4)");
  GroupNewOptions(app, "Objective");
}

void AddData(CLI::App* app, TrainConfig* c) {
  AddParsed(app, "--tokens", &c->tokens, ParseCount, "Tokens to train on (default 500k)", "N");
  AddInt(app, "--seq-len", &c->seq_len, {"a number of tokens", 8, 1 << 20},
         "Tokens of a sequence (default 1024)");
  app->add_flag_callback(
      "--no-pack", [c] { c->pack = false; },
      "Documents shorter than a sequence are not put together");
  AddFloat(app, "--facts", &c->fact_share, {"a share", 0, 1},
           "Share of sequences that carry facts, asked at their end (default 0.6)");
  AddParsed(app, "--seed", &c->seed, ParseSeed, "Seed of everything random (default 1)", "N");
  GroupNewOptions(app, "Data");
}

void AddOptimiser(CLI::App* app, TrainConfig* c) {
  AddParsed(
      app, "--lr", &c->learning_rate,
      [](const std::string& text) -> Result<double> {
        KVBOUND_ASSIGN_OR_RETURN(const float rate, cli::ParseFloat(text, "a rate", 0, 1e30f));
        return static_cast<double>(rate);
      },
      "Highest learning rate (default 1e-3 local, 4e-4 full)", "X");
  AddFloat(app, "--lr-floor", &c->floor, {"a share", 0, 1},
           "Lowest one as a share of it, where the cosine ends (default 0.05)");
  AddFloat(app, "--warmup", &c->warmup, {"a share", 0, 1},
           "Share of the steps that it takes to rise (default 0.05)");
  AddFloat(app, "--weight-decay", &c->weight_decay, {"a rate", 0, 1}, "Of matrices (default 0)");
  AddFloat(app, "--clip", &c->clip, {"a norm", 0, 1e30f},
           "Largest norm of the gradient; 0: any (default 1)");
  AddInt(app, "--accumulate", &c->accumulate, {"a number of sequences", 1, 65536},
         "Sequences of one step (default 1)");
  GroupNewOptions(app, "Optimiser");
}

void AddEvaluation(CLI::App* app, TrainConfig* c) {
  AddRepeated(app, "--eval-text", &c->eval_files, AsIs,
              "Held-out text: gates are measured on it under real eviction, the best are kept "
              "(repeatable)",
              "FILE")
      ->expected(1, -1)
      ->allow_extra_args();
  AddInt(app, "--eval-every", &c->eval_every, {"a number of steps", 1, kMost},
         "Steps between two measurements (default 100)");
  AddInt(app, "--eval-texts", &c->n_eval_text, {"a number of texts", 1, 4096},
         "Stretches of text measured (default 4)");
  AddInt(app, "--eval-len", &c->eval_len, {"a number of tokens", 16, 1 << 20},
         "Tokens of each (default 1024)");
  AddInt(app, "--eval-budget", &c->eval_budget, {"a number of slots", 2, kMost},
         "Slots that survive a cut (default 128)");
  GroupNewOptions(app, "Evaluation");
}

void AddMachine(CLI::App* app, TrainArgs* args) {
  AddInt(app, "-t,--threads", &args->n_thread, {"a number of threads", 1, 4096},
         "Threads (default: as many as the process may use)");
  AddChoice(app, "--distributed", &args->distributed.backend,
            std::vector<std::pair<std::string, std::string>>{{"gloo", "gloo"}},
            "Train in several processes; each takes these options and its own --rank");
  AddInt(app, "--rank", &args->distributed.rank, {"a rank", 0, 65535}, "This process, from 0");
  AddInt(app, "--world-size", &args->distributed.world_size, {"a number of processes", 1, 65536},
         "All processes");
  AddParsed(app, "--init-method", &args->distributed.init_method, AsIs,
            "Where they meet: file:///shared/new_file or tcp://HOST:PORT", "URL");
  GroupNewOptions(app, "Machine");
}

}  // namespace

void AddTrainOptions(CLI::App* app, TrainArgs* args) {
  AddFiles(app, &args->config);
  AddGateShape(app, &args->config);
  AddObjective(app, &args->config);
  AddData(app, &args->config);
  AddOptimiser(app, &args->config);
  AddEvaluation(app, &args->config);
  AddMachine(app, args);
}

Status CheckTrainArgs(const TrainArgs& args) {
  const TrainConfig& c = args.config;
  if (c.model.empty()) return InvalidArgument("--model: expected a file, found none");
  if (c.texts.empty()) return InvalidArgument("--text: expected a file or folder, found none");
  if (c.output.empty()) return InvalidArgument("--output: expected a file, found none");
  if (!c.init.empty()) {
    const char* given = c.n_hidden         ? "--hidden"
                        : c.n_hidden_layer ? "--hidden-layers"
                        : c.tied_output    ? "--tie-output"
                        : c.output_bias    ? "--output-bias"
                                           : nullptr;
    if (given) {
      return InvalidArgument(StrCat(given, ": expected without --init, whose gates have a shape"));
    }
  }
  const CommunicatorOptions& d = args.distributed;
  if (d.backend.empty() && (d.world_size > 1 || d.rank > 0 || !d.init_method.empty())) {
    return InvalidArgument("--world-size, --rank, --init-method: expected with --distributed");
  }
  if (d.rank >= d.world_size) {
    return InvalidArgument(StrCat("--rank: expected less than ", d.world_size, ", found ", d.rank));
  }
  if (!d.backend.empty() && d.init_method.empty()) {
    return InvalidArgument("--init-method: expected with --distributed, found none");
  }
  if (c.eval_files.empty()) return Status::Ok();
  if (c.eval_budget <= c.sinks) {
    return InvalidArgument(
        StrCat("--eval-budget: expected more than ", c.sinks, " sinks, found ", c.eval_budget));
  }
  return Status::Ok();
}

}  // namespace kvbound::train
