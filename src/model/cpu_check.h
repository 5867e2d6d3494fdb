#ifndef KVBOUND_MODEL_CPU_CHECK_H_
#define KVBOUND_MODEL_CPU_CHECK_H_

#include "kvbound/status.h"

namespace kvbound {

// Whether this processor has every instruction set extension that the installed ggml was built
// for; ggml built on one machine would otherwise end the process on an older one. Unsupported, with
// one sentence that names what is missing. Call it before anything else that uses ggml.
Status CheckCpuFeatures();

}  // namespace kvbound

#endif  // KVBOUND_MODEL_CPU_CHECK_H_
