#ifndef KVBOUND_TESTING_MALLOC_COUNTER_H_
#define KVBOUND_TESTING_MALLOC_COUNTER_H_

// Counts what C code takes from the heap. Include in one file of a test program only: it replaces
// malloc and its kin for the whole process. Where that cannot be done (sanitizers, another C
// library) the count stays 0.

#include <atomic>
#include <cstddef>
#include <cstdint>

#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define KVBOUND_COUNTS_MALLOC 1
#else
#define KVBOUND_COUNTS_MALLOC 0
#endif
#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#undef KVBOUND_COUNTS_MALLOC
#define KVBOUND_COUNTS_MALLOC 0
#endif
#endif

namespace kvbound::testing {

inline std::atomic<int64_t> malloc_count{0};
inline int64_t MallocCount() { return malloc_count.load(); }

}  // namespace kvbound::testing

#if KVBOUND_COUNTS_MALLOC

extern "C" {
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);

void* malloc(size_t size) {
  kvbound::testing::malloc_count.fetch_add(1, std::memory_order_relaxed);
  return __libc_malloc(size);
}
void* calloc(size_t n, size_t size) {
  kvbound::testing::malloc_count.fetch_add(1, std::memory_order_relaxed);
  return __libc_calloc(n, size);
}
void* realloc(void* memory, size_t size) {
  kvbound::testing::malloc_count.fetch_add(1, std::memory_order_relaxed);
  return __libc_realloc(memory, size);
}
void* aligned_alloc(size_t alignment, size_t size) {
  kvbound::testing::malloc_count.fetch_add(1, std::memory_order_relaxed);
  return __libc_memalign(alignment, size);
}
int posix_memalign(void** memory, size_t alignment, size_t size) {
  kvbound::testing::malloc_count.fetch_add(1, std::memory_order_relaxed);
  *memory = __libc_memalign(alignment, size);
  return *memory == nullptr ? 12 : 0;  // ENOMEM
}
}

#endif  // KVBOUND_COUNTS_MALLOC

#endif  // KVBOUND_TESTING_MALLOC_COUNTER_H_
