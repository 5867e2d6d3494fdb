#ifndef KVBOUND_TRAIN_PROGRESS_H_
#define KVBOUND_TRAIN_PROGRESS_H_

#include <chrono>
#include <string>

#include "train/reports.h"

namespace kvbound::train {

// Shows a run on standard error: a line that is drawn again and again on a terminal, else a line
// every ten seconds.
class Progress {
 public:
  explicit Progress(bool enabled);
  ~Progress();

  void OnStep(const StepReport& report);
  void OnEvaluation(const EvaluationReport& report);
  void Say(const std::string& line);

 private:
  using Clock = std::chrono::steady_clock;
  std::string Line(const StepReport& report) const;
  void Clear();

  bool enabled_;
  bool terminal_;
  bool drawn_ = false;
  bool started_ = false;
  Clock::time_point start_, last_line_;
  int64_t first_tokens_ = 0;     // read before this process's first step
  std::string last_evaluation_;  // "eviction KL 0.171"
};

}  // namespace kvbound::train

#endif  // KVBOUND_TRAIN_PROGRESS_H_
