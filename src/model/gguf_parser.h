#ifndef KVBOUND_MODEL_GGUF_PARSER_H_
#define KVBOUND_MODEL_GGUF_PARSER_H_

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "kvbound/status.h"
#include "model/file_bytes.h"
#include "model/gguf_file.h"
#include "model/gguf_value.h"

namespace kvbound {

// The header of one GGUF file. Views point into the file's bytes.
struct GgufHeader {
  uint32_t version = 0;
  uint64_t alignment = 32;
  std::vector<std::pair<std::string_view, GgufValue>> metadata;  // no key twice
  std::vector<GgufTensor> tensors;                               // no name twice, no overlaps
};

// Reads and checks the whole header of `file` and that every tensor's bytes are there. Memory used
// is proportional to the header bytes that exist, whatever counts and lengths the file announces.
Result<GgufHeader> ParseGguf(const FileBytes& file);

}  // namespace kvbound

#endif  // KVBOUND_MODEL_GGUF_PARSER_H_
