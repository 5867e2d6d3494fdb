#include "kvbound/model.h"

#include "base/strings.h"
#include "model/loaded_model.h"

namespace kvbound {
namespace {

ModelInfo InfoOf(const std::string& path, const LoadedModel& loaded) {
  const HParams& hp = loaded.hparams();
  ModelInfo info;
  info.path = path;
  info.architecture = ArchName(hp.arch);
  info.name = hp.name;
  info.n_layer = hp.n_layer;
  info.n_embd = hp.n_embd;
  info.n_head = hp.n_head;
  info.n_kv_head = hp.n_kv_head;
  info.head_dim = hp.head_dim;
  info.n_vocab = hp.n_vocab;
  info.n_ctx_train = hp.n_ctx_train;
  info.weight_bytes = loaded.weights().total_bytes();
  for (const WeightBuffer& buffer : loaded.weights().buffers()) {
    info.weight_buffers += StrCat(info.weight_buffers.empty() ? "" : ", ", buffer.name, " ",
                                  buffer.bytes >> 20, " MiB");
  }
  return info;
}

}  // namespace

Model::Model() = default;
Model::~Model() = default;

Result<std::shared_ptr<const Model>> Model::Load(const std::string& path,
                                                 const ModelOptions& options) {
  std::shared_ptr<Model> model(new Model());
  KVBOUND_ASSIGN_OR_RETURN(model->loaded_, LoadedModel::Make(path, options, Weights::Mode::kLoad));
  KVBOUND_ASSIGN_OR_RETURN(model->tokenizer_, Tokenizer::Load(path));
  model->info_ = InfoOf(path, *model->loaded_);
  const GgufFile& file = model->loaded_->file();
  KVBOUND_ASSIGN_OR_RETURN(model->info_.chat_template,
                           file.GetStringOr("tokenizer.chat_template", ""));
  return std::shared_ptr<const Model>(std::move(model));
}

}  // namespace kvbound
