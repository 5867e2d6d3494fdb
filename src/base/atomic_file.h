#ifndef KVBOUND_BASE_ATOMIC_FILE_H_
#define KVBOUND_BASE_ATOMIC_FILE_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "kvbound/status.h"

namespace kvbound {

// Writes `pieces`, one after the other, to a new file beside `path`, flushes it to the device and
// renames it to `path`: the path holds either all of them or what it held before. Refuses a path
// that is a directory, a device or not writable. Errors name the path and what the system said.
Status WriteFileAtomically(const std::string& path,
                           const std::vector<std::span<const uint8_t>>& pieces);

}  // namespace kvbound

#endif  // KVBOUND_BASE_ATOMIC_FILE_H_
