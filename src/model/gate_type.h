#ifndef KVBOUND_MODEL_GATE_TYPE_H_
#define KVBOUND_MODEL_GATE_TYPE_H_

#include <ggml.h>

#include "kvbound/gates.h"

namespace kvbound {

inline ggml_type GateGgmlType(GateType type) {
  switch (type) {
    case GateType::kF32:
      return GGML_TYPE_F32;
    case GateType::kF16:
      return GGML_TYPE_F16;
    case GateType::kQ8_0:
      return GGML_TYPE_Q8_0;
  }
  return GGML_TYPE_F32;
}

}  // namespace kvbound

#endif  // KVBOUND_MODEL_GATE_TYPE_H_
