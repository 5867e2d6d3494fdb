#include "model/thread_governor.h"

#include <sys/resource.h>

#include <algorithm>
#include <chrono>

namespace kvbound {
namespace {

constexpr int64_t kMillisecond = 1'000'000;
constexpr int64_t kWindow = 50 * kMillisecond;  // several time slices of any scheduler
constexpr int64_t kPauseOfWindow = 10;          // a try costs at most about a tenth of the time
constexpr int64_t kLongestPause = 30'000 * kMillisecond;
constexpr double kQuietShare = 0.9;  // of the cores, received

int64_t Nanoseconds(const timeval& time) {
  return (int64_t{time.tv_sec} * 1'000'000 + time.tv_usec) * 1000;
}

}  // namespace

ThreadUsage ThreadUsage::Now() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  const auto wall = std::chrono::steady_clock::now().time_since_epoch();
  return {std::chrono::duration_cast<std::chrono::nanoseconds>(wall).count(),
          Nanoseconds(usage.ru_utime) + Nanoseconds(usage.ru_stime), usage.ru_nivcsw};
}

int32_t ThreadGovernor::Begin(const ThreadUsage& now) {
  if (n_threads_ < max_threads_ && now.wall_ns >= retry_at_ns_) {
    n_threads_ = max_threads_;
    window_ = {};
  }
  begin_ = now;
  return n_threads_;
}

void ThreadGovernor::End(const ThreadUsage& now) {
  window_.wall_ns += now.wall_ns - begin_.wall_ns;
  window_.cpu_ns += now.cpu_ns - begin_.cpu_ns;
  window_.n_preempted += now.n_preempted - begin_.n_preempted;
  if (window_.wall_ns < kWindow) return;
  Judge(now);
  window_ = {};
}

void ThreadGovernor::Judge(const ThreadUsage& now) {
  const double cores = static_cast<double>(window_.cpu_ns) / window_.wall_ns;
  if (window_.n_preempted < 2 || cores >= kQuietShare * n_threads_) {
    if (n_threads_ == max_threads_) pause_ns_ /= 2;
    return;
  }
  if (n_threads_ == max_threads_) {
    pause_ns_ = std::min(std::max(2 * pause_ns_, kPauseOfWindow * window_.wall_ns), kLongestPause);
  }
  n_threads_ = std::clamp(static_cast<int32_t>(cores), 1, std::max(n_threads_ - 1, 1));
  // Up to twice that: two processes that disturb each other must not try again together.
  retry_at_ns_ = now.wall_ns + pause_ns_ + pause_ns_ * (now.wall_ns / 1000 % 1024) / 1024;
}

}  // namespace kvbound
