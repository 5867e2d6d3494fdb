#include "model/graph.h"

#include <initializer_list>

#include "model/blocks.h"

namespace kvbound {
namespace {

ggml_tensor* Input(ggml_context* ctx, ggml_type type, std::initializer_list<int64_t> ne) {
  ggml_tensor* tensor = ggml_new_tensor(ctx, type, static_cast<int>(ne.size()), ne.begin());
  ggml_set_input(tensor);
  return tensor;
}

void DeclareInputs(ggml_context* ctx, const GraphSources& sources, const GraphSpec& spec,
                   Graph* graph) {
  const int64_t n = int64_t{spec.n_tok} * spec.n_seq;
  const int64_t n_embd = sources.model.hparams().n_embd;
  switch (spec.start) {
    case GraphSpec::Start::kTokens:
      graph->tokens = Input(ctx, GGML_TYPE_I32, {n});
      break;
    case GraphSpec::Start::kRows:
      graph->rows = Input(ctx, GGML_TYPE_F32, {n_embd, n});
      break;
    case GraphSpec::Start::kHiddenRows:
      graph->hidden_slots = Input(ctx, GGML_TYPE_I32, {n});
      break;
  }
  graph->positions = Input(ctx, GGML_TYPE_I32, {n});
  if (spec.append) graph->slots = Input(ctx, GGML_TYPE_I64, {spec.n_tok, spec.n_seq});
  if (sources.attention == AttentionPath::kFused) {
    graph->visible = Input(ctx, GGML_TYPE_I32, {2, n});
    graph->occupied = Input(ctx, GGML_TYPE_I32, {sources.layout.n_kv_head, spec.n_seq});
    if (!spec.append) graph->ranks = Input(ctx, GGML_TYPE_I32, {spec.n_kv, spec.n_seq});
    if (sources.layout.attention_mass && spec.append) {  // written by operators, not from outside
      graph->attention_mass =
          Input(ctx, GGML_TYPE_F32,
                {spec.n_kv, sources.layout.n_kv_head, spec.n_seq, sources.layout.n_layer});
      ggml_set_output(graph->attention_mass);
    }
  } else {
    const ggml_type mask_type = UsesFlash(sources, spec) ? GGML_TYPE_F16 : GGML_TYPE_F32;
    graph->mask = Input(ctx, mask_type, {spec.n_kv, spec.n_tok, 1, spec.n_seq});
    if (!spec.append) graph->row_on = Input(ctx, GGML_TYPE_F32, {1, n});
  }
  if (spec.output == GraphSpec::Output::kLogits && spec.n_out > 0) {
    graph->out_rows = Input(ctx, GGML_TYPE_I32, {spec.n_out});
  }
  if (spec.output == GraphSpec::Output::kTargetLogit) {
    graph->targets = Input(ctx, GGML_TYPE_I32, {n});
    if (spec.centred) graph->mean_head = Input(ctx, GGML_TYPE_F32, {n_embd});
  }
}

ggml_tensor* StartOfStream(ggml_context* ctx, const GraphSources& sources, const Graph& graph,
                           const SeqRun& run) {
  if (graph.tokens != nullptr) {
    return ggml_get_rows(ctx, sources.model.weights().token_embd, graph.tokens);
  }
  if (graph.rows != nullptr) return graph.rows;
  ggml_tensor* store = sources.kv.hidden;
  ggml_tensor* rows =
      ggml_view_2d(ctx, store, store->ne[0], store->ne[1], store->nb[1], run.first * store->nb[2]);
  return ggml_get_rows(ctx, rows, graph.hidden_slots);
}

ggml_tensor* Output(ggml_tensor* tensor, ggml_cgraph* nodes) {
  ggml_set_output(tensor);
  ggml_build_forward_expand(nodes, tensor);
  return tensor;
}

// z[target] of each token: its head row is gathered, so no logits over the vocabulary exist.
ggml_tensor* TargetLogit(ggml_context* ctx, const GraphSources& sources, const Graph& graph,
                         ggml_tensor* normed) {
  ggml_tensor* rows = ggml_get_rows(ctx, sources.model.weights().head_rows, graph.targets);
  if (graph.mean_head != nullptr) rows = ggml_sub(ctx, rows, graph.mean_head);
  return ggml_sum_rows(ctx, ggml_mul(ctx, rows, normed));
}

}  // namespace

bool UsesFlash(const GraphSources& sources, const GraphSpec& spec) {
  const KvLayout& layout = sources.layout;
  const bool same_type = layout.type_k == layout.type_v &&
                         (layout.type_k == KvType::kF16 || layout.type_k == KvType::kF32);
  return sources.attention == AttentionPath::kFlash ||
         (sources.model.on_cpu() && same_type && spec.n_tok >= kFlashTile);
}

AttentionShape FusedShape(const GraphSources& sources, const GraphSpec& spec) {
  const HParams& hparams = sources.model.hparams();
  AttentionShape shape;
  shape.n_seq = spec.n_seq;
  shape.n_tok = spec.n_tok;
  shape.n_head = hparams.n_head;
  shape.n_kv_head = hparams.n_kv_head;
  shape.head_dim = hparams.head_dim;
  shape.max_slots = spec.n_kv;
  shape.mass = sources.layout.attention_mass && spec.append;
  return shape;
}

int64_t MaxGraphTensors(const GraphSources& sources, int32_t n_run) {
  const int64_t n_gate = sources.gates == nullptr ? 0 : 3 * sources.gates->n_hidden_linear() + 1;
  return int64_t{sources.model.hparams().n_layer} * (43 + 15 * n_run + n_gate) + 40;
}

Graph BuildGraph(ggml_context* ctx, const GraphSources& sources, const GraphSpec& spec,
                 std::span<const SeqRun> runs) {
  const HParams& hp = sources.model.hparams();
  const Weights& weights = sources.model.weights();
  Graph graph;
  graph.nodes = ggml_new_graph_custom(ctx, MaxGraphTensors(sources, runs.size()), false);
  DeclareInputs(ctx, sources, spec, &graph);
  Blocks blocks(ctx, sources, spec, runs, graph);

  const bool only_append = spec.output == GraphSpec::Output::kLogits && spec.n_out == 0;
  ggml_tensor* x = StartOfStream(ctx, sources, graph, runs[0]);
  for (int32_t i = spec.first_layer; i < hp.n_layer; ++i) {
    const bool last = i + 1 == hp.n_layer;
    const LayerWeights& w = weights.layers[i];
    if (last && spec.append && sources.kv.hidden != nullptr) blocks.AppendHidden(x, graph.nodes);
    ggml_tensor* normed = blocks.Norm(x, w.attn_norm);
    if (spec.append && sources.gates != nullptr) {
      graph.gate_outputs.push_back(Output(blocks.Gate(normed, i), graph.nodes));
    }
    ggml_tensor* attended = blocks.Attention(normed, i, graph.nodes);
    if (last && only_append) return graph;
    if (last && graph.out_rows != nullptr) {  // the rest of the last layer for wanted rows only
      attended = ggml_get_rows(ctx, attended, graph.out_rows);
      x = ggml_get_rows(ctx, x, graph.out_rows);
    }
    x = ggml_add(ctx, attended, x);
    if (last && !spec.last_ffn) break;
    x = ggml_add(ctx, blocks.FeedForward(blocks.Norm(x, w.ffn_norm), w), x);
  }
  x = blocks.Norm(x, weights.output_norm);
  switch (spec.output) {
    case GraphSpec::Output::kLogits:
      graph.logits = Output(ggml_mul_mat(ctx, weights.head, x), graph.nodes);
      break;
    case GraphSpec::Output::kTargetLogit:
      graph.target_logit = Output(TargetLogit(ctx, sources, graph, x), graph.nodes);
      break;
    case GraphSpec::Output::kNormed:
      graph.normed = Output(x, graph.nodes);
      break;
  }
  return graph;
}

Graph BuildVocabBlock(ggml_context* ctx, const GraphSources& sources, int64_t first_row,
                      int64_t n_rows, int64_t n_col) {
  Graph graph;
  graph.nodes = ggml_new_graph_custom(ctx, 8, false);
  ggml_tensor* head = sources.model.weights().head_rows;
  graph.rows = Input(ctx, GGML_TYPE_F32, {head->ne[0], n_col});
  ggml_tensor* block =
      ggml_view_2d(ctx, head, head->ne[0], n_rows, head->nb[1], first_row * head->nb[1]);
  graph.logits = Output(ggml_mul_mat(ctx, block, graph.rows), graph.nodes);
  return graph;
}

}  // namespace kvbound
