#include "generate/memory_plan.h"

#include <algorithm>
#include <numeric>

#include "base/strings.h"
#include "base/threads.h"
#include "scoring/counter_causal.h"

namespace kvbound {
namespace {

// Decode graphs of one cycle (one for each group of slots) are all kept if a cycle has no more
// than this many; beyond, the oldest are built anew.
constexpr int32_t kMaxDecodeGraphs = 16;
constexpr int32_t kOtherGraphs = 6;  // prompt chunks, scoring tiles, a vocabulary block

bool IsBlockType(KvType type) { return type == KvType::kQ8_0 || type == KvType::kQ4_0; }

Result<AttentionPath> ResolveAttention(const LoadedModel& model, const EngineOptions& options) {
  const int32_t head_dim = model.hparams().head_dim;
  const bool can_fuse = model.on_cpu() && head_dim <= kMaxHeadDim;
  switch (options.attention) {
    case AttentionPath::kFused:
      if (can_fuse) return AttentionPath::kFused;
      return Unsupported(StrCat("fused attention: expected a CPU and heads of at most ",
                                kMaxHeadDim, " values, found ",
                                ggml_backend_dev_name(model.device()), " and ", head_dim));
    case AttentionPath::kStock:
      if (!IsBlockType(options.type_v)) return AttentionPath::kStock;
      return Unsupported(StrCat("stock attention reads V transposed and cannot hold it as ",
                                KvTypeName(options.type_v), ": expected f32, f16 or bf16"));
    case AttentionPath::kFlash:
      return AttentionPath::kFlash;
    case AttentionPath::kAuto:
      break;
  }
  if (can_fuse) return AttentionPath::kFused;
  const bool plain = model.on_cpu() && !IsBlockType(options.type_v);
  return plain ? AttentionPath::kStock : AttentionPath::kFlash;
}

Result<int32_t> ResolvePositionLimit(const HParams& hp, const EngineOptions& options) {
  const int32_t given = options.position_limit;
  if (options.positions == PositionMode::kOriginal) {
    if (given == 0) return 0;
    return InvalidArgument(
        StrCat("position_limit: expected none with positions original, which "
               "has no limit, found ",
               given));
  }
  const int32_t occupied = options.budget + options.chunk;
  if (given == 0) return std::max(hp.n_ctx_train, occupied);
  if (given >= occupied) return given;
  return InvalidArgument(StrCat("position_limit: expected at least budget + chunk = ", occupied,
                                " positions, one for each slot, found ", given));
}

KvLayout LayoutOf(const HParams& hp, const EngineShape& shape) {
  KvLayout layout;
  layout.n_layer = hp.n_layer;
  layout.n_kv_head = hp.n_kv_head;
  layout.head_dim = hp.head_dim;
  layout.budget = shape.options.budget;
  layout.chunk = shape.options.chunk;
  layout.n_seq = shape.options.n_seq;
  layout.type_k = shape.options.type_k;
  layout.type_v = shape.options.type_v;
  layout.v_transposed = shape.options.attention == AttentionPath::kStock;
  layout.granularity = shape.policy.granularity;
  if (shape.policy.model_score == ModelScore::kCounterCausalFast) layout.n_hidden = hp.n_embd;
  layout.log_beta = shape.policy.needs_gates;
  layout.attention_mass = shape.policy.needs_attention_mass;
  // Exact caches keep exact rows.
  layout.type_hidden = shape.options.type_k == KvType::kF32 ? KvType::kF32 : KvType::kF16;
  return layout;
}

// The largest batches of single tokens: one for each number of runs that they may split into.
std::vector<GraphCase> DecodeCases(const KvLayout& layout) {
  std::vector<GraphCase> cases;
  for (int32_t n_run = 1; n_run <= (layout.n_seq + 1) / 2; ++n_run) {
    GraphCase c;
    for (int32_t i = 0; i + 1 < n_run; ++i) c.runs.push_back({2 * i, 1});
    c.runs.push_back({2 * (n_run - 1), layout.n_seq - 2 * (n_run - 1)});
    c.spec.n_seq = layout.n_seq - (n_run - 1);
    c.spec.n_kv = layout.n_slot();
    c.spec.n_out = c.spec.n_seq;
    cases.push_back(std::move(c));
  }
  return cases;
}

GraphCase ChunkCase(const EngineShape& shape, int32_t n_tok) {
  GraphCase c;
  c.runs = {{0, 1}};
  c.spec.n_tok = n_tok;
  c.spec.n_kv = shape.layout.n_slot();
  c.spec.n_out = std::clamp(shape.options.max_logit_rows, 1, n_tok);
  return c;
}

void AddCases(const HParams& hp, EngineShape* shape) {
  RunnerOptions& runner = shape->runner;
  runner.n_threads = shape->options.n_threads;
  runner.n_cached = std::min(shape->layout.chunk / kSlotGroup + 2, kMaxDecodeGraphs) + kOtherGraphs;
  runner.cases = DecodeCases(shape->layout);
  runner.cases.push_back(ChunkCase(*shape, shape->layout.chunk));
  // Below a tile another attention is used, which can need more than a whole chunk's.
  runner.cases.push_back(ChunkCase(*shape, std::min(shape->layout.chunk, kFlashTile - 1)));
  if (shape->policy.model_score != ModelScore::kNone) {
    for (GraphCase& c : ScoreCases(shape->layout, hp, shape->policy.model_score)) {
      runner.cases.push_back(std::move(c));
    }
    runner.vocab_block_rows = VocabBlockRows(hp);
    runner.vocab_block_cols = ScoreTile(shape->layout, hp);
  }
  GraphInputs::Sizes& inputs = shape->inputs;
  const bool fused = shape->options.attention == AttentionPath::kFused;
  if (fused) {
    inputs.heads = int64_t{shape->layout.n_seq} * hp.n_kv_head;
    inputs.slots = shape->layout.n_slot();
  }
  for (const GraphCase& c : runner.cases) {
    const int64_t n_token = int64_t{c.spec.n_tok} * c.spec.n_seq;
    inputs.tokens = std::max(inputs.tokens, n_token);
    if (!fused) inputs.cells = std::max(inputs.cells, n_token * c.spec.n_kv);
  }
}

uint64_t LogitBytes(const HParams& hp, const EngineShape& shape) {
  const uint64_t n_rows = shape.options.n_seq + uint64_t(shape.options.max_logit_rows);
  return n_rows * hp.n_vocab * sizeof(float);
}

uint64_t HostBytes(const HParams& hp, const EngineShape& shape) {
  uint64_t bytes = shape.layout.host_bytes() + GraphInputs::Bytes(shape.inputs);
  if (shape.gates) {
    bytes += LoadedGates::OutputSize(*shape.gates, shape.inputs.tokens) * sizeof(float);
  }
  if (shape.policy.model_score != ModelScore::kNone) {
    bytes += ScoreScratch::Bytes(shape.layout, hp);
    bytes += uint64_t(shape.options.n_seq) * hp.n_vocab * sizeof(int32_t);  // token frequencies
  }
  return bytes;
}

Result<MemoryPlan> PlanShape(const LoadedModel& model, const EngineOptions& options) {
  KVBOUND_ASSIGN_OR_RETURN(const EngineShape shape, ShapeEngine(model, options));
  std::unique_ptr<LoadedGates> gates;
  if (shape.gates) {
    KVBOUND_ASSIGN_OR_RETURN(gates,
                             LoadedGates::Make(shape.gates, model, Weights::Mode::kShapesOnly));
  }
  KVBOUND_ASSIGN_OR_RETURN(const RunnerSizes sizes,
                           GraphRunner::MeasureShapes(model, shape.layout, gates.get(),
                                                      shape.options.attention, shape.runner));
  return MakePlan(model, gates.get(), shape, sizes);
}

}  // namespace

Result<std::unique_ptr<EvictionPolicy>> MakePolicy(const PolicyFactory& own,
                                                   const PolicyOptions& options) {
  if (!own) return MakePolicy(options);
  std::unique_ptr<EvictionPolicy> policy = own();
  if (policy == nullptr) return InvalidArgument("own_policy: the factory made no policy");
  return policy;
}

Result<EngineShape> ShapeEngine(const LoadedModel& model, const EngineOptions& options) {
  EngineShape shape;
  shape.options = options;
  KVBOUND_ASSIGN_OR_RETURN(const std::unique_ptr<EvictionPolicy> policy,
                           MakePolicy(options.own_policy, options.policy));
  shape.policy = policy->Info();
  if (shape.policy.needs_gates) {
    if (!options.gates) {
      return InvalidArgument(
          StrCat("policy '", shape.policy.name, "': expected gates (--gates FILE), found none"));
    }
    shape.gates = options.gates;
  }
  KVBOUND_ASSIGN_OR_RETURN(shape.options.attention, ResolveAttention(model, options));
  if (shape.policy.needs_attention_mass && shape.options.attention != AttentionPath::kFused) {
    return Unsupported(StrCat("policy '", shape.policy.name,
                              "' reads the attention that slots get: expected fused attention "
                              "(--attention fused, on a CPU), found ",
                              AttentionPathName(shape.options.attention)));
  }
  shape.layout = LayoutOf(model.hparams(), shape);
  KVBOUND_RETURN_IF_ERROR(shape.layout.Validate());
  KVBOUND_ASSIGN_OR_RETURN(shape.options.position_limit,
                           ResolvePositionLimit(model.hparams(), options));
  if (options.n_threads < 0 || options.n_threads > GGML_MAX_N_THREADS) {
    return InvalidArgument(
        StrCat("n_threads: expected 0..", GGML_MAX_N_THREADS, ", found ", options.n_threads));
  }
  if (options.max_logit_rows < 0 || options.max_logit_rows > options.chunk) {
    return InvalidArgument(StrCat("max_logit_rows: expected 0..chunk (", options.chunk, "), found ",
                                  options.max_logit_rows));
  }
  if (shape.options.n_threads == 0) shape.options.n_threads = DefaultThreads().n;
  AddCases(model.hparams(), &shape);
  return shape;
}

MemoryPlan MakePlan(const LoadedModel& model, const LoadedGates* gates, const EngineShape& shape,
                    const RunnerSizes& sizes) {
  const HParams& hp = model.hparams();
  const KvLayout& layout = shape.layout;
  MemoryPlan plan;
  plan.position_limit = shape.options.position_limit;
  plan.parts = {
      {"K", layout.k_formula(), layout.k_bytes()},
      {"V", layout.v_formula(), layout.v_bytes()},
      {"hidden rows", layout.hidden_formula(), layout.hidden_bytes()},
      {"log beta", layout.log_beta_formula(), layout.log_beta_bytes()},
      {"attention mass", layout.attention_mass_formula(), layout.attention_mass_bytes()},
      {"compute", "activations of the largest graph", sizes.compute_bytes},
      {"scratch", "work space of the CPU operators", sizes.work_bytes},
      {"graphs",
       StrCat(shape.runner.n_cached, " cached graphs x ", sizes.graph_slot_bytes, " bytes"),
       sizes.graph_bytes},
      {"logits",
       StrCat(shape.options.n_seq + shape.options.max_logit_rows, " rows x ", hp.n_vocab, " x f32"),
       LogitBytes(hp, shape)},
      {"host", "positions, tokens, scores, keep sets, masks", HostBytes(hp, shape)},
      {"gates",
       gates == nullptr ? "none"
                        : StrCat(shape.gates->n_parameter(), " parameters as ",
                                 GateTypeName(shape.gates->type())),
       gates == nullptr ? 0 : gates->total_bytes()},
      {"weights", "", model.weights().total_bytes()},
  };
  for (const WeightBuffer& buffer : model.weights().buffers()) {
    std::string& formula = plan.parts.back().formula;
    formula += StrCat(formula.empty() ? "" : " + ", buffer.name, " ", buffer.bytes);
  }
  return plan;
}

uint64_t MemoryPlan::total_bytes() const {
  return std::accumulate(parts.begin(), parts.end(), uint64_t{0},
                         [](uint64_t sum, const MemoryPart& part) { return sum + part.bytes; });
}

uint64_t MemoryPlan::total_without_weights_bytes() const {
  return total_bytes() - part_bytes("weights") - part_bytes("gates");
}

uint64_t MemoryPlan::part_bytes(std::string_view name) const {
  for (const MemoryPart& part : parts) {
    if (part.name == name) return part.bytes;
  }
  return 0;
}

Result<MemoryPlan> PlanMemory(const std::string& path, const ModelOptions& model_options,
                              const EngineOptions& options) {
  KVBOUND_ASSIGN_OR_RETURN(const std::unique_ptr<LoadedModel> model,
                           LoadedModel::Make(path, model_options, Weights::Mode::kShapesOnly));
  return PlanShape(*model, options);
}

Result<EngineOptions> FitBudget(const std::string& path, const ModelOptions& model_options,
                                EngineOptions engine, uint64_t budget_bytes, bool fixed_chunk) {
  KVBOUND_ASSIGN_OR_RETURN(const std::unique_ptr<LoadedModel> model,
                           LoadedModel::Make(path, model_options, Weights::Mode::kShapesOnly));
  const auto with_budget = [&](int32_t budget) {
    EngineOptions options = engine;
    options.budget = budget;
    if (!fixed_chunk) options.chunk = std::max(1, budget / 4);
    return options;
  };
  // The plan without weights of a budget, or why there is none.
  const auto bytes_of = [&](int32_t budget) -> Result<uint64_t> {
    KVBOUND_ASSIGN_OR_RETURN(const MemoryPlan plan, PlanShape(*model, with_budget(budget)));
    return plan.total_without_weights_bytes();
  };
  // A chunk that follows the budget must hold the rows of logits asked for.
  const int32_t smallest = fixed_chunk ? 2
                                       : static_cast<int32_t>(std::clamp<int64_t>(
                                             4 * int64_t{engine.max_logit_rows}, 2, 1 << 28));
  KVBOUND_ASSIGN_OR_RETURN(const uint64_t least, bytes_of(smallest));
  if (least > budget_bytes) {
    return OutOfBudget(StrCat("budget-bytes: expected at least ", least, " bytes (a budget of ",
                              smallest, " slots), found ", budget_bytes));
  }
  const auto fits = [&](int32_t budget) {
    const Result<uint64_t> bytes = bytes_of(budget);
    return bytes.ok() && *bytes <= budget_bytes;
  };
  int32_t low = smallest;  // fits
  int32_t high = low * 2;  // smallest known not to fit, once the loop ends
  while (high < (1 << 28) && fits(high)) {
    low = high;
    high *= 2;
  }
  while (low + 1 < high) {
    const int32_t middle = low + (high - low) / 2;
    (fits(middle) ? low : high) = middle;
  }
  return with_budget(low);
}

}  // namespace kvbound
