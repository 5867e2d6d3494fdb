// What a checkpoint of a trainer holds.

#include <string>
#include <utility>

#include "base/hash.h"
#include "base/strings.h"
#include "train/text_files.h"
#include "train/trainer.h"

namespace kvbound::train {

using Json = nlohmann::ordered_json;

namespace {

std::string BaseName(const BaseModel& base) {
  return StrCat(base.architecture, " '", base.name, "', ", base.n_layer, " layers x ", base.n_embd,
                ", ", base.n_kv_head, " KV heads, ", base.n_vocab, " tokens, norms ",
                base.norm_hash);
}

void Add(const std::string& prefix, const std::vector<GateModule::Parameter>& parameters,
         const std::vector<Tensor>& values, Checkpoint* checkpoint) {
  for (size_t i = 0; i < values.size(); ++i) {
    checkpoint->tensors.emplace_back(prefix + parameters[i].name, values[i]);
  }
}

}  // namespace

// Everything that the result depends on.
Json Trainer::ConfigRecord() const {
  const GateShape& shape = gates_->shape();
  return {{"--model", BaseName(DescribeBase(*model_))},
          {"--text", text_records_},
          {"--init", init_hash_},
          {"--stage", config_.stage == Stage::kLocal ? "local" : "full"},
          {"--hidden", shape.n_hidden},
          {"--hidden-layers", shape.n_hidden_layer},
          {"--tie-output", shape.tied_output},
          {"--output-bias", config_.output_bias.value_or(0)},
          {"--memory", config_.memory},
          {"--lambda", config_.capacity_weight},
          {"--capacity", config_.form == CapacityForm::kCode ? "code" : "paper"},
          {"--scope", config_.scope == CapacityScope::kLocal ? "local" : "global"},
          {"--sinks", config_.sinks},
          {"--tokens", config_.tokens},
          {"--seq-len", config_.seq_len},
          {"--no-pack", !config_.pack},
          {"--facts", config_.fact_share},
          {"--seed", config_.seed},
          {"--lr", config_.peak_rate()},
          {"--lr-floor", config_.floor},
          {"--warmup", config_.warmup},
          {"--weight-decay", config_.weight_decay},
          {"--clip", config_.clip},
          {"--accumulate", config_.accumulate},
          {"--world-size", communicator_->world_size()},
          {"--eval-text", config_.eval_files},
          {"--eval-texts", config_.n_eval_text},
          {"--eval-len", config_.eval_len},
          {"--eval-budget", config_.eval_budget},
          {"--eval-every", config_.eval_every},
          {"--type", std::string(GateTypeName(config_.type))}};
}

Status Trainer::Save() const {
  if (!is_main()) return Status::Ok();
  Checkpoint checkpoint;
  checkpoint.config = ConfigRecord();
  checkpoint.state = {{"step", step_},
                      {"sequence", sequence_},
                      {"tokens", tokens_},
                      {"losses", losses_},
                      {"capacities", capacities_},
                      {"best_kl", best_kl_},
                      {"updates", optimizer_->n_step()}};
  const std::vector<GateModule::Parameter>& parameters = gates_->parameters();
  Add("value/", parameters, Values(), &checkpoint);
  Add("first/", parameters, optimizer_->first(), &checkpoint);
  Add("second/", parameters, optimizer_->second(), &checkpoint);
  Add("best/", parameters, best_, &checkpoint);
  KVBOUND_RETURN_IF_ERROR(SaveCheckpoint(checkpoint, config_.checkpoint_path()));
  saved_step_ = step_;
  return Status::Ok();
}

Status Trainer::Resume() {
  if (!config_.resume) return Status::Ok();
  const std::string path = config_.checkpoint_path();
  KVBOUND_ASSIGN_OR_RETURN(const Checkpoint checkpoint, LoadCheckpoint(path));
  KVBOUND_RETURN_IF_ERROR(CheckConfig(path, checkpoint.config, ConfigRecord()));
  std::vector<Tensor> values = checkpoint.Tensors("value/");
  std::vector<Tensor> first = checkpoint.Tensors("first/");
  std::vector<Tensor> second = checkpoint.Tensors("second/");
  std::vector<Tensor> best = checkpoint.Tensors("best/");
  std::vector<GateModule::Parameter>& parameters = gates_->parameters();
  const auto fits = [&](const std::vector<Tensor>& tensors) {
    if (tensors.size() != parameters.size()) return false;
    for (size_t i = 0; i < tensors.size(); ++i) {
      if (tensors[i].sizes() != parameters[i].value.sizes()) return false;
    }
    return true;
  };
  if (!fits(values) || !fits(first) || !fits(second) || (!best.empty() && !fits(best))) {
    return Corrupt(StrCat(path, ": tensors of the checkpoint do not fit the gates"));
  }
  const torch::NoGradGuard no_grad;
  for (size_t i = 0; i < values.size(); ++i) parameters[i].value.copy_(values[i]);
  best_ = std::move(best);
  try {
    const Json& state = checkpoint.state;
    step_ = state.at("step").get<int64_t>();
    sequence_ = state.at("sequence").get<int64_t>();
    tokens_ = state.at("tokens").get<int64_t>();
    losses_ = state.at("losses").get<std::vector<double>>();
    capacities_ = state.at("capacities").get<std::vector<double>>();
    best_kl_ = state.at("best_kl").get<double>();
    optimizer_->Restore(state.at("updates").get<int64_t>(), std::move(first), std::move(second));
  } catch (const Json::exception& error) {
    return Corrupt(StrCat(path, ": state of the checkpoint: ", error.what()));
  }
  saved_step_ = step_;
  Say(StrCat("resumed at step ", step_, " of ", schedule_.n_step, " from ", path));
  return Status::Ok();
}

// All processes must train the same thing from the same step.
Status Trainer::CheckAgreement() {
  const double world = communicator_->world_size();
  constexpr uint64_t kExact = uint64_t{1} << 32;  // sums of them are exact in f64
  const double config = static_cast<double>(Fnv1a64(ConfigRecord().dump()) % kExact);
  const double step = static_cast<double>(step_);
  Tensor sums = torch::tensor({config, step}, torch::kDouble);
  KVBOUND_RETURN_IF_ERROR(communicator_->Sum({sums}));
  // A mean equal to one's own value, in every process, means that all values are equal.
  if (sums[0].item<double>() != config * world) {
    return InvalidArgument("--distributed: the processes have different options, texts or models");
  }
  if (sums[1].item<double>() != step * world) {
    return InvalidArgument(StrCat("--distributed: this process starts at step ", step_,
                                  ", others do not: expected the same checkpoint everywhere"));
  }
  return Status::Ok();
}

}  // namespace kvbound::train
