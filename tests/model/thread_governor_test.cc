#include "model/thread_governor.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace kvbound {
namespace {

constexpr int64_t kMillisecond = 1'000'000;

// A process whose passes get `cores` of the machine.
class Process {
 public:
  explicit Process(int32_t max_threads) : governor_(max_threads) {}

  // One pass; the number of threads it took.
  int32_t Pass(int64_t wall_ms, double cores, int64_t n_preempted) {
    const int32_t n_threads = governor_.Begin(now_);
    now_.wall_ns += wall_ms * kMillisecond;
    now_.cpu_ns += static_cast<int64_t>(cores * wall_ms * kMillisecond);
    now_.n_preempted += n_preempted;
    governor_.End(now_);
    return n_threads;
  }

  // Passes of 10 ms on one thread until more are tried; the milliseconds it took.
  int64_t PassesUntilRetry(int32_t n_threads) {
    for (int64_t ms = 0; ms < 90'000; ms += 10) {
      if (governor_.Begin(now_) > n_threads) return ms;
      Pass(10, n_threads, 0);
    }
    return -1;
  }

 private:
  ThreadUsage now_;
  ThreadGovernor governor_;
};

TEST(ThreadGovernor, KeepsAllThreadsWhileUndisturbed) {
  Process process(2);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(process.Pass(10, 1.99, 0), 2);
}

TEST(ThreadGovernor, ShortDisturbancesAreNoise) {
  Process process(2);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(process.Pass(10, 1.9, 3), 2);
}

TEST(ThreadGovernor, ThreadsThatSleepByThemselvesAreNotDisturbed) {
  Process process(2);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(process.Pass(60, 1.2, 1), 2);
}

TEST(ThreadGovernor, GoesDownToTheCoresItGets) {
  Process two(2);
  EXPECT_EQ(two.Pass(1200, 1.5, 300), 2);
  EXPECT_EQ(two.Pass(20, 1, 0), 1);
  Process many(16);
  EXPECT_EQ(many.Pass(100, 13.7, 40), 16);
  EXPECT_EQ(many.Pass(100, 6.2, 40), 13);
  EXPECT_EQ(many.Pass(100, 0.3, 40), 6);
  EXPECT_EQ(many.Pass(100, 0.3, 40), 1);
}

TEST(ThreadGovernor, JudgesShortPassesTogether) {
  Process process(2);
  for (int i = 0; i < 50; ++i) EXPECT_EQ(process.Pass(1, 1.5, 1), 2);
  EXPECT_EQ(process.Pass(1, 1, 0), 1);
}

TEST(ThreadGovernor, TriesAgainAfterLongerAndLongerPauses) {
  Process process(2);
  int64_t shortest = 500;
  for (int i = 0; i < 8; ++i) {
    EXPECT_EQ(process.Pass(50, 1.2, 10), 2);
    const int64_t pause = process.PassesUntilRetry(1);
    EXPECT_GE(pause, shortest);
    EXPECT_LE(pause, 2 * shortest + 10);
    shortest = std::min<int64_t>(2 * shortest, 30'000);
  }
}

TEST(ThreadGovernor, QuietWindowsShortenThePause) {
  Process process(2);
  for (int i = 0; i < 8; ++i) {
    EXPECT_EQ(process.Pass(50, 1.2, 10), 2);
    process.PassesUntilRetry(1);
  }
  for (int i = 0; i < 40; ++i) EXPECT_EQ(process.Pass(50, 2, 0), 2);
  EXPECT_EQ(process.Pass(50, 1.2, 10), 2);
  EXPECT_LE(process.PassesUntilRetry(1), 1010);
}

TEST(ThreadGovernor, TriesCostLittle) {
  Process process(2);
  EXPECT_EQ(process.Pass(2000, 1.0, 900), 2);
  EXPECT_GE(process.PassesUntilRetry(1), 20'000);
}

TEST(ThreadGovernor, DoesNotTryWhileOneThreadIsDisturbed) {
  Process process(2);
  EXPECT_EQ(process.Pass(50, 1.2, 10), 2);
  for (int i = 0; i < 200; ++i) EXPECT_EQ(process.Pass(50, 0.5, 10), 1);
  EXPECT_GT(process.PassesUntilRetry(1), 0);
}

TEST(ThreadGovernor, OneThreadIsNeverJudged) {
  Process process(1);
  for (int i = 0; i < 10; ++i) EXPECT_EQ(process.Pass(100, 0.2, 50), 1);
}

TEST(ThreadUsage, Grows) {
  const ThreadUsage before = ThreadUsage::Now();
  const ThreadUsage after = ThreadUsage::Now();
  EXPECT_GT(before.wall_ns, 0);
  EXPECT_GE(after.wall_ns, before.wall_ns);
  EXPECT_GE(after.cpu_ns, before.cpu_ns);
  EXPECT_GE(after.n_preempted, before.n_preempted);
}

}  // namespace
}  // namespace kvbound
