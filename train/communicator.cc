#include "train/communicator.h"

#include "base/strings.h"

namespace kvbound::train {
namespace {

class OneProcess : public Communicator {
 public:
  int rank() const override { return 0; }
  int world_size() const override { return 1; }
  Status Sum(std::vector<torch::Tensor>) override { return Status::Ok(); }
  Status Broadcast(std::vector<torch::Tensor>) override { return Status::Ok(); }
};

}  // namespace

Result<std::unique_ptr<Communicator>> MakeCommunicator(const CommunicatorOptions& options) {
  if (options.backend.empty()) return std::unique_ptr<Communicator>(new OneProcess());
  return Unsupported(StrCat("--distributed: ", options.backend));
}

}  // namespace kvbound::train
