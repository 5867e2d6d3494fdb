#ifndef KVBOUND_BASE_CHECK_H_
#define KVBOUND_BASE_CHECK_H_

#include <cassert>

// For our own mistakes only; what a file, user or request can cause is a Status.
#define DCHECK(condition) assert(condition)

#endif  // KVBOUND_BASE_CHECK_H_
