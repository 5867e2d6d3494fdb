#include "cli/spin_limit.h"

#include <unistd.h>

#include <cstdlib>

namespace kvbound {
namespace {

// About 12 microseconds: more than the usual imbalance of one operator between threads.
constexpr const char* kSpinCount = "300";

}  // namespace

void LimitOpenMpSpinning(char** argv) {
  if (std::getenv("GOMP_SPINCOUNT") != nullptr || std::getenv("OMP_WAIT_POLICY") != nullptr) return;
  if (setenv("GOMP_SPINCOUNT", kSpinCount, 1) != 0) return;
  execv("/proc/self/exe", argv);
}

}  // namespace kvbound
