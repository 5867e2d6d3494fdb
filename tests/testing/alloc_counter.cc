#include "testing/alloc_counter.h"

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define KVBOUND_COUNTS_ALLOCATIONS 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define KVBOUND_COUNTS_ALLOCATIONS 0
#endif
#endif
#ifndef KVBOUND_COUNTS_ALLOCATIONS
#define KVBOUND_COUNTS_ALLOCATIONS 1
#endif

namespace kvbound::testing {

namespace {
std::atomic<int64_t> allocation_count{0};
}  // namespace

int64_t AllocationCount() { return allocation_count.load(); }

bool AllocationCounterWorks() { return KVBOUND_COUNTS_ALLOCATIONS != 0; }

void* CountedAllocate(std::size_t size, std::size_t alignment) {
  allocation_count.fetch_add(1, std::memory_order_relaxed);
  if (size == 0) size = 1;
  void* memory =
      alignment <= alignof(std::max_align_t)
          ? std::malloc(size)
          : std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace kvbound::testing

#if KVBOUND_COUNTS_ALLOCATIONS

// The other forms (arrays, nothrow, sized) call these by default.
void* operator new(std::size_t size) { return kvbound::testing::CountedAllocate(size, 1); }
void* operator new(std::size_t size, std::align_val_t alignment) {
  return kvbound::testing::CountedAllocate(size, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }

#endif
