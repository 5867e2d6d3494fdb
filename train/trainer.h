#ifndef KVBOUND_TRAIN_TRAINER_H_
#define KVBOUND_TRAIN_TRAINER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kvbound/gates.h"
#include "kvbound/model.h"
#include "kvbound/status.h"
#include "train/base_transformer.h"
#include "train/checkpoint.h"
#include "train/communicator.h"
#include "train/config.h"
#include "train/dataset.h"
#include "train/gate_module.h"
#include "train/optimizer.h"
#include "train/reports.h"

namespace kvbound::train {

// One training run of gates for one model. Not thread-safe.
class Trainer {
 public:
  // Reads model, texts, start gates and checkpoint, and makes sure that output and checkpoint can
  // be written, before any training. `communicator` must outlive the trainer.
  static Result<std::unique_ptr<Trainer>> Make(const TrainConfig& config,
                                               Communicator* communicator,
                                               const TrainObserver& observer);

  // Trains to the end and writes the gates (the best by evaluation, if there is one). Cancelled:
  // stopped by the observer, after a checkpoint. A loss that is not finite is an error that names
  // step, documents and the last checkpoint; nothing is written then.
  Status Run();

  const Dataset& dataset() const { return *dataset_; }
  int64_t n_step() const { return schedule_.n_step; }
  // What was or would be written.
  Result<std::shared_ptr<const Gates>> ToGates() const;

 private:
  struct SequenceLoss {
    double total = 0, quality = 0, capacity = 0, kept = 0;
    int64_t n_term = 0;  // 0: nothing to learn from
  };
  struct BatchLoss {
    SequenceLoss mean;
    int64_t tokens = 0;
    std::vector<std::string> names;
    bool finite = true;
  };

  Trainer(const TrainConfig& config, Communicator* communicator, const TrainObserver& observer)
      : config_(config), communicator_(communicator), observer_(observer) {}

  Status LoadModel();
  Status LoadTexts();
  Status MakeGates();
  Status CheckFiles() const;
  Status Resume();
  Status CheckAgreement();
  nlohmann::ordered_json ConfigRecord() const;
  Status Save() const;

  SequenceLoss Backward(const Sequence& sequence, int64_t index, double grad_scale);
  Result<BatchLoss> RunBatch();
  Result<bool> Step();  // false: the batch had nothing to learn from
  Status NotFinite(const char* what, const BatchLoss& batch) const;
  bool EvaluatesAt(int64_t step) const;
  Status Evaluate();
  Status Finish();

  bool is_main() const { return communicator_->rank() == 0; }
  std::vector<Tensor> Values() const;
  void Say(const std::string& line) const {
    if (observer_.say && is_main()) observer_.say(line);
  }

  TrainConfig config_;
  Communicator* communicator_;
  TrainObserver observer_;
  std::shared_ptr<const Model> model_;
  std::unique_ptr<BaseTransformer> base_;
  std::vector<std::string> text_records_;
  std::unique_ptr<Dataset> dataset_;
  std::vector<std::vector<Token>> eval_texts_;
  std::unique_ptr<GateModule> gates_;
  GateTraining before_;     // how the start gates came about
  uint64_t init_hash_ = 0;  // of their file
  std::unique_ptr<AdamW> optimizer_;
  Schedule schedule_;

  // All that a checkpoint holds besides parameters and moments.
  int64_t step_ = 0;
  int64_t sequence_ = 0;  // sequences taken from the dataset
  int64_t tokens_ = 0;
  StepReport last_;
  std::vector<double> losses_, capacities_;  // of the last steps
  double best_kl_ = 0;
  std::vector<Tensor> best_;  // parameters; empty: no evaluation yet
  mutable int64_t saved_step_ = -1;
};

}  // namespace kvbound::train

#endif  // KVBOUND_TRAIN_TRAINER_H_
