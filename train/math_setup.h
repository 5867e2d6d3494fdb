#ifndef KVBOUND_TRAIN_MATH_SETUP_H_
#define KVBOUND_TRAIN_MATH_SETUP_H_

namespace kvbound::train {

// For the program, first thing in main. OpenBLAS picks its kernels when it is loaded, and takes the
// slowest ones (a factor of five) on CPUs that it does not know; OpenMP and OpenBLAS read there how
// long threads spin. So, for what the user's environment leaves open, sets OPENBLAS_CORETYPE by
// what the CPU can do, GOMP_SPINCOUNT and OPENBLAS_THREAD_TIMEOUT, and executes the program again.
// Returns if there is nothing to do or if that fails.
void SetUpMathLibraries(char** argv);

// Keeps memory that was freed for the next tensor: pages fresh from the system cost more than the
// arithmetic on them. Sets the threads of torch.
void SetUpTorch(int n_thread);

}  // namespace kvbound::train

#endif  // KVBOUND_TRAIN_MATH_SETUP_H_
