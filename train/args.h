#ifndef KVBOUND_TRAIN_ARGS_H_
#define KVBOUND_TRAIN_ARGS_H_

#include <CLI/App.hpp>

#include "kvbound/status.h"
#include "train/communicator.h"
#include "train/config.h"

// The command line of `kvbound gates train`.
namespace kvbound::train {

struct TrainArgs {
  TrainConfig config;
  CommunicatorOptions distributed;
  int n_thread = 0;  // 0: as many as the process may use
};

void AddTrainOptions(CLI::App* app, TrainArgs* args);

// What parsing cannot see: options that are missing or contradict each other.
Status CheckTrainArgs(const TrainArgs& args);

}  // namespace kvbound::train

#endif  // KVBOUND_TRAIN_ARGS_H_
