#include "cli/math_environment.h"

#include <cstdlib>

namespace kvbound::cli {
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

bool SetMathEnvironment() {
  bool changed = SetIfOpen("OPENBLAS_CORETYPE", CoreType());
  if (std::getenv("OMP_WAIT_POLICY") == nullptr) changed |= SetIfOpen("GOMP_SPINCOUNT", "300");
  changed |= SetIfOpen("OPENBLAS_THREAD_TIMEOUT", "12");
  return changed;
}

}  // namespace kvbound::cli
