#ifndef KVBOUND_KV_KV_TYPE_H_
#define KVBOUND_KV_KV_TYPE_H_

#include "ggml.h"
#include "kvbound/options.h"

namespace kvbound {

ggml_type ToGgmlType(KvType type);
KvType FromGgmlType(ggml_type type);  // REQUIRES: one of those

// Values that share one block: 32 for q8_0 and q4_0, 1 for the float types.
int64_t BlockSize(KvType type);

}  // namespace kvbound

#endif  // KVBOUND_KV_KV_TYPE_H_
