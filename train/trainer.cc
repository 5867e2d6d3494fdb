#include "train/trainer.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <numeric>
#include <utility>

#include "base/strings.h"
#include "eval/fidelity.h"
#include "eval/texts.h"
#include "train/full_objective.h"
#include "train/local.h"

namespace kvbound::train {
namespace {

constexpr size_t kLossesKept = 20;
constexpr int32_t kEvalChunk = 64;
constexpr int64_t kRowStride = 4;
// Activations of longer sequences are computed again on the way back.
constexpr int64_t kLongestKept = 1024;
constexpr uint64_t kRowStream = 100;  // of Random::ForItem; the dataset has the first ones

void Push(double value, std::vector<double>* last) {
  last->push_back(value);
  if (last->size() > kLossesKept) last->erase(last->begin());
}

double Mean(const std::vector<double>& values) {
  if (values.empty()) return 0;
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

// Names without repetition, some of them if they are many.
std::string Join(std::vector<std::string> names) {
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  constexpr size_t kMost = 20;
  std::string text;
  for (size_t i = 0; i < std::min(names.size(), kMost); ++i) {
    text += StrCat(i == 0 ? "" : ", ", names[i]);
  }
  if (names.size() > kMost) text += StrCat(" and ", names.size() - kMost, " more");
  return text;
}

}  // namespace

Result<std::unique_ptr<Trainer>> Trainer::Make(const TrainConfig& config,
                                               Communicator* communicator,
                                               const TrainObserver& observer) {
  std::unique_ptr<Trainer> trainer(new Trainer(config, communicator, observer));
  KVBOUND_RETURN_IF_ERROR(trainer->CheckFiles());
  KVBOUND_RETURN_IF_ERROR(trainer->LoadModel());
  KVBOUND_RETURN_IF_ERROR(trainer->LoadTexts());
  KVBOUND_RETURN_IF_ERROR(trainer->MakeGates());
  KVBOUND_RETURN_IF_ERROR(trainer->Resume());
  KVBOUND_RETURN_IF_ERROR(trainer->CheckAgreement());
  return trainer;
}

Status Trainer::CheckFiles() const {
  if (!is_main()) return Status::Ok();
  KVBOUND_RETURN_IF_ERROR(CheckWritable(config_.output));
  const std::string checkpoint = config_.checkpoint_path();
  KVBOUND_RETURN_IF_ERROR(CheckWritable(checkpoint));
  if (!config_.resume && std::filesystem::exists(checkpoint)) {
    return InvalidArgument(StrCat(checkpoint,
                                  ": a checkpoint of an unfinished run; go on with --resume, or "
                                  "remove it, or name another with --checkpoint"));
  }
  return Status::Ok();
}

Status Trainer::LoadModel() {
  KVBOUND_ASSIGN_OR_RETURN(model_, Model::Load(config_.model, ModelOptions()));
  KVBOUND_ASSIGN_OR_RETURN(base_, BaseTransformer::Load(config_.model, torch::kFloat));
  return Status::Ok();
}

Status Trainer::LoadTexts() {
  KVBOUND_ASSIGN_OR_RETURN(const TextCorpus corpus, ReadTexts(config_.texts));
  for (const TextFile& file : corpus.files) text_records_.push_back(file.Describe());
  DatasetOptions options;
  options.seq_len = config_.seq_len;
  options.pack = config_.pack;
  options.fact_share = config_.fact_share;
  options.seed = config_.seed;
  KVBOUND_ASSIGN_OR_RETURN(dataset_, Dataset::Make(model_->shared_tokenizer(), corpus, options));
  for (const Skipped& skipped : dataset_->skipped()) {
    Say(StrCat("skipped ", skipped.name, ": ", skipped.reason));
  }
  if (!config_.eval_files.empty()) {
    KVBOUND_ASSIGN_OR_RETURN(const std::vector<eval::TextWindow> windows,
                             eval::CutWindows(model_->tokenizer(), config_.eval_files,
                                              config_.n_eval_text, config_.eval_len));
    for (const eval::TextWindow& window : windows) eval_texts_.push_back(window.tokens);
  }
  const double per_sequence =
      std::min(static_cast<double>(config_.seq_len),
               static_cast<double>(dataset_->n_token()) / dataset_->n_sequence());
  const double per_step = per_sequence * config_.accumulate * communicator_->world_size();
  schedule_.n_step = std::max<int64_t>(std::llround(config_.tokens / per_step), 1);
  schedule_.n_warmup = std::llround(config_.warmup * schedule_.n_step);
  schedule_.peak = config_.peak_rate();
  schedule_.floor = schedule_.peak * config_.floor;
  return Status::Ok();
}

Status Trainer::MakeGates() {
  if (!config_.init.empty()) {
    KVBOUND_ASSIGN_OR_RETURN(const std::shared_ptr<const Gates> init, Gates::Load(config_.init));
    KVBOUND_RETURN_IF_ERROR(init->CheckBase(*model_));
    KVBOUND_ASSIGN_OR_RETURN(GateModule module, GateModule::FromGates(*init));
    gates_ = std::make_unique<GateModule>(std::move(module));
    before_ = init->parts().training;
    KVBOUND_ASSIGN_OR_RETURN(init_hash_, HashFile(config_.init));
  } else {
    const ModelInfo& info = model_->info();
    GateShape shape;
    shape.n_layer = info.n_layer;
    shape.n_embd = info.n_embd;
    shape.n_kv_head = info.n_kv_head;
    shape.n_hidden = config_.n_hidden.value_or(shape.n_hidden);
    shape.n_hidden_layer = config_.n_hidden_layer.value_or(shape.n_hidden_layer);
    shape.tied_output = config_.tied_output.value_or(shape.tied_output);
    gates_ = std::make_unique<GateModule>(shape, config_.output_bias.value_or(6.0), config_.seed);
  }
  AdamOptions options;
  options.weight_decay = config_.weight_decay;
  optimizer_ = std::make_unique<AdamW>(&gates_->parameters(), options);
  return Status::Ok();
}

Trainer::SequenceLoss Trainer::Backward(const Sequence& sequence, int64_t index,
                                        double grad_scale) {
  SequenceLoss loss;
  if (config_.stage == Stage::kLocal) {
    LocalOptions options;
    options.memory = config_.memory;
    options.capacity_weight = config_.capacity_weight;
    options.form = config_.form;
    options.scope = config_.scope;
    options.exempt = config_.sinks;
    options.stride = kRowStride;
    options.offset = static_cast<int64_t>(
        Random::ForItem(config_.seed, kRowStream, static_cast<uint64_t>(index)).Below(kRowStride));
    options.grad_scale = grad_scale;
    const LocalLoss local = LocalObjective(*base_, *gates_, sequence, options);
    return {local.total, local.attention, local.capacity, local.kept, local.n_row};
  }
  FullOptions options;
  options.checkpoint = config_.seq_len > kLongestKept;
  options.memory = config_.memory;
  options.capacity_weight = config_.capacity_weight;
  options.form = config_.form;
  options.scope = config_.scope;
  options.exempt = config_.sinks;
  options.grad_scale = grad_scale;
  const FullLoss full = FullObjective(*base_, *gates_, sequence, options);
  return {full.total, options.kl_weight * full.kl + options.ce_weight * full.ce, full.capacity, 0,
          full.n_target};
}

// The next sequences of this process, and their gradients. Losses are means over all processes'
// sequences that had something to learn from.
Result<Trainer::BatchLoss> Trainer::RunBatch() {
  const int64_t world = communicator_->world_size();
  const double grad_scale = 1.0 / static_cast<double>(config_.accumulate * world);
  BatchLoss batch;
  SequenceLoss sum;
  int64_t n = 0;
  for (int64_t i = 0; i < config_.accumulate; ++i) {
    const int64_t index = sequence_ + i * world + communicator_->rank();
    KVBOUND_ASSIGN_OR_RETURN(const Sequence sequence, dataset_->Get(index));
    const SequenceLoss loss = Backward(sequence, index, grad_scale);
    batch.tokens += sequence.tokens.size(0);
    batch.names.insert(batch.names.end(), sequence.names.begin(), sequence.names.end());
    if (loss.n_term == 0) continue;
    ++n;
    sum.total += loss.total;
    sum.quality += loss.quality;
    sum.capacity += loss.capacity;
    sum.kept += loss.kept;
  }
  sequence_ += config_.accumulate * world;
  Tensor numbers = torch::tensor({sum.total, sum.quality, sum.capacity, sum.kept,
                                  static_cast<double>(n), static_cast<double>(batch.tokens)},
                                 torch::kDouble);
  KVBOUND_RETURN_IF_ERROR(communicator_->Sum({numbers}));
  const double* all = numbers.data_ptr<double>();
  batch.finite = std::isfinite(all[0]);
  batch.mean.n_term = static_cast<int64_t>(all[4]);
  batch.tokens = static_cast<int64_t>(all[5]);
  if (batch.mean.n_term > 0) {
    batch.mean.total = all[0] / all[4];
    batch.mean.quality = all[1] / all[4];
    batch.mean.capacity = all[2] / all[4];
    batch.mean.kept = all[3] / all[4];
  }
  return batch;
}

Status Trainer::NotFinite(const char* what, const BatchLoss& batch) const {
  const std::string good =
      saved_step_ >= 0 ? StrCat(config_.checkpoint_path(), " (step ", saved_step_, ")") : "none";
  return Internal(StrCat("step ", step_ + 1, ": ", what, " is not finite (", batch.mean.total,
                         "); documents of the batch: ", Join(batch.names),
                         "; last good checkpoint: ", good, "; nothing was overwritten"));
}

Result<bool> Trainer::Step() {
  KVBOUND_ASSIGN_OR_RETURN(const BatchLoss batch, RunBatch());
  if (!batch.finite) return NotFinite("the loss", batch);
  tokens_ += batch.tokens;
  std::vector<Tensor> grads;
  for (GateModule::Parameter& parameter : gates_->parameters()) {
    Tensor& grad = parameter.value.mutable_grad();
    if (!grad.defined()) grad = torch::zeros_like(parameter.value.detach());
    if (batch.mean.n_term == 0) grad.zero_();
    grads.push_back(grad);
  }
  if (batch.mean.n_term == 0) return false;
  KVBOUND_RETURN_IF_ERROR(communicator_->Sum(grads));
  const double norm = ClipGradients(gates_->parameters(), config_.clip);
  if (!std::isfinite(norm)) return NotFinite("the gradient", batch);
  const double rate = schedule_.At(step_);
  optimizer_->Step(rate);
  ++step_;
  last_ = {step_,
           schedule_.n_step,
           tokens_,
           batch.mean.total,
           batch.mean.quality,
           batch.mean.capacity,
           batch.mean.kept,
           rate,
           norm};
  Push(batch.mean.total, &losses_);
  Push(batch.mean.capacity, &capacities_);
  return true;
}

bool Trainer::EvaluatesAt(int64_t step) const {
  return !config_.eval_files.empty() &&
         (step % config_.eval_every == 0 || step == schedule_.n_step);
}

Status Trainer::Evaluate() {
  if (!is_main()) return Status::Ok();
  eval::FidelityPolicy policy;
  policy.label = "gates";
  policy.policy.name = "retention";
  policy.protection.sinks = static_cast<int32_t>(config_.sinks);
  policy.budget = config_.eval_budget;
  KVBOUND_ASSIGN_OR_RETURN(policy.gates, ToGates());
  eval::FidelityOptions options;
  options.chunk = kEvalChunk;
  options.skip = std::min(options.skip, config_.eval_len / 2);
  KVBOUND_ASSIGN_OR_RETURN(const std::vector<eval::FidelityResult> results,
                           eval::MeasureFidelity(model_, eval_texts_, {policy}, options));
  const double kl = results[0].kl();
  const bool best = best_.empty() || kl < best_kl_;
  if (best) {
    best_kl_ = kl;
    best_ = Values();
  }
  if (observer_.on_evaluation) observer_.on_evaluation({step_, kl, best});
  return Status::Ok();
}

Status Trainer::Run() {
  int64_t n_idle = 0;
  while (step_ < schedule_.n_step) {
    KVBOUND_ASSIGN_OR_RETURN(const bool learnt, Step());
    if (!learnt) {
      n_idle += config_.accumulate * communicator_->world_size();
      if (n_idle < dataset_->n_sequence()) continue;
      return InvalidArgument("--text: no sequence has a token that another one precedes");
    }
    n_idle = 0;
    if (EvaluatesAt(step_)) KVBOUND_RETURN_IF_ERROR(Evaluate());
    Tensor stop = torch::zeros({1}, torch::kDouble);
    if (observer_.on_step && !observer_.on_step(last_)) stop[0] = 1;
    KVBOUND_RETURN_IF_ERROR(communicator_->Sum({stop}));
    const bool stopped = stop.item<double>() > 0 && step_ < schedule_.n_step;
    if (!stopped && step_ % config_.checkpoint_every == 0) {
      // Training goes on: the disk may have room by the next one.
      if (const Status saved = Save(); !saved.ok()) Say(saved.message());
    }
    if (stopped) {
      KVBOUND_RETURN_IF_ERROR(Save());
      return Cancelled(StrCat("stopped at step ", step_, " of ", schedule_.n_step,
                              "; go on with --resume (", config_.checkpoint_path(), ")"));
    }
  }
  return Finish();
}

// The checkpoint goes only when the gates are safe.
Status Trainer::Finish() {
  if (!is_main()) return Status::Ok();
  if (!best_.empty()) {
    const torch::NoGradGuard no_grad;
    for (size_t i = 0; i < best_.size(); ++i) gates_->parameters()[i].value.copy_(best_[i]);
  }
  KVBOUND_ASSIGN_OR_RETURN(const std::shared_ptr<const Gates> gates, ToGates());
  if (const Status written = gates->Save(config_.output); !written.ok()) {
    const Status saved = Save();
    return saved.ok() ? Status(written.code(), StrCat(written.message(), "; go on with --resume (",
                                                      config_.checkpoint_path(), ")"))
                      : written;
  }
  std::error_code ignored;
  std::filesystem::remove(config_.checkpoint_path(), ignored);
  Say(StrCat("wrote ", config_.output));
  return Status::Ok();
}

std::vector<Tensor> Trainer::Values() const {
  std::vector<Tensor> values;
  for (const GateModule::Parameter& parameter : gates_->parameters()) {
    values.push_back(parameter.value.detach().clone());
  }
  return values;
}

Result<std::shared_ptr<const Gates>> Trainer::ToGates() const {
  Gates::Parts parts;
  parts.base = DescribeBase(*model_);
  parts.activation = gates_->shape().activation;
  parts.tied_output = gates_->shape().tied_output;
  parts.layers = gates_->ToLayers();
  GateTraining& training = parts.training;
  const std::string method = config_.stage == Stage::kLocal ? "local" : "full";
  training.method = before_.method.empty() ? method : StrCat(before_.method, ", ", method);
  training.texts = text_records_;
  for (const std::string& text : before_.texts) {
    if (std::find(training.texts.begin(), training.texts.end(), text) == training.texts.end()) {
      training.texts.push_back(text);
    }
  }
  training.tokens = before_.tokens + tokens_;
  training.steps = before_.steps + step_;
  training.seq_len = config_.seq_len;
  training.memory = config_.memory;
  training.seed = config_.seed;
  training.fact_share = config_.fact_share;
  training.loss = Mean(losses_);
  training.capacity_loss = Mean(capacities_);
  training.eviction_kl = best_kl_;
  KVBOUND_ASSIGN_OR_RETURN(const std::shared_ptr<const Gates> gates, Gates::Make(std::move(parts)));
  return gates->ConvertTo(config_.type);
}

}  // namespace kvbound::train
