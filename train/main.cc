#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <memory>
#include <string>

#include "base/strings.h"
#include "cli/commands.h"
#include "cli/logging.h"
#include "cli/math_environment.h"
#include "cli/signals.h"
#include "train/args.h"
#include "train/progress.h"
#include "train/torch_setup.h"
#include "train/trainer.h"

namespace kvbound::train {
namespace {

int ExitStatus(const Status& status) {
  if (status.ok()) return cli::kExitOk;
  cli::PrintError(status.message());
  return status.code() == StatusCode::kCancelled ? cli::kExitInterrupted : cli::kExitFailure;
}

Status Train(const TrainArgs& args) {
  KVBOUND_ASSIGN_OR_RETURN(const std::unique_ptr<Communicator> communicator,
                           MakeCommunicator(args.distributed));
  Progress progress(communicator->rank() == 0);
  TrainObserver observer;
  observer.on_step = [&](const StepReport& report) {
    progress.OnStep(report);
    return !cli::Interrupted();
  };
  observer.on_evaluation = [&](const EvaluationReport& report) { progress.OnEvaluation(report); };
  observer.say = [&](const std::string& line) { progress.Say(line); };
  KVBOUND_ASSIGN_OR_RETURN(const std::unique_ptr<Trainer> trainer,
                           Trainer::Make(args.config, communicator.get(), observer));
  progress.Say(StrCat(trainer->dataset().n_token(), " tokens in ", trainer->dataset().n_sequence(),
                      " sequences; ", trainer->n_step(), " steps"));
  return trainer->Run();
}

int Main(int argc, char** argv) {
  CLI::App app("kvbound gates train: retention gates for a model, trained on text",
               "kvbound gates train");
  TrainArgs args;
  AddTrainOptions(&app, &args);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);
    cli::PrintError(error.what());
    return cli::kExitUsage;
  }
  if (Status status = CheckTrainArgs(args); !status.ok()) {
    cli::PrintError(status.message());
    return cli::kExitUsage;
  }
  cli::StartLogging(LogLevel::kWarning);
  cli::InstallSignalHandlers(args.config.model);
  SetUpTorch(args.n_thread);
  try {
    return ExitStatus(Train(args));
  } catch (const std::exception& error) {  // torch's
    cli::PrintError(error.what());
    return cli::kExitFailure;
  }
}

}  // namespace
}  // namespace kvbound::train

int main(int argc, char** argv) {
  if (kvbound::cli::SetMathEnvironment()) execv("/proc/self/exe", argv);
  return kvbound::train::Main(argc, argv);
}
