#ifndef KVBOUND_TESTING_GGUF_UPGRADE_H_
#define KVBOUND_TESTING_GGUF_UPGRADE_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "kvbound/status.h"

namespace kvbound::testing {

// Rewrites a GGUF of version 1 (32-bit lengths, counts and dimensions) as version 3, with the same
// keys and tensors. Another version is returned as it is.
Result<std::vector<uint8_t>> UpgradeGguf(std::span<const uint8_t> bytes);

// Reads `from`, upgrades it and writes `to`.
Status UpgradeGgufFile(const std::string& from, const std::string& to);

}  // namespace kvbound::testing

#endif  // KVBOUND_TESTING_GGUF_UPGRADE_H_
