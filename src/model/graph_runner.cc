#include "model/graph_runner.h"

#include <algorithm>

#include "base/check.h"
#include "base/strings.h"
#include "ggml-alloc.h"
#include "ggml-backend.h"

namespace kvbound {
namespace {

size_t GraphSlotBytes(const RunnerOptions& options, const GraphSources& sources) {
  int64_t n_tensors = 0;
  for (const GraphCase& c : options.cases) {
    n_tensors = std::max(n_tensors, MaxGraphTensors(sources, static_cast<int32_t>(c.runs.size())));
  }
  return n_tensors * ggml_tensor_overhead() + ggml_graph_overhead_custom(n_tensors, false);
}

ggml_backend_buffer_type_t BufferType(const LoadedModel& model) {
  return ggml_backend_dev_buffer_type(model.device());
}

Status CheckOperators(const LoadedModel& model, ggml_cgraph* nodes) {
  for (int i = 0; i < ggml_graph_n_nodes(nodes); ++i) {
    ggml_tensor* node = ggml_graph_node(nodes, i);
    if (ggml_backend_dev_supports_op(model.device(), node)) continue;
    const char* type = node->src[0] != nullptr ? ggml_type_name(node->src[0]->type) : "f32";
    return Unsupported(StrCat(model.file().path(), ": device ",
                              ggml_backend_dev_name(model.device()), " cannot compute ",
                              ggml_op_desc(node), " of ", type));
  }
  return Status::Ok();
}

// Adds one built graph to the sizes; true if it is the largest so far.
Result<bool> MeasureGraph(const GraphSources& sources, const RunnerOptions& options,
                          ggml_cgraph* nodes, RunnerSizes* sizes) {
  KVBOUND_RETURN_IF_ERROR(CheckOperators(sources.model, nodes));
  ggml_gallocr_ptr allocator(ggml_gallocr_new(BufferType(sources.model)));
  size_t bytes = 0;
  ggml_gallocr_reserve_n_size(allocator.get(), nodes, nullptr, nullptr, &bytes);
  if (sources.model.on_cpu()) {
    const ggml_cplan plan = ggml_graph_plan(nodes, options.n_threads, nullptr);
    sizes->work_bytes = std::max<uint64_t>(sizes->work_bytes, plan.work_size);
  }
  if (bytes <= sizes->compute_bytes) return false;
  sizes->compute_bytes = bytes;
  return true;
}

// Counters that the fused attention of any case needs. Its operators run one after the other.
size_t Counters(const GraphSources& sources, const RunnerOptions& options) {
  size_t n = 0;
  if (sources.attention != AttentionPath::kFused) return n;
  for (const GraphCase& c : options.cases) {
    const AttentionShape shape = FusedShape(sources, c.spec);
    n = std::max(n, AttentionCounters(shape));
  }
  return n;
}

// More slots do not always need more memory: ggml places tensors by best fit, and what grows with
// the slots fits now one gap, now another. Beyond this many slots it outweighs all else: the
// attention weights a token's activations, V turned row-major an f32 copy of a matrix.
int32_t IrregularSlots(const HParams& hp) {
  const int64_t activations = 2 * (2 * hp.n_ff + 4 * hp.n_embd) / hp.n_head;
  const int64_t copied = std::min(int64_t{hp.n_ff} * hp.n_embd, kMaxCopiedElements);
  const int64_t copies = 2 * copied / (int64_t{hp.n_kv_head} * hp.head_dim);  // f32 against f16
  return GroupedSlots(static_cast<int32_t>(std::max(activations, copies)));
}

}  // namespace

Result<RunnerSizes> GraphRunner::Measure(const GraphSources& sources,
                                         const RunnerOptions& options) {
  RunnerSizes sizes;
  sizes.graph_slot_bytes = GraphSlotBytes(options, sources);
  sizes.graph_bytes = sizes.graph_slot_bytes * options.n_cached;
  ggml_context_ptr context(ggml_init({sizes.graph_slot_bytes, nullptr, true}));
  for (GraphCase c : options.cases) {
    const int32_t n_slot = c.spec.n_kv;
    for (int32_t n_kv = kSlotGroup; n_kv <= n_slot; n_kv += kSlotGroup) {
      if (n_kv < n_slot && n_kv > IrregularSlots(sources.model.hparams())) n_kv = n_slot;
      c.spec.n_kv = n_kv;
      ggml_reset(context.get());
      const Graph graph = BuildGraph(context.get(), sources, c.spec, c.runs);
      KVBOUND_ASSIGN_OR_RETURN(const bool largest,
                               MeasureGraph(sources, options, graph.nodes, &sizes));
      if (largest) sizes.largest = c;
    }
  }
  if (options.vocab_block_rows > 0) {
    ggml_reset(context.get());
    const Graph graph = BuildVocabBlock(context.get(), sources, 0, options.vocab_block_rows,
                                        options.vocab_block_cols);
    KVBOUND_ASSIGN_OR_RETURN(const bool largest,
                             MeasureGraph(sources, options, graph.nodes, &sizes));
    if (largest) sizes.largest.reset();
  }
  sizes.n_counter = Counters(sources, options);
  sizes.work_bytes += sizes.n_counter * sizeof(std::atomic<int32_t>);
  return sizes;
}

Result<RunnerSizes> GraphRunner::MeasureShapes(const LoadedModel& model, const KvLayout& layout,
                                               const LoadedGates* gates, AttentionPath attention,
                                               const RunnerOptions& options) {
  ggml_context_ptr context(
      ggml_init({(2 * layout.n_layer + 1) * ggml_tensor_overhead(), nullptr, true}));
  const KvTensors tensors = KvTensors::Declare(layout, context.get());
  for (ggml_tensor* t = ggml_get_first_tensor(context.get()); t != nullptr;
       t = ggml_get_next_tensor(context.get(), t)) {
    t->data = reinterpret_cast<void*>(uintptr_t{4096});  // no graph allocator gives it a place
  }
  return Measure({model, layout, tensors, attention, gates}, options);
}

Result<std::unique_ptr<GraphRunner>> GraphRunner::Create(const GraphSources& sources,
                                                         const RunnerOptions& options) {
  KVBOUND_ASSIGN_OR_RETURN(const RunnerSizes sizes, Measure(sources, options));
  std::unique_ptr<GraphRunner> runner(new GraphRunner(sources, options));
  KVBOUND_RETURN_IF_ERROR(runner->Allocate(sizes));
  return runner;
}

Status GraphRunner::Allocate(const RunnerSizes& sizes) {
  sizes_ = sizes;
  graph_memory_.resize(sizes.graph_bytes);
  work_.resize(sizes.work_bytes - sizes.n_counter * sizeof(std::atomic<int32_t>));
  counters_ = std::vector<std::atomic<int32_t>>(sizes.n_counter);
  sources_.counters = counters_.data();
  entries_.resize(options_.n_cached);
  size_t n_run = 1;
  for (const GraphCase& c : options_.cases) n_run = std::max(n_run, c.runs.size());
  for (size_t i = 0; i < entries_.size(); ++i) {
    entries_[i].context.reset(ggml_init(
        {sizes.graph_slot_bytes, graph_memory_.data() + i * sizes.graph_slot_bytes, true}));
    entries_[i].runs.reserve(n_run);
  }
  if (sources_.model.on_cpu()) {
    ggml_threadpool_params params = ggml_threadpool_params_default(options_.n_threads);
    params.poll = 0;  // idle threads sleep: another process may need the cores
    threads_ = ggml_threadpool_new(&params);
    if (threads_ == nullptr) return Internal("cannot start the threads");
  } else {
    backend_.reset(ggml_backend_dev_init(sources_.model.device(), nullptr));
    if (!backend_) return Internal("cannot initialise the device");
  }
  allocator_.reset(ggml_gallocr_new(BufferType(sources_.model)));
  return Reserve();
}

Status GraphRunner::Reserve() {
  ggml_context* context = entries_[0].context.get();
  ggml_reset(context);
  const Graph graph =
      sizes_.largest ? BuildGraph(context, sources_, sizes_.largest->spec, sizes_.largest->runs)
                     : BuildVocabBlock(context, sources_, 0, options_.vocab_block_rows,
                                       options_.vocab_block_cols);
  if (!ggml_gallocr_reserve(allocator_.get(), graph.nodes)) {
    return OutOfBudget(StrCat("cannot allocate ", sizes_.compute_bytes, " bytes to compute in"));
  }
  return Status::Ok();
}

GraphRunner::~GraphRunner() {
  if (threads_ != nullptr) ggml_threadpool_free(threads_);
}

Result<const Graph*> GraphRunner::Get(const GraphSpec& spec, std::span<const SeqRun> runs) {
  ++clock_;
  for (Entry& entry : entries_) {
    if (entry.built && !entry.is_vocab_block && entry.spec == spec &&
        std::ranges::equal(entry.runs, runs)) {
      entry.last_use = clock_;
      return &entry.graph;
    }
  }
  Entry& entry = LeastRecentlyUsed();
  entry.graph = BuildGraph(entry.context.get(), sources_, spec, runs);
  entry.spec = spec;
  entry.runs.assign(runs.begin(), runs.end());
  entry.is_vocab_block = false;
  KVBOUND_RETURN_IF_ERROR(Finish(&entry));
  return &entry.graph;
}

Result<const Graph*> GraphRunner::GetVocabBlock() {
  DCHECK(options_.vocab_block_rows > 0);
  ++clock_;
  for (Entry& entry : entries_) {
    if (entry.built && entry.is_vocab_block) {
      entry.last_use = clock_;
      return &entry.graph;
    }
  }
  Entry& entry = LeastRecentlyUsed();
  entry.graph = BuildVocabBlock(entry.context.get(), sources_, 0, options_.vocab_block_rows,
                                options_.vocab_block_cols);
  entry.is_vocab_block = true;
  KVBOUND_RETURN_IF_ERROR(Finish(&entry));
  return &entry.graph;
}

void GraphRunner::SetVocabBlock(int64_t first_row) {
  for (Entry& entry : entries_) {
    if (!entry.built || !entry.is_vocab_block) continue;
    ggml_tensor* block = entry.graph.logits->src[0];
    block->view_offs = first_row * block->view_src->nb[1];
    block->data = static_cast<char*>(block->view_src->data) + block->view_offs;
  }
}

GraphRunner::Entry& GraphRunner::LeastRecentlyUsed() {
  Entry& entry = *std::ranges::min_element(entries_, {},
                                           [](const Entry& e) { return e.built ? e.last_use : 0; });
  entry.built = false;
  ggml_reset(entry.context.get());
  return entry;
}

// Gives the new graph its places in the shared buffer and its plan.
Status GraphRunner::Finish(Entry* entry) {
  const size_t before = ggml_gallocr_get_buffer_size(allocator_.get(), 0);
  const bool placed = ggml_gallocr_alloc_graph(allocator_.get(), entry->graph.nodes);
  if (!placed || ggml_gallocr_get_buffer_size(allocator_.get(), 0) != before) {
    for (Entry& other : entries_) other.built = false;  // their places are gone
    return Internal(StrCat("a graph over ", entry->spec.n_kv, " slots and ",
                           entry->spec.n_tok * entry->spec.n_seq,
                           " tokens does not fit the reserved ", before, " bytes"));
  }
  if (threads_ != nullptr) {
    entry->plan = ggml_graph_plan(entry->graph.nodes, options_.n_threads, threads_);
    if (entry->plan.work_size > work_.size()) {
      return Internal(StrCat("a graph needs ", entry->plan.work_size,
                             " bytes of scratch, reserved ", work_.size()));
    }
    entry->plan.work_data = work_.data();
  }
  entry->built = true;
  entry->last_use = clock_;
  return Status::Ok();
}

Status GraphRunner::Compute(const Graph& graph) {
  ggml_status status;
  if (threads_ != nullptr) {
    auto entry = std::ranges::find_if(entries_, [&](const Entry& e) { return &e.graph == &graph; });
    DCHECK(entry != entries_.end() && entry->built);
    entry->plan.n_threads = governor_.Begin(ThreadUsage::Now());
    status = ggml_graph_compute(graph.nodes, &entry->plan);
    governor_.End(ThreadUsage::Now());
  } else {
    status = ggml_backend_graph_compute(backend_.get(), graph.nodes);
  }
  if (status != GGML_STATUS_SUCCESS) {
    return Internal(StrCat("the forward pass failed: ", ggml_status_to_string(status)));
  }
  return Status::Ok();
}

RunnerSizes GraphRunner::allocated() const {
  RunnerSizes sizes = sizes_;
  sizes.compute_bytes = ggml_gallocr_get_buffer_size(allocator_.get(), 0);
  sizes.work_bytes = work_.size() + counters_.size() * sizeof(std::atomic<int32_t>);
  sizes.graph_bytes = graph_memory_.size();
  return sizes;
}

}  // namespace kvbound
