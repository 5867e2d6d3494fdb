#ifndef KVBOUND_TRAIN_TORCH_SETUP_H_
#define KVBOUND_TRAIN_TORCH_SETUP_H_

namespace kvbound::train {

// For programs. Sets the threads of torch and OpenBLAS (0: as many as the process may use), and
// keeps memory that was freed for the next tensor: pages fresh from the system cost more than the
// arithmetic on them.
void SetUpTorch(int n_thread);

}  // namespace kvbound::train

#endif  // KVBOUND_TRAIN_TORCH_SETUP_H_
