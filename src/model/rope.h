#ifndef KVBOUND_MODEL_ROPE_H_
#define KVBOUND_MODEL_ROPE_H_

#include "kv/key_rotation.h"
#include "model/loaded_model.h"

namespace kvbound {

// The angles of the model's ggml_rope_ext per position, with its factors, linear scaling and YaRN:
// what turns a stored key on. YaRN's magnitude is in the key already. REQUIRES: loaded weights.
KeyRotation RotationOf(const LoadedModel& model);

}  // namespace kvbound

#endif  // KVBOUND_MODEL_ROPE_H_
