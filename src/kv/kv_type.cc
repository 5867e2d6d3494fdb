#include "kv/kv_type.h"

namespace kvbound {

ggml_type ToGgmlType(KvType type) {
  switch (type) {
    case KvType::kF32:
      return GGML_TYPE_F32;
    case KvType::kF16:
      return GGML_TYPE_F16;
    case KvType::kBF16:
      return GGML_TYPE_BF16;
    case KvType::kQ8_0:
      return GGML_TYPE_Q8_0;
    case KvType::kQ4_0:
      return GGML_TYPE_Q4_0;
  }
  return GGML_TYPE_F16;
}

KvType FromGgmlType(ggml_type type) {
  for (KvType t : {KvType::kF32, KvType::kF16, KvType::kBF16, KvType::kQ8_0}) {
    if (ToGgmlType(t) == type) return t;
  }
  return KvType::kQ4_0;
}

int64_t BlockSize(KvType type) { return ggml_blck_size(ToGgmlType(type)); }

}  // namespace kvbound
