// The operator in a graph, beside ggml's flash attention on the same K and V: its error against
// plain loops in double is no larger.
#include "model/attention_op.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/strings.h"
#include "ggml-cpp.h"
#include "ggml-cpu.h"
#include "kv/kv_type.h"
#include "testing/attention_case.h"

namespace kvbound::testing {
namespace {

constexpr size_t kGraphBytes = size_t{64} << 20;

class GraphOf {
 public:
  explicit GraphOf(const AttentionCase& attention)
      : call_(attention.Call()), context_(ggml_init({kGraphBytes, nullptr, false})) {
    const AttentionShape& s = call_.shape;
    q_ = ggml_new_tensor_3d(ctx(), GGML_TYPE_F32, s.head_dim, s.n_head, s.n_tok);
    std::memcpy(q_->data, call_.q, ggml_nbytes(q_));
    k_ = Copy(call_.k);
    v_ = Copy(call_.v);
  }

  double FusedError(const std::vector<double>& expected) {
    const AttentionShape& s = call_.shape;
    ggml_tensor* visible = ggml_new_tensor_2d(ctx(), GGML_TYPE_I32, 2, s.n_tok);
    ggml_tensor* occupied = ggml_new_tensor_2d(ctx(), GGML_TYPE_I32, s.n_kv_head, 1);
    std::memcpy(visible->data, call_.visible, ggml_nbytes(visible));
    std::memcpy(occupied->data, call_.n_slot, ggml_nbytes(occupied));
    const AttentionOpInputs inputs{q_, k_, v_, visible, occupied, nullptr};
    std::vector<std::atomic<int32_t>> counters(AttentionCounters(AttentionOpShape(inputs)));
    return Error(AttentionOp(ctx(), inputs, counters.data()), expected);
  }

  double FlashError(const std::vector<double>& expected) {
    const AttentionShape& s = call_.shape;
    ggml_tensor* mask = ggml_new_tensor_2d(ctx(), GGML_TYPE_F16, s.max_slots, s.n_tok);
    for (int32_t t = 0; t < s.n_tok; ++t) {
      for (int32_t i = 0; i < s.max_slots; ++i) {
        const bool seen = i < s.max_slots - call_.visible[t].behind;
        static_cast<ggml_fp16_t*>(mask->data)[t * s.max_slots + i] =
            ggml_fp32_to_fp16(seen ? 0.0f : -INFINITY);
      }
    }
    ggml_tensor* out = ggml_flash_attn_ext(ctx(), ggml_permute(ctx(), q_, 0, 2, 1, 3), k_, v_, mask,
                                           call_.scale, 0.0f, 0.0f);
    ggml_prec_set_acc(out, GGML_PREC_F32);
    return Error(out, expected);
  }

 private:
  ggml_context* ctx() { return context_.get(); }

  ggml_tensor* Copy(const SlotRows& rows) {
    const AttentionShape& s = call_.shape;
    ggml_tensor* t =
        ggml_new_tensor_4d(ctx(), ToGgmlType(rows.type), s.head_dim, s.max_slots, s.n_kv_head, 1);
    for (int32_t head = 0; head < s.n_kv_head; ++head) {
      std::memcpy(static_cast<std::byte*>(t->data) + head * t->nb[2],
                  rows.data + head * rows.head_bytes, t->nb[2]);
    }
    return t;
  }

  double Error(ggml_tensor* out, const std::vector<double>& expected) {
    ggml_cgraph* graph = ggml_new_graph(ctx());
    ggml_build_forward_expand(graph, out);
    ggml_graph_compute_with_ctx(ctx(), graph, 2);
    double max = 0;
    for (size_t i = 0; i < expected.size(); ++i) {
      max = std::max(max, std::abs(static_cast<const float*>(out->data)[i] - expected[i]));
    }
    return max;
  }

  AttentionCall call_;
  ggml_context_ptr context_;
  ggml_tensor *q_, *k_, *v_;
};

TEST(AttentionOpTest, ErrsNoMoreThanGgml) {
  for (KvType type : {KvType::kF32, KvType::kF16, KvType::kBF16, KvType::kQ8_0, KvType::kQ4_0}) {
    for (int32_t n_tok : {1, 5, 64}) {
      AttentionCaseOptions options{.type_k = type, .type_v = type};
      options.shape.n_tok = n_tok;
      options.shape.n_head = 9;
      options.shape.n_kv_head = 3;
      options.shape.head_dim = 64;
      options.shape.max_slots = 640;
      const AttentionCase attention(options);
      const std::vector<double> expected = attention.Oracle().out;
      GraphOf graph(attention);
      const double fused = graph.FusedError(expected), flash = graph.FlashError(expected);
      // Where both are f32 throughout, a few roundings more or less are chance.
      EXPECT_LE(fused, std::max(flash, 5e-6)) << Describe(attention.options());
    }
  }
}

}  // namespace
}  // namespace kvbound::testing
