#ifndef KVBOUND_FUZZ_CHANGES_COMMON_H_
#define KVBOUND_FUZZ_CHANGES_COMMON_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "testing/gguf_writer.h"

namespace kvbound::fuzz {

// What an input means: itself if it begins with "GGUF"; else a list of changes (bytes, numbers,
// holes, insertions, an end) to one of `bases`, so that no seeds are needed. A copy of exact size
// on the heap, so that one byte too far is seen.
testing::GgufBytes MakeBytes(const uint8_t* data, size_t size,
                             const std::vector<testing::GgufBytes>& bases);

}  // namespace kvbound::fuzz

#endif  // KVBOUND_FUZZ_CHANGES_COMMON_H_
