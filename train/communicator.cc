#include "train/communicator.h"

#include <exception>
#include <utility>

#include "base/strings.h"

#ifdef KVBOUND_HAS_GLOO
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#endif

namespace kvbound::train {
namespace {

class OneProcess : public Communicator {
 public:
  int rank() const override { return 0; }
  int world_size() const override { return 1; }
  Status Sum(const std::vector<torch::Tensor>&) override { return Status::Ok(); }
};

#ifdef KVBOUND_HAS_GLOO

using StorePtr = c10::intrusive_ptr<c10d::Store>;

class GlooProcesses : public Communicator {
 public:
  GlooProcesses(const StorePtr& store, const CommunicatorOptions& options)
      : rank_(options.rank), world_size_(options.world_size) {
    auto gloo = c10d::ProcessGroupGloo::Options::create();
    gloo->devices.push_back(c10d::ProcessGroupGloo::createDefaultDevice());
    group_ = c10::make_intrusive<c10d::ProcessGroupGloo>(store, rank_, world_size_, gloo);
  }

  int rank() const override { return rank_; }
  int world_size() const override { return world_size_; }

  Status Sum(const std::vector<torch::Tensor>& tensors) override {
    const torch::NoGradGuard no_grad;
    std::vector<torch::Tensor> parts;
    for (const torch::Tensor& tensor : tensors) parts.push_back(tensor.reshape({-1}));
    std::vector<torch::Tensor> whole = {torch::cat(parts)};
    try {
      group_->allreduce(whole)->wait();
    } catch (const std::exception& error) {
      return IoError(StrCat("--distributed: rank ", rank_, ": ", error.what()));
    }
    int64_t begin = 0;
    for (torch::Tensor tensor : tensors) {
      tensor.copy_(whole[0].narrow(0, begin, tensor.numel()).view_as(tensor));
      begin += tensor.numel();
    }
    return Status::Ok();
  }

 private:
  int rank_, world_size_;
  c10::intrusive_ptr<c10d::ProcessGroupGloo> group_;
};

Result<StorePtr> MakeStore(const CommunicatorOptions& options) {
  constexpr std::string_view kFile = "file://";
  constexpr std::string_view kTcp = "tcp://";
  const std::string& url = options.init_method;
  if (url.starts_with(kFile)) {
    return StorePtr(
        c10::make_intrusive<c10d::FileStore>(url.substr(kFile.size()), options.world_size));
  }
  const size_t colon = url.rfind(':');
  const std::string port = colon == std::string::npos ? "" : url.substr(colon + 1);
  const bool number = !port.empty() && port.size() <= 5 &&
                      port.find_first_not_of("0123456789") == std::string::npos &&
                      std::stoi(port) <= 65535;
  if (!url.starts_with(kTcp) || !number || colon <= kTcp.size()) {
    return InvalidArgument(
        StrCat("--init-method: expected file:///PATH or tcp://HOST:PORT, found '", url, "'"));
  }
  c10d::TCPStoreOptions tcp;
  tcp.port = static_cast<uint16_t>(std::stoi(port));
  tcp.isServer = options.rank == 0;
  tcp.numWorkers = static_cast<size_t>(options.world_size);
  return StorePtr(
      c10::make_intrusive<c10d::TCPStore>(url.substr(kTcp.size(), colon - kTcp.size()), tcp));
}

#endif

}  // namespace

Result<std::unique_ptr<Communicator>> MakeCommunicator(const CommunicatorOptions& options) {
  if (options.backend.empty()) return std::unique_ptr<Communicator>(new OneProcess());
#ifdef KVBOUND_HAS_GLOO
  try {
    KVBOUND_ASSIGN_OR_RETURN(const StorePtr store, MakeStore(options));
    return std::unique_ptr<Communicator>(new GlooProcesses(store, options));
  } catch (const std::exception& error) {
    return IoError(StrCat("--distributed: rank ", options.rank, ": ", options.init_method, ": ",
                          error.what()));
  }
#else
  return Unsupported(
      "--distributed: this build has no Gloo: its headers were missing (Debian: libgloo-dev)");
#endif
}

}  // namespace kvbound::train
