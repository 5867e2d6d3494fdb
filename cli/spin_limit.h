#ifndef KVBOUND_CLI_SPIN_LIMIT_H_
#define KVBOUND_CLI_SPIN_LIMIT_H_

namespace kvbound {

// For programs, first thing in main: ggml's OpenMP threads wait at barriers by spinning, by default
// for milliseconds, so that one other busy process on the same cores makes everything 20 to 500
// times slower. libgomp reads its limit when it is loaded; so, unless the user has set
// GOMP_SPINCOUNT or OMP_WAIT_POLICY, sets the former and executes the program again. Returns if
// there is nothing to do or if that fails.
void LimitOpenMpSpinning(char** argv);

}  // namespace kvbound

#endif  // KVBOUND_CLI_SPIN_LIMIT_H_
