#include "train/torch_setup.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <dlfcn.h>
#include <malloc.h>

#include <limits>

#include "base/threads.h"

namespace kvbound::train {

void SetUpTorch(int n_thread) {
  mallopt(M_MMAP_THRESHOLD, std::numeric_limits<int>::max());
  mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max());
  at::globalContext().setFlushDenormal(true);  // before the threads start, which inherit it
  const int n = n_thread > 0 ? n_thread : DefaultThreads().n;
  at::set_num_threads(n);
  // OpenBLAS has threads of its own, by default one per CPU whatever the quota.
  using SetThreads = void (*)(int);
  if (void* set = dlsym(RTLD_DEFAULT, "openblas_set_num_threads")) {
    reinterpret_cast<SetThreads>(set)(n);
  }
}

}  // namespace kvbound::train
