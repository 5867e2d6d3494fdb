#ifndef KVBOUND_BASE_HASH_H_
#define KVBOUND_BASE_HASH_H_

#include <cstdint>
#include <string_view>

namespace kvbound {

// FNV-1a, 64 bits. To hash several pieces as one, pass the hash of those before.
inline uint64_t Fnv1a64(std::string_view bytes, uint64_t hash = 0xcbf29ce484222325u) {
  for (const char byte : bytes) hash = (hash ^ static_cast<uint8_t>(byte)) * 0x100000001b3u;
  return hash;
}

}  // namespace kvbound

#endif  // KVBOUND_BASE_HASH_H_
