#include "train/math_setup.h"

#include <ATen/Parallel.h>
#include <malloc.h>
#include <unistd.h>

#include <cstdlib>
#include <limits>

#include "base/threads.h"

namespace kvbound::train {
namespace {

// nullptr: OpenBLAS's own choice is all there is.
const char* CoreType() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl")) {
    return "SkylakeX";
  }
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return "Haswell";
#endif
  return nullptr;
}

bool SetIfOpen(const char* name, const char* value) {
  if (value == nullptr || std::getenv(name) != nullptr) return false;
  return setenv(name, value, 1) == 0;
}

}  // namespace

void SetUpMathLibraries(char** argv) {
  bool changed = SetIfOpen("OPENBLAS_CORETYPE", CoreType());
  if (std::getenv("OMP_WAIT_POLICY") == nullptr) changed |= SetIfOpen("GOMP_SPINCOUNT", "300");
  changed |= SetIfOpen("OPENBLAS_THREAD_TIMEOUT", "12");
  if (changed) execv("/proc/self/exe", argv);
}

void SetUpTorch(int n_thread) {
  mallopt(M_MMAP_THRESHOLD, std::numeric_limits<int>::max());
  mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max());
  at::set_num_threads(n_thread > 0 ? n_thread : DefaultThreads().n);
}

}  // namespace kvbound::train
