#include "model/blocks.h"

#include <cmath>

#include "model/attention_op.h"
#include "model/gate_op.h"

namespace kvbound {
namespace {

// Types that ggml's CPU back end multiplies by dot products of single rows, however many columns
// there are. From kWideProduct columns on, an f32 copy of the matrix, made for this one product,
// is about two times faster in all.
bool LacksTiledProduct(ggml_type type) { return type == GGML_TYPE_Q4_1 || type == GGML_TYPE_Q5_1; }
constexpr int64_t kWideProduct = 64;

ggml_tensor* Activate(ggml_context* ctx, GateActivation activation, ggml_tensor* x) {
  switch (activation) {
    case GateActivation::kSilu:
      return ggml_silu_inplace(ctx, x);
    case GateActivation::kGelu:
      return ggml_gelu_erf_inplace(ctx, x);
    case GateActivation::kRelu:
      return ggml_relu_inplace(ctx, x);
  }
  return x;
}

}  // namespace

ggml_tensor* Blocks::Norm(ggml_tensor* x, ggml_tensor* weight) {
  return ggml_mul(ctx_, ggml_rms_norm(ctx_, x, hparams_.rms_eps), weight);
}

ggml_tensor* Blocks::Product(ggml_tensor* weight, ggml_tensor* x) {
  const bool through_copy = sources_.model.on_cpu() && x->ne[1] >= kWideProduct &&
                            LacksTiledProduct(weight->type) &&
                            ggml_nelements(weight) <= kMaxCopiedElements;
  if (!through_copy) return ggml_mul_mat(ctx_, weight, x);
  ggml_build_forward_expand(in_.nodes, x);  // before the copy, so that only one copy is alive
  ggml_tensor* y = ggml_mul_mat(ctx_, ggml_cast(ctx_, weight, GGML_TYPE_F32), x);
  ggml_build_forward_expand(in_.nodes, y);
  return y;
}

ggml_tensor* Blocks::Heads(ggml_tensor* x, ggml_tensor* weight, ggml_tensor* bias,
                           ggml_tensor* norm, int64_t n_head) {
  ggml_tensor* y = Product(weight, x);
  if (bias != nullptr) y = ggml_add(ctx_, y, bias);
  y = ggml_reshape_3d(ctx_, y, hparams_.head_dim, n_head, x->ne[1]);
  return norm != nullptr ? Norm(y, norm) : y;
}

ggml_tensor* Blocks::Rope(ggml_tensor* heads) {
  const RopeParams& r = hparams_.rope;
  return ggml_rope_ext(ctx_, heads, in_.positions, sources_.model.weights().rope_freqs, r.n_rot,
                       r.neox ? GGML_ROPE_TYPE_NEOX : GGML_ROPE_TYPE_NORMAL, r.orig_ctx,
                       r.freq_base, r.freq_scale(), r.ext_factor, r.attn_factor, r.beta_fast,
                       r.beta_slow);
}

ggml_tensor* Blocks::Attention(ggml_tensor* x, int32_t layer, ggml_cgraph* nodes) {
  const LayerWeights& w = sources_.model.weights().layers[layer];
  ggml_tensor* q = Rope(Heads(x, w.q, w.q_bias, w.q_norm, hparams_.n_head));
  if (spec_.append) {
    ggml_tensor* k = Rope(Heads(x, w.k, w.k_bias, w.k_norm, hparams_.n_kv_head));
    ggml_tensor* v = Heads(x, w.v, w.v_bias, nullptr, hparams_.n_kv_head);
    AppendRows(k, sources_.kv.k[layer], false, nodes);
    AppendRows(v, sources_.kv.v[layer], sources_.layout.v_transposed, nodes);
  }
  ggml_tensor* out = nullptr;
  int32_t seq_begin = 0;
  for (const SeqRun& run : runs_) {
    ggml_tensor* part = Attend(q, layer, run, seq_begin);
    // Its mass is wanted even where its output is not.
    if (in_.attention_mass != nullptr) ggml_build_forward_expand(nodes, part);
    out = out == nullptr ? part : ggml_concat(ctx_, out, part, 1);
    seq_begin += run.count;
  }
  if (in_.row_on != nullptr) out = ggml_mul(ctx_, out, in_.row_on);
  return Product(w.attn_out, out);
}

void Blocks::AppendRows(ggml_tensor* x, ggml_tensor* store, bool transposed, ggml_cgraph* nodes) {
  const int64_t n_tok = spec_.n_tok;
  int64_t seq_begin = 0;
  for (const SeqRun& run : runs_) {
    const size_t to_offset = run.first * store->nb[3];
    const size_t from_offset = seq_begin * n_tok * x->nb[2];
    ggml_tensor* to;
    ggml_tensor* from;
    if (transposed) {  // each element is a row of its own
      const int64_t n_row = x->ne[0] * x->ne[1];
      to = ggml_view_4d(ctx_, store, 1, store->ne[0], n_row, run.count, store->nb[0], store->nb[1],
                        store->nb[3], to_offset);
      from = ggml_view_4d(ctx_, x, 1, n_tok, n_row, run.count, x->nb[2], x->nb[0], x->nb[2] * n_tok,
                          from_offset);
    } else {
      to = ggml_view_4d(ctx_, store, store->ne[0], store->ne[1], store->ne[2], run.count,
                        store->nb[1], store->nb[2], store->nb[3], to_offset);
      from = ggml_view_4d(ctx_, x, x->ne[0], n_tok, x->ne[1], run.count, x->nb[2], x->nb[1],
                          x->nb[2] * n_tok, from_offset);
    }
    ggml_tensor* slots = ggml_view_3d(ctx_, in_.slots, n_tok, 1, run.count, in_.slots->nb[1],
                                      in_.slots->nb[1], seq_begin * in_.slots->nb[1]);
    ggml_build_forward_expand(nodes, ggml_set_rows(ctx_, to, from, slots));
    seq_begin += run.count;
  }
}

void Blocks::AppendHidden(ggml_tensor* x, ggml_cgraph* nodes) {
  ggml_tensor* store = sources_.kv.hidden;
  ggml_tensor* as_head = ggml_reshape_3d(ctx_, x, x->ne[0], 1, x->ne[1]);
  ggml_tensor* store_4d = ggml_view_4d(ctx_, store, store->ne[0], store->ne[1], 1, store->ne[2],
                                       store->nb[1], store->nb[2], store->nb[2], 0);
  AppendRows(as_head, store_4d, false, nodes);
}

ggml_tensor* Blocks::Attend(ggml_tensor* q, int32_t layer, const SeqRun& run, int32_t seq_begin) {
  ggml_tensor* k_store = sources_.kv.k[layer];
  ggml_tensor* v_store = sources_.kv.v[layer];
  const bool transposed = sources_.layout.v_transposed;
  ggml_tensor* k =
      ggml_view_4d(ctx_, k_store, k_store->ne[0], spec_.n_kv, k_store->ne[2], run.count,
                   k_store->nb[1], k_store->nb[2], k_store->nb[3], run.first * k_store->nb[3]);
  ggml_tensor* v =
      ggml_view_4d(ctx_, v_store, transposed ? spec_.n_kv : v_store->ne[0],
                   transposed ? v_store->ne[1] : spec_.n_kv, v_store->ne[2], run.count,
                   v_store->nb[1], v_store->nb[2], v_store->nb[3], run.first * v_store->nb[3]);
  if (runs_.size() > 1) {
    q = ggml_view_3d(ctx_, q, q->ne[0], q->ne[1], spec_.n_tok * run.count, q->nb[1], q->nb[2],
                     int64_t{seq_begin} * spec_.n_tok * q->nb[2]);
  }
  if (sources_.attention == AttentionPath::kFused) return AttendFused(q, k, v, layer, seq_begin);
  ggml_tensor* mask = in_.mask;
  if (runs_.size() > 1) {
    mask = ggml_view_4d(ctx_, mask, mask->ne[0], mask->ne[1], 1, run.count, mask->nb[1],
                        mask->nb[2], mask->nb[3], seq_begin * mask->nb[3]);
  }
  if (!UsesFlash(sources_, spec_)) return AttendPlain(q, k, v, mask);
  if (transposed) v = ggml_cont(ctx_, ggml_transpose(ctx_, v));
  return AttendFlash(q, k, v, mask);
}

ggml_tensor* Blocks::AttendFused(ggml_tensor* q, ggml_tensor* k, ggml_tensor* v, int32_t layer,
                                 int32_t seq_begin) {
  AttentionOpInputs inputs{q, k, v, in_.visible, in_.occupied, in_.ranks};
  if (ggml_tensor* mass = in_.attention_mass) {
    inputs.mass = ggml_view_3d(ctx_, mass, mass->ne[0], mass->ne[1], k->ne[3], mass->nb[1],
                               mass->nb[2], layer * mass->nb[3] + seq_begin * mass->nb[2]);
  }
  if (runs_.size() > 1) {
    const int64_t n_seq = k->ne[3];
    inputs.visible = ggml_view_2d(ctx_, in_.visible, 2, spec_.n_tok * n_seq, in_.visible->nb[1],
                                  int64_t{seq_begin} * spec_.n_tok * in_.visible->nb[1]);
    inputs.occupied = ggml_view_2d(ctx_, in_.occupied, in_.occupied->ne[0], n_seq,
                                   in_.occupied->nb[1], seq_begin * in_.occupied->nb[1]);
  }
  return AttentionOp(ctx_, inputs, sources_.counters);
}

// The query heads of a kv_head become columns beside the tokens, so that each K and V row is read
// once for the whole group: two products of {head_dim, n_kv} with {head_dim, T * group}.
ggml_tensor* Blocks::AttendPlain(ggml_tensor* q, ggml_tensor* k, ggml_tensor* v,
                                 ggml_tensor* mask) {
  const int64_t d = hparams_.head_dim;
  const int64_t n_head = hparams_.n_head;
  const int64_t n_kv_head = hparams_.n_kv_head;
  const int64_t n_tok = spec_.n_tok;
  const int64_t n_seq = k->ne[3];
  const int64_t n_col = n_tok * hparams_.n_group();
  if (n_tok > 1) q = ggml_cont(ctx_, ggml_permute(ctx_, q, 0, 2, 1, 3));  // {d, T, n_head}
  q = ggml_reshape_4d(ctx_, q, d, n_col, n_kv_head, n_seq);

  ggml_tensor* logits = ggml_mul_mat(ctx_, k, q);  // {n_kv, T * group, n_kv_head, S}
  logits = ggml_reshape_4d(ctx_, logits, spec_.n_kv, n_tok, n_head, n_seq);
  ggml_tensor* weights =
      ggml_soft_max_ext_inplace(ctx_, logits, mask, 1.0f / std::sqrt(static_cast<float>(d)), 0.0f);
  weights = ggml_reshape_4d(ctx_, weights, spec_.n_kv, n_col, n_kv_head, n_seq);
  ggml_tensor* out = ggml_mul_mat(ctx_, v, weights);  // {d, T * group, n_kv_head, S}
  if (n_tok > 1) {
    out = ggml_reshape_3d(ctx_, out, d, n_tok, n_head);
    out = ggml_cont(ctx_, ggml_permute(ctx_, out, 0, 2, 1, 3));  // {d, n_head, T}
  }
  return ggml_reshape_2d(ctx_, out, d * n_head, n_tok * n_seq);
}

ggml_tensor* Blocks::AttendFlash(ggml_tensor* q, ggml_tensor* k, ggml_tensor* v,
                                 ggml_tensor* mask) {
  const int64_t d = hparams_.head_dim;
  const int64_t n_tok = spec_.n_tok;
  q = ggml_view_4d(ctx_, q, d, n_tok, q->ne[1], k->ne[3], q->nb[2], q->nb[1], q->nb[2] * n_tok, 0);
  ggml_tensor* out =
      ggml_flash_attn_ext(ctx_, q, k, v, mask, 1.0f / std::sqrt(static_cast<float>(d)), 0.0f, 0.0f);
  ggml_prec_set_acc(out, GGML_PREC_F32);
  return ggml_reshape_2d(ctx_, out, d * hparams_.n_head, n_tok * k->ne[3]);
}

ggml_tensor* Blocks::Gate(ggml_tensor* x, int32_t layer) {
  const LoadedGates& gates = *sources_.gates;
  const LoadedGates::Layer& weights = gates.layer(layer);
  for (const LoadedGates::Linear& hidden : weights.hidden) {
    const GateOpWeights end{hidden.weight, hidden.bias, weights.output.weight};
    if (&hidden == &weights.hidden.back() && sources_.model.on_cpu() && x->ne[1] < kGateOpTokens &&
        GateOpFits(end)) {
      return GateOp(ctx_, end, gates.activation(), x);
    }
    ggml_tensor* y = ggml_add_inplace(ctx_, ggml_mul_mat(ctx_, hidden.weight, x), hidden.bias);
    x = Activate(ctx_, gates.activation(), y);
  }
  ggml_tensor* z = ggml_mul_mat(ctx_, weights.output.weight, x);
  return ggml_reshape_3d(ctx_, z, z->ne[0], 1, z->ne[1]);
}

ggml_tensor* Blocks::FeedForward(ggml_tensor* x, const LayerWeights& w) {
  ggml_tensor* gate = Product(w.ffn_gate, x);
  ggml_tensor* up = Product(w.ffn_up, x);
  return Product(w.ffn_down, ggml_swiglu_split(ctx_, gate, up));
}

}  // namespace kvbound
