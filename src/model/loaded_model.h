#ifndef KVBOUND_MODEL_LOADED_MODEL_H_
#define KVBOUND_MODEL_LOADED_MODEL_H_

#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "ggml-backend.h"
#include "kvbound/options.h"
#include "kvbound/status.h"
#include "model/model_file.h"
#include "model/weights.h"

namespace kvbound {

// An open model file and its weights on one device: what graphs are built from. Immutable, apart
// from rows computed on first use under a lock; thread-safe.
class LoadedModel {
 public:
  static Result<std::unique_ptr<LoadedModel>> Make(const std::string& path,
                                                   const ModelOptions& options, Weights::Mode mode);

  const HParams& hparams() const { return file_.hparams; }
  const GgufFile& file() const { return file_.file; }
  const Weights& weights() const { return *weights_; }
  const ModelOptions& options() const { return options_; }
  ggml_backend_dev_t device() const { return device_; }
  bool on_cpu() const;

  // The mean over the vocabulary of the rows of the token embedding or of the head: [n_embd].
  // The first call reads the whole matrix.
  std::span<const float> MeanEmbedding() const;
  std::span<const float> MeanHeadRow() const;

 private:
  LoadedModel(CheckedModelFile file, const ModelOptions& options, ggml_backend_dev_t device)
      : file_(std::move(file)), options_(options), device_(device) {}
  std::vector<float> MeanRow(const char* name) const;

  CheckedModelFile file_;
  ModelOptions options_;
  ggml_backend_dev_t device_;
  std::unique_ptr<Weights> weights_;
  mutable std::mutex mean_mutex_;
  mutable std::vector<float> mean_embedding_;
  mutable std::vector<float> mean_head_row_;
};

}  // namespace kvbound

#endif  // KVBOUND_MODEL_LOADED_MODEL_H_
