#ifndef KVBOUND_MODEL_THREAD_GOVERNOR_H_
#define KVBOUND_MODEL_THREAD_GOVERNOR_H_

#include <cstdint>

namespace kvbound {

// What the process has used so far; only differences mean anything.
struct ThreadUsage {
  int64_t wall_ns = 0;      // a steady clock
  int64_t cpu_ns = 0;       // over all threads of the process
  int64_t n_preempted = 0;  // involuntary context switches, the same

  static ThreadUsage Now();
};

// How many threads a forward pass takes. Threads meet after every operator and wait by spinning, so
// when another process takes one's core, the rest burn whole time slices: two processes that each
// use all cores run 20 to 500 times slower, not twice. The governor judges windows of passes: one
// in which threads were preempted and the process missed a tenth of its cores is disturbed. It then
// goes down to the cores that the process did get, and tries all threads again after a pause: ten
// windows like the disturbed one, twice the last pause if that is more, at most 30 s; quiet windows
// halve it. Windows disturbed even with fewer threads put the try off. Reads no clock itself. Not
// thread-safe.
class ThreadGovernor {
 public:
  explicit ThreadGovernor(int32_t max_threads)
      : max_threads_(max_threads), n_threads_(max_threads) {}

  // Call before a pass: its number of threads, 1..max_threads.
  int32_t Begin(const ThreadUsage& now);
  // Call after it.
  void End(const ThreadUsage& now);

 private:
  void Judge(const ThreadUsage& now);

  int32_t max_threads_;
  int32_t n_threads_;
  ThreadUsage begin_;        // of the pass
  ThreadUsage window_;       // sums over the window's passes
  int64_t pause_ns_ = 0;     // before the next try; 0: never disturbed, or long ago
  int64_t retry_at_ns_ = 0;  // on the wall clock
};

}  // namespace kvbound

#endif  // KVBOUND_MODEL_THREAD_GOVERNOR_H_
