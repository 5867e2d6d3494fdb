#ifndef KVBOUND_TESTS_GOLDEN_LLAMA2C_FILE_H_
#define KVBOUND_TESTS_GOLDEN_LLAMA2C_FILE_H_

#include <cstdint>
#include <span>
#include <string>

#include "kvbound/status.h"
#include "testing/gguf_writer.h"

namespace kvbound::golden {

// Rewrites a version-0 checkpoint of llama2.c (7 int32: dim, hidden, layers, heads, kv heads,
// vocabulary (negative = untied), sequence; then f32 tensors) as a GGUF of architecture llama.
// `name` stands in messages.
Result<testing::GgufBytes> Llama2cToGguf(std::span<const uint8_t> bytes, const std::string& name);

}  // namespace kvbound::golden

#endif  // KVBOUND_TESTS_GOLDEN_LLAMA2C_FILE_H_
