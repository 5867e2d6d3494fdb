#ifndef KVBOUND_TESTING_ALLOC_COUNTER_H_
#define KVBOUND_TESTING_ALLOC_COUNTER_H_

#include <cstdint>

namespace kvbound::testing {

// Calls of any form of operator new since the program began, in all threads. Memory that C code
// takes from malloc is not counted.
int64_t AllocationCount();

// False in sanitizer builds, whose own operator new stays in place: then the count is always 0,
// and a test that needs it skips.
bool AllocationCounterWorks();

}  // namespace kvbound::testing

#endif  // KVBOUND_TESTING_ALLOC_COUNTER_H_
