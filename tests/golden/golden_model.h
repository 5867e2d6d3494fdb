#ifndef KVBOUND_TESTS_GOLDEN_GOLDEN_MODEL_H_
#define KVBOUND_TESTS_GOLDEN_GOLDEN_MODEL_H_

#include <memory>
#include <string>

#include "kvbound/model.h"
#include "kvbound/status.h"

namespace kvbound::golden {

// Loads a model with its weights as f32. `file` is a GGUF of any version (version 1 is rewritten
// as 3 first), or a version-0 checkpoint of llama2.c (.bin), which gets a vocabulary of bytes:
// the cases speak in ids.
Result<std::shared_ptr<const Model>> LoadGoldenModel(const std::string& file);

}  // namespace kvbound::golden

#endif  // KVBOUND_TESTS_GOLDEN_GOLDEN_MODEL_H_
