#ifndef KVBOUND_CLI_MATH_ENVIRONMENT_H_
#define KVBOUND_CLI_MATH_ENVIRONMENT_H_

namespace kvbound::cli {

// For programs that use OpenBLAS and OpenMP through libtorch. OpenBLAS picks its kernels when it is
// loaded, and takes the slowest ones (a factor of five) on CPUs that it does not know; both read
// there how long threads spin. So, for what the user's environment leaves open, sets
// OPENBLAS_CORETYPE by what the CPU can do, GOMP_SPINCOUNT and OPENBLAS_THREAD_TIMEOUT. Returns
// whether anything was set: then the program must be executed anew.
bool SetMathEnvironment();

}  // namespace kvbound::cli

#endif  // KVBOUND_CLI_MATH_ENVIRONMENT_H_
