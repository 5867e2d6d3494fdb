#include "generate/engine_impl.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "base/check.h"
#include "base/strings.h"
#include "model/rope.h"

namespace kvbound {

Result<std::unique_ptr<EngineImpl>> EngineImpl::Create(std::shared_ptr<const Model> model,
                                                       const EngineOptions& options) {
  std::unique_ptr<EngineImpl> impl(new EngineImpl());
  impl->model = std::move(model);
  const LoadedModel& loaded = impl->model->loaded();
  KVBOUND_ASSIGN_OR_RETURN(impl->shape, ShapeEngine(loaded, options));
  EngineShape& shape = impl->shape;
  ggml_backend_buffer_type_t buffer_type = ggml_backend_dev_buffer_type(loaded.device());
  KVBOUND_ASSIGN_OR_RETURN(impl->store,
                           KvStore::Create(shape.layout, buffer_type, RotationOf(loaded)));
  if (shape.gates) {
    KVBOUND_RETURN_IF_ERROR(shape.gates->CheckBase(*impl->model));
    KVBOUND_ASSIGN_OR_RETURN(impl->gates,
                             LoadedGates::Make(shape.gates, loaded, Weights::Mode::kLoad));
    impl->gate_output_.resize(LoadedGates::OutputSize(*shape.gates, shape.inputs.tokens));
  }
  const GraphSources sources{loaded, impl->store->layout(), impl->store->tensors(),
                             shape.options.attention, impl->gates.get()};
  KVBOUND_ASSIGN_OR_RETURN(const RunnerSizes sizes, GraphRunner::Measure(sources, shape.runner));
  impl->plan = MakePlan(loaded, impl->gates.get(), shape, sizes);
  KVBOUND_ASSIGN_OR_RETURN(impl->runner, GraphRunner::Create(sources, shape.runner));
  impl->inputs.emplace(shape.inputs);
  if (shape.policy.model_score != ModelScore::kNone) {
    impl->scratch.emplace(shape.layout, loaded.hparams());
  }
  const size_t n_rows = shape.options.n_seq + shape.options.max_logit_rows;
  impl->logits_.resize(n_rows * loaded.hparams().n_vocab);
  impl->sessions.resize(shape.options.n_seq, nullptr);
  impl->runs_.reserve(shape.options.n_seq);
  impl->batch_.reserve(shape.options.n_seq);
  return impl;
}

std::span<float> EngineImpl::logits(int32_t seq) {
  const size_t n_vocab = hparams().n_vocab;
  return std::span(logits_).subspan(seq * n_vocab, n_vocab);
}

std::span<float> EngineImpl::all_logits(int32_t n_rows) {
  const size_t n_vocab = hparams().n_vocab;
  return std::span(logits_).subspan(shape.options.n_seq * n_vocab, n_rows * n_vocab);
}

void EngineImpl::FindRuns(std::span<const int32_t> seqs) {
  runs_.clear();
  for (int32_t seq : seqs) {
    if (!runs_.empty() && runs_.back().first + runs_.back().count == seq) {
      ++runs_.back().count;
    } else {
      runs_.push_back({seq, 1});
    }
  }
}

// The targets are the rows whose logits are wanted: the last token of each sequence, or all of one.
// The last n_tok slots of each sequence hold the tokens of this pass; slots before them are older,
// so every token sees them all, and of its own chunk what stands not after it.
void EngineImpl::FillInputs(std::span<const int32_t> seqs, int32_t n_tok, int32_t n_kv,
                            int32_t n_out) {
  int32_t at = 0;
  for (int32_t seq : seqs) {
    const int32_t first = store->n(seq) - n_tok;
    const int32_t n_head = hparams().n_kv_head;
    if (!inputs->has_mask()) {
      std::fill_n(inputs->occupied.begin() + at / n_tok * n_head, n_head, store->n(seq));
    }
    const std::span<const Token> tokens = store->tokens(seq, 0).subspan(first);
    // New tokens have the same RoPE positions in every set.
    const std::span<const RopePosition> positions = store->rope_positions(seq, 0).subspan(first);
    for (int32_t i = 0; i < n_tok; ++i, ++at) {
      inputs->tokens[at] = tokens[i];
      inputs->positions[at] = positions[i].value;
      inputs->slots[at] = first + i;
      inputs->visible[at] = {0, n_tok - 1 - i};
      if (!inputs->has_mask()) continue;
      const std::span<float> mask = inputs->MaskRow(at, n_kv);
      std::fill(mask.begin(), mask.begin() + first + i + 1, 0.0f);
      std::fill(mask.begin() + first + i + 1, mask.end(), kMasked);
    }
  }
  for (int32_t i = 0; i < n_out; ++i) inputs->targets[i] = at - n_out + i;
}

Status EngineImpl::Forward(std::span<const int32_t> seqs, int32_t n_tok, Want want) {
  DCHECK(n_tok == 1 || seqs.size() == 1);
  int32_t most = 0;
  for (int32_t seq : seqs) most = std::max(most, store->n(seq));
  GraphSpec spec;
  spec.n_tok = n_tok;
  spec.n_seq = static_cast<int32_t>(seqs.size());
  spec.n_kv = GroupedSlots(most);
  if (want == Want::kLast) spec.n_out = spec.n_seq;
  if (want == Want::kAll) spec.n_out = n_tok;
  FindRuns(seqs);
  FillInputs(seqs, n_tok, spec.n_kv, spec.n_out);
  KVBOUND_ASSIGN_OR_RETURN(const Graph* graph, runner->Get(spec, runs_));
  inputs->Upload(*graph);
  KVBOUND_RETURN_IF_ERROR(runner->Compute(*graph));
  if (gates) KVBOUND_RETURN_IF_ERROR(ReadLogBeta(*graph, seqs, n_tok));
  if (want != Want::kNothing) KVBOUND_RETURN_IF_ERROR(ReadLogits(*graph, seqs, n_tok, want));
  // Last, since it changes older slots too.
  if (graph->attention_mass != nullptr) ReadAttentionMass(*graph, seqs);
  return Status::Ok();
}

// Only fused attention computes it, on the CPU.
void EngineImpl::ReadAttentionMass(const Graph& graph, std::span<const int32_t> seqs) {
  const ggml_tensor* mass = graph.attention_mass;
  const std::span all(static_cast<const float*>(mass->data), ggml_nelements(mass));
  const size_t stride = mass->ne[0], n = stride * mass->ne[1];  // of a head, of a sequence
  for (int32_t layer = 0; layer < hparams().n_layer; ++layer) {
    for (size_t i = 0; i < seqs.size(); ++i) {
      store->AddAttentionMass(seqs[i], layer, all.subspan((layer * seqs.size() + i) * n, n),
                              stride);
    }
  }
}

Status EngineImpl::ReadLogBeta(const Graph& graph, std::span<const int32_t> seqs, int32_t n_tok) {
  const size_t n = size_t(n_tok) * hparams().n_kv_head;  // of one sequence
  for (int32_t layer = 0; layer < hparams().n_layer; ++layer) {
    const ggml_tensor* output = graph.gate_outputs[layer];
    const std::span<float> values = std::span(gate_output_).first(ggml_nelements(output));
    ReadOutput(output, 0, values);
    const std::span<const float> log_beta = gates->LogBeta(layer, values, output->ne[1]);
    for (size_t i = 0; i < seqs.size(); ++i) {
      store->WriteLogBeta(seqs[i], layer, log_beta.subspan(i * n, n));
    }
  }
  return Status::Ok();
}

Status EngineImpl::ReadLogits(const Graph& graph, std::span<const int32_t> seqs, int32_t n_tok,
                              Want want) {
  const size_t n_vocab = hparams().n_vocab;
  if (want == Want::kAll) {
    const std::span<float> rows = all_logits(n_tok);
    ReadOutput(graph.logits, 0, rows);
    for (int32_t i = 0; i < n_tok; ++i) {
      KVBOUND_RETURN_IF_ERROR(
          CheckFinite(rows.subspan(i * n_vocab, n_vocab), seqs[0], store->n(seqs[0]) - n_tok + i));
    }
    std::ranges::copy(rows.last(n_vocab), logits(seqs[0]).begin());
    return Status::Ok();
  }
  for (size_t i = 0; i < seqs.size(); ++i) {
    ReadOutput(graph.logits, i * n_vocab, logits(seqs[i]));
    KVBOUND_RETURN_IF_ERROR(CheckFinite(logits(seqs[i]), seqs[i], store->n(seqs[i]) - 1));
  }
  return Status::Ok();
}

Status EngineImpl::CheckFinite(std::span<const float> row, int32_t seq, int32_t slot) const {
  float sum = 0.0f;  // of x - x: zero unless some x is infinite or no number
  for (float x : row) sum += x - x;
  if (sum == 0.0f) return Status::Ok();
  const auto bad = std::ranges::find_if(row, [](float x) { return !std::isfinite(x); });
  const int32_t position = store->positions(seq, 0)[slot].value;
  return Corrupt(StrCat(model->info().path, ": logits after position ", position,
                        " are not finite (token ", bad - row.begin(),
                        "): the weights hold NaN or "
                        "overflow"));
}

Status EngineImpl::CheckTokens(std::span<const Token> tokens) const {
  const int32_t n_vocab = hparams().n_vocab;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] >= 0 && tokens[i] < n_vocab) continue;
    return InvalidArgument(
        StrCat("token ", i, ": expected an id in [0, ", n_vocab, "), found ", tokens[i]));
  }
  return Status::Ok();
}

Status EngineImpl::CheckBatch(std::span<Session* const> batch) const {
  for (Session* session : batch) {
    if (session == nullptr || &session->impl().engine != this) {
      return InvalidArgument("step: expected sessions of this engine, found another");
    }
    if (std::ranges::count(batch, session) > 1) {
      return InvalidArgument("step: expected each session once, found one twice");
    }
  }
  return Status::Ok();
}

Status EngineImpl::Step(std::span<Session* const> batch, std::span<const Token> tokens) {
  KVBOUND_RETURN_IF_ERROR(CheckBatch(batch));
  for (Session* session : batch) KVBOUND_RETURN_IF_ERROR(session->impl().CheckRoom(1));
  for (size_t i = 0; i < batch.size(); ++i) {
    KVBOUND_RETURN_IF_ERROR(batch[i]->impl().BeforeAppend(tokens[i]));
  }
  const auto begin = std::chrono::steady_clock::now();
  batch_.clear();
  Status status;
  for (size_t i = 0; i < batch.size() && status.ok(); ++i) {
    Session::Impl& session = batch[i]->impl();
    status = store->Append(session.seq, tokens.subspan(i, 1),
                           Position{static_cast<int32_t>(session.stats.tokens_seen)});
    if (status.ok()) batch_.push_back(session.seq);
  }
  std::ranges::sort(batch_);
  if (status.ok()) status = Forward(batch_, 1, Want::kLast);
  if (!status.ok()) {
    for (int32_t seq : batch_) store->Rollback(seq, 1);
    return status;
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  for (size_t i = 0; i < batch.size(); ++i) {
    Session::Impl& session = batch[i]->impl();
    session.AfterAppend(tokens.subspan(i, 1));
    session.stats.decode_seconds += seconds.count() / batch.size();
    ++session.stats.decoded_tokens;
    session.last_was_decoded = true;
  }
  for (Session* session : batch) {
    Status cut = session->impl().CutAfterStep();
    if (status.ok()) status = std::move(cut);
  }
  return status;
}

MemoryPlan EngineImpl::Allocated() const {
  MemoryPlan allocated = plan;
  const RunnerSizes sizes = runner->allocated();
  const auto set = [&](std::string_view name, uint64_t bytes) {
    for (MemoryPart& part : allocated.parts) {
      if (part.name == name) part.bytes = bytes;
    }
  };
  set("K", store->allocated_k_bytes());
  set("V", store->allocated_v_bytes());
  set("hidden rows", store->allocated_hidden_bytes());
  set("log beta", store->allocated_log_beta_bytes());
  set("attention mass", store->allocated_attention_mass_bytes());
  set("gates", gates ? gates->total_bytes() : 0);
  set("compute", sizes.compute_bytes);
  set("scratch", sizes.work_bytes);
  set("graphs", sizes.graph_bytes);
  set("logits", logits_.capacity() * sizeof(float));
  uint64_t host = store->allocated_host_bytes() + inputs->allocated_bytes();
  host += gate_output_.capacity() * sizeof(float);
  if (scratch) {
    host += scratch->allocated_bytes();
    host += uint64_t(shape.options.n_seq) * hparams().n_vocab * sizeof(int32_t);
  }
  set("host", host);
  return allocated;
}

}  // namespace kvbound
