#include "train/torch_setup.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <malloc.h>

#include <limits>

#include "base/threads.h"

namespace kvbound::train {

void SetUpTorch(int n_thread) {
  mallopt(M_MMAP_THRESHOLD, std::numeric_limits<int>::max());
  mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max());
  at::globalContext().setFlushDenormal(true);  // before the threads start, which inherit it
  at::set_num_threads(n_thread > 0 ? n_thread : DefaultThreads().n);
}

}  // namespace kvbound::train
