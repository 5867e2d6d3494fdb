#include "model/loaded_model.h"

#include <utility>

#include "base/strings.h"
#include "ggml-cpu.h"
#include "text/llama_log.h"

namespace kvbound {
namespace {

std::string DeviceNames() {
  std::string names;
  for (const DeviceInfo& device : ListDevices()) {
    names += (names.empty() ? "" : ", ") + device.name;
  }
  return names;
}

// "cpu" is the CPU; any other name is compared with ggml's, without regard to case.
Result<ggml_backend_dev_t> FindDevice(const std::string& name) {
  if (name == "cpu") return ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
  if (ggml_backend_dev_t device = ggml_backend_dev_by_name(name.c_str())) return device;
  return NotFound(StrCat("--device: expected one of ", DeviceNames(), ", found '", name, "'"));
}

}  // namespace

std::vector<DeviceInfo> ListDevices() {
  InstallLlamaLog();
  std::vector<DeviceInfo> devices;
  for (size_t i = 0; i < ggml_backend_dev_count(); ++i) {
    ggml_backend_dev_t device = ggml_backend_dev_get(i);
    const bool cpu = ggml_backend_dev_type(device) == GGML_BACKEND_DEVICE_TYPE_CPU;
    devices.push_back(
        {cpu ? "cpu" : ggml_backend_dev_name(device), ggml_backend_dev_description(device)});
  }
  return devices;
}

Result<std::unique_ptr<LoadedModel>> LoadedModel::Make(const std::string& path,
                                                       const ModelOptions& options,
                                                       Weights::Mode mode) {
  InstallLlamaLog();
  ggml_cpu_init();
  KVBOUND_ASSIGN_OR_RETURN(ggml_backend_dev_t device, FindDevice(options.device));
  const bool mmap = options.mmap || mode == Weights::Mode::kShapesOnly;
  KVBOUND_ASSIGN_OR_RETURN(CheckedModelFile file, OpenCheckedModel(path, {.mmap = mmap}));
  std::unique_ptr<LoadedModel> model(new LoadedModel(std::move(file), options, device));
  KVBOUND_ASSIGN_OR_RETURN(model->weights_,
                           Weights::Make(model->file_, model->options_, device, mode));
  return model;
}

bool LoadedModel::on_cpu() const {
  return ggml_backend_dev_type(device_) == GGML_BACKEND_DEVICE_TYPE_CPU;
}

std::span<const float> LoadedModel::MeanEmbedding() const {
  std::lock_guard lock(mean_mutex_);
  if (mean_embedding_.empty()) mean_embedding_ = MeanRow("token_embd.weight");
  return mean_embedding_;
}

std::span<const float> LoadedModel::MeanHeadRow() const {
  std::lock_guard lock(mean_mutex_);
  if (mean_head_row_.empty()) {
    const bool tied = file_.file.FindTensor("output.weight") == nullptr;
    mean_head_row_ = MeanRow(tied ? "token_embd.weight" : "output.weight");
  }
  return mean_head_row_;
}

std::vector<float> LoadedModel::MeanRow(const char* name) const {
  const GgufTensor& tensor = *file_.file.FindTensor(name);
  const int64_t n = tensor.ne[0];
  const int64_t n_rows = tensor.ne[1];
  const size_t row_bytes = ggml_row_size(tensor.type, n);
  const ggml_to_float_t to_float = ggml_get_type_traits(tensor.type)->to_float;
  std::vector<float> row(n);
  std::vector<double> sum(n, 0.0);
  for (int64_t r = 0; r < n_rows; ++r) {
    const uint8_t* source = tensor.data + r * row_bytes;
    if (tensor.type == GGML_TYPE_F32) {
      memcpy(row.data(), source, row_bytes);
    } else {
      to_float(source, row.data(), n);
    }
    for (int64_t i = 0; i < n; ++i) sum[i] += row[i];
  }
  for (int64_t i = 0; i < n; ++i) row[i] = static_cast<float>(sum[i] / n_rows);
  return row;
}

}  // namespace kvbound
