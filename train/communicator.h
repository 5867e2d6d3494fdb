#ifndef KVBOUND_TRAIN_COMMUNICATOR_H_
#define KVBOUND_TRAIN_COMMUNICATOR_H_

#include <torch/torch.h>

#include <memory>
#include <string>
#include <vector>

#include "kvbound/status.h"

namespace kvbound::train {

// The processes that train one gate together. Every process makes the same calls in the same order.
class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual int rank() const = 0;
  virtual int world_size() const = 0;

  // Replaces each tensor by its sum over all processes, the same bits everywhere. The tensors have
  // one type. IoError: another process is gone.
  virtual Status Sum(const std::vector<torch::Tensor>& tensors) = 0;
};

struct CommunicatorOptions {
  std::string backend;  // "gloo"; empty: one process
  int rank = 0;
  int world_size = 1;
  std::string init_method;  // "file:///shared/path", a file that is not there yet, or
                            // "tcp://host:port" of process 0
};

// Waits for all processes. InvalidArgument: the init method; Unsupported: a build without Gloo's
// headers; IoError: the others cannot be reached.
Result<std::unique_ptr<Communicator>> MakeCommunicator(const CommunicatorOptions& options);

}  // namespace kvbound::train

#endif  // KVBOUND_TRAIN_COMMUNICATOR_H_
