// Attention alone: the fused operator against ggml's, on caches of several layers so that K and V
// come from where they come from in a model. One graph per way, computed in turn.
#include "kernels/attention.h"

#include <hwy/highway.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "base/threads.h"
#include "ggml-alloc.h"
#include "ggml-cpp.h"
#include "ggml-cpu.h"
#include "kv/kv_type.h"
#include "machine_common.h"
#include "model/attention_op.h"
#include "report_common.h"

namespace kvbound::bench {
namespace {

// Ours; llama.cpp's with flash attention off (each query head for itself) and on; and the first
// with the query group packed into columns, which is ours too and what --attention stock decodes
// with.
enum class Way { kFused, kPlain, kPacked, kFlash };

struct Heads {
  const char* name;
  int32_t n_kv_head, n_group, head_dim, n_layer;
};
constexpr Heads kSmall = {"SmolLM2-135M, 3 x 64, group 3", 3, 3, 64, 30};
constexpr Heads kLarge = {"8B, 8 x 128, group 4", 8, 4, 128, 4};

struct Setup {
  Heads heads;
  int32_t n_slot, n_tok;
  KvType type;
};

// Random K and V of all layers; V row by row and transposed.
class Cache {
 public:
  explicit Cache(const Setup& setup) {
    context_.reset(ggml_init({3 * setup.heads.n_layer * ggml_tensor_overhead(), nullptr, true}));
    const Heads& h = setup.heads;
    const ggml_type type = ToGgmlType(setup.type);
    const bool turned = ggml_blck_size(type) == 1;
    for (int i = 0; i < h.n_layer; ++i) {
      const auto rows = [&](int64_t a, int64_t b) {
        return ggml_new_tensor_3d(context_.get(), type, a, b, h.n_kv_head);
      };
      k.push_back(rows(h.head_dim, setup.n_slot));
      v.push_back(rows(h.head_dim, setup.n_slot));
      if (turned) v_turned.push_back(rows(setup.n_slot, h.head_dim));
    }
    buffer_.reset(
        ggml_backend_alloc_ctx_tensors_from_buft(context_.get(), ggml_backend_cpu_buffer_type()));
    std::vector<float> values(int64_t{1} * setup.n_slot * h.head_dim * h.n_kv_head);
    uint32_t random = 1;
    for (float& x : values) {
      random = random * 1664525u + 1013904223u;
      x = static_cast<float>(random >> 8) / (1 << 23) - 1.0f;
    }
    for (ggml_tensor* t = ggml_get_first_tensor(context_.get()); t != nullptr;
         t = ggml_get_next_tensor(context_.get(), t)) {
      ggml_quantize_chunk(type, values.data(), t->data, 0, ggml_nrows(t), t->ne[0], nullptr);
    }
  }

  size_t bytes() const {  // of K and V once
    size_t sum = 0;
    for (const ggml_tensor* t : k) sum += 2 * ggml_nbytes(t);
    return sum;
  }

  std::vector<ggml_tensor*> k, v, v_turned;

 private:
  ggml_context_ptr context_;
  ggml_backend_buffer_ptr buffer_;
};

// The attention of one pass over all layers.
class Pass {
 public:
  Pass(const Setup& setup, const Cache& cache, Way way, int n_thread) : setup_(setup) {
    const Heads& h = setup.heads;
    context_.reset(ggml_init({(16 * h.n_layer + 8) * ggml_tensor_overhead() +
                                  ggml_graph_overhead_custom(16 * h.n_layer + 8, false),
                              nullptr, true}));
    ggml_context* ctx = context_.get();
    graph_ = ggml_new_graph_custom(ctx, 16 * h.n_layer + 8, false);
    q_ = ggml_new_tensor_3d(ctx, GGML_TYPE_F32, h.head_dim, h.n_kv_head * h.n_group, setup.n_tok);
    ggml_set_input(q_);
    counters_ = std::vector<std::atomic<int32_t>>(AttentionCounters(Shape()));
    for (int i = 0; i < h.n_layer; ++i) {
      ggml_tensor* out = nullptr;
      if (way == Way::kFused) out = Fused(cache.k[i], cache.v[i]);
      if (way == Way::kPlain) out = Plain(cache.k[i], cache.v_turned[i], 1);
      if (way == Way::kPacked) out = Plain(cache.k[i], cache.v_turned[i], h.n_group);
      if (way == Way::kFlash) out = Flash(cache.k[i], cache.v[i]);
      ggml_set_output(out);
      ggml_build_forward_expand(graph_, out);
    }
    allocator_.reset(ggml_gallocr_new(ggml_backend_cpu_buffer_type()));
    if (!ggml_gallocr_alloc_graph(allocator_.get(), graph_)) Fail("no memory for a graph");
    FillInputs(way);
    ggml_threadpool_params params = ggml_threadpool_params_default(n_thread);
    threads_ = ggml_threadpool_new(&params);
    plan_ = ggml_graph_plan(graph_, n_thread, threads_);
    work_.resize(plan_.work_size);
    plan_.work_data = work_.data();
  }
  ~Pass() { ggml_threadpool_free(threads_); }
  Pass(const Pass&) = delete;
  Pass& operator=(const Pass&) = delete;

  double Milliseconds() {
    const double start = Now();
    ggml_graph_compute(graph_, &plan_);
    return 1e3 * (Now() - start);
  }

 private:
  AttentionShape Shape() const {
    const Heads& h = setup_.heads;
    AttentionShape shape;
    shape.n_tok = setup_.n_tok;
    shape.n_head = h.n_kv_head * h.n_group;
    shape.n_kv_head = h.n_kv_head;
    shape.head_dim = h.head_dim;
    shape.max_slots = setup_.n_slot;
    return shape;
  }

  ggml_tensor* Fused(ggml_tensor* k, ggml_tensor* v) {
    ggml_context* ctx = context_.get();
    if (visible_ == nullptr) {
      visible_ = ggml_new_tensor_2d(ctx, GGML_TYPE_I32, 2, setup_.n_tok);
      occupied_ = ggml_new_tensor_2d(ctx, GGML_TYPE_I32, k->ne[2], 1);
      ggml_set_input(visible_);
      ggml_set_input(occupied_);
    }
    return AttentionOp(ctx, {q_, k, v, visible_, occupied_, nullptr}, counters_.data());
  }

  ggml_tensor* Mask(ggml_type type) {
    if (mask_ == nullptr) {
      mask_ = ggml_new_tensor_2d(context_.get(), type, setup_.n_slot, setup_.n_tok);
      ggml_set_input(mask_);
    }
    return mask_;
  }

  // `n_pack` query heads that share a KV head become columns beside the tokens.
  ggml_tensor* Plain(ggml_tensor* k, ggml_tensor* v_turned, int64_t n_pack) {
    ggml_context* ctx = context_.get();
    const int64_t d = q_->ne[0], n_head = q_->ne[1], n_tok = setup_.n_tok;
    ggml_tensor* q = q_;
    if (n_tok > 1) q = ggml_cont(ctx, ggml_permute(ctx, q, 0, 2, 1, 3));
    q = ggml_reshape_3d(ctx, q, d, n_tok * n_pack, n_head / n_pack);
    ggml_tensor* w = ggml_mul_mat(ctx, k, q);
    w = ggml_reshape_3d(ctx, w, k->ne[1], n_tok, n_head);
    w = ggml_soft_max_ext_inplace(ctx, w, Mask(GGML_TYPE_F32), Scale(), 0.0f);
    w = ggml_reshape_3d(ctx, w, k->ne[1], n_tok * n_pack, n_head / n_pack);
    ggml_tensor* out = ggml_mul_mat(ctx, v_turned, w);
    if (n_tok == 1) return out;
    out = ggml_reshape_3d(ctx, out, d, n_tok, n_head);
    return ggml_cont(ctx, ggml_permute(ctx, out, 0, 2, 1, 3));
  }

  ggml_tensor* Flash(ggml_tensor* k, ggml_tensor* v) {
    ggml_tensor* q = ggml_permute(context_.get(), q_, 0, 2, 1, 3);
    ggml_tensor* out =
        ggml_flash_attn_ext(context_.get(), q, k, v, Mask(GGML_TYPE_F16), Scale(), 0.0f, 0.0f);
    ggml_prec_set_acc(out, GGML_PREC_F32);
    return out;
  }

  float Scale() const { return 1.0f / std::sqrt(static_cast<float>(setup_.heads.head_dim)); }

  void FillInputs(Way way) {
    for (int64_t i = 0; i < ggml_nelements(q_); ++i) {
      static_cast<float*>(q_->data)[i] = std::sin(0.37f * static_cast<float>(i));
    }
    const int32_t first = setup_.n_slot - setup_.n_tok;
    for (int32_t t = 0; t < setup_.n_tok; ++t) {
      if (way == Way::kFused) {
        static_cast<Visible*>(visible_->data)[t] = {0, setup_.n_tok - 1 - t};
        continue;
      }
      for (int32_t slot = 0; slot < setup_.n_slot; ++slot) {
        const float value = slot <= first + t ? 0.0f : -INFINITY;
        const int64_t at = int64_t{t} * setup_.n_slot + slot;
        if (way != Way::kFlash) static_cast<float*>(mask_->data)[at] = value;
        if (way == Way::kFlash) {
          static_cast<ggml_fp16_t*>(mask_->data)[at] = ggml_fp32_to_fp16(value);
        }
      }
    }
    if (way == Way::kFused) {
      std::fill_n(static_cast<int32_t*>(occupied_->data), setup_.heads.n_kv_head, setup_.n_slot);
    }
  }

  Setup setup_;
  ggml_context_ptr context_;
  ggml_gallocr_ptr allocator_;
  ggml_cgraph* graph_ = nullptr;
  ggml_tensor* q_ = nullptr;
  ggml_tensor* mask_ = nullptr;
  ggml_tensor* visible_ = nullptr;
  ggml_tensor* occupied_ = nullptr;
  std::vector<std::atomic<int32_t>> counters_;
  ggml_threadpool* threads_ = nullptr;
  ggml_cplan plan_;
  std::vector<uint8_t> work_;
};

struct Figures {
  Samples fused, plain, packed, flash;
  Samples f16;  // fused too, on the same number of slots
  double bytes = 0;
  double stock() const {  // llama.cpp's better way
    return plain.empty() ? flash.Median() : std::min(plain.Median(), flash.Median());
  }
};

Figures Measure(const Setup& setup, int reps, int n_thread) {
  const Cache cache(setup);
  Pass fused(setup, cache, Way::kFused, n_thread), flash(setup, cache, Way::kFlash, n_thread);
  std::unique_ptr<Pass> plain, packed;
  if (!cache.v_turned.empty()) {
    plain = std::make_unique<Pass>(setup, cache, Way::kPlain, n_thread);
    packed = std::make_unique<Pass>(setup, cache, Way::kPacked, n_thread);
  }
  const Setup f16_setup = {setup.heads, setup.n_slot, setup.n_tok, KvType::kF16};
  std::unique_ptr<Cache> f16_cache;
  std::unique_ptr<Pass> f16;
  if (setup.type != KvType::kF16 && setup.n_tok == 1) {
    f16_cache = std::make_unique<Cache>(f16_setup);
    f16 = std::make_unique<Pass>(f16_setup, *f16_cache, Way::kFused, n_thread);
    f16->Milliseconds();
  }
  fused.Milliseconds();  // not counted: first touch of the pages
  Figures figures;
  figures.bytes = static_cast<double>(cache.bytes());
  for (int r = 0; r < reps; ++r) {
    figures.fused.Add(fused.Milliseconds());
    if (f16) figures.f16.Add(f16->Milliseconds());
    if (plain) figures.plain.Add(plain->Milliseconds());
    if (packed) figures.packed.Add(packed->Milliseconds());
    figures.flash.Add(flash.Milliseconds());
  }
  return figures;
}

// What the mass of every slot costs one thread, that calls Attend by itself: time with / without.
double MassCost(const Heads& heads, int32_t n_slot, int reps) {
  const Cache cache({heads, n_slot, 1, KvType::kF16});
  AttentionShape shape;
  shape.n_head = heads.n_kv_head * heads.n_group;
  shape.n_kv_head = heads.n_kv_head;
  shape.head_dim = heads.head_dim;
  shape.max_slots = n_slot;
  shape.mass = true;
  const std::vector<float> q(shape.n_head * shape.head_dim, 0.1f);
  std::vector<float> out(q.size()), mass(shape.n_kv_head * n_slot);
  std::vector<float> workspace(AttentionWorkspace(shape));
  std::vector<std::atomic<int32_t>> counters(AttentionCounters(shape));
  const std::vector<int32_t> occupied(shape.n_kv_head, n_slot);
  const Visible all;
  AttentionCall call;
  call.shape = shape;
  call.q = q.data();
  call.n_slot = occupied.data();
  call.visible = &all;
  call.out = out.data();
  call.workspace = workspace.data();
  call.counters = counters.data();
  Samples without, with;
  const auto milliseconds = [&](float* to) {
    call.mass = to;
    const double start = Now();
    for (int32_t layer = 0; layer < heads.n_layer; ++layer) {
      call.k = TensorRows(cache.k[layer]);
      call.v = TensorRows(cache.v[layer]);
      Attend(call, 1);
    }
    return 1e3 * (Now() - start);
  };
  milliseconds(nullptr);
  for (int r = 0; r < reps; ++r) {
    without.Add(milliseconds(nullptr));
    with.Add(milliseconds(mass.data()));
  }
  return with.Median() / without.Median();
}

// Decoding before chunks: their load slows the clock of some machines for a while. only_tokens: 0
// for all.
std::vector<Setup> Setups(int64_t only_tokens) {
  std::vector<Setup> setups;
  for (const auto& sizes : std::vector<std::vector<std::array<int32_t, 2>>>{
           {{512, 1}, {8192, 1}}, {{640, 8}, {640, 64}, {640, 128}, {768, 256}, {1024, 512}}}) {
    for (const Heads& heads : {kSmall, kLarge}) {
      for (KvType type : {KvType::kF16, KvType::kQ8_0}) {
        for (const auto& [n_slot, n_tok] : sizes) {
          if (only_tokens != 0 && only_tokens != n_tok) continue;
          if (type == KvType::kQ8_0 && n_tok > 1 && n_tok != 128) continue;
          setups.push_back({heads, n_slot, n_tok, type});
        }
      }
    }
  }
  return setups;
}

// Makes our kernels take the named instruction set.
void LimitTarget(const std::string& name) {
  for (int64_t target : hwy::SupportedAndGeneratedTargets()) {
    if (name != hwy::TargetName(target)) continue;
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().DeInit();
    return;
  }
  Fail("--target " + name + ": not an instruction set of this machine");
}

void Run(int argc, char** argv) {
  const Arguments arguments(argc, argv, {"threads", "reps", "quick", "tokens", "target"});
  const bool quick = arguments.Has("quick");
  const int reps = static_cast<int>(arguments.Int("reps", quick ? 3 : 5));
  const int64_t only = arguments.Int("tokens", 0);  // 0: all
  int n_thread = static_cast<int>(arguments.Int("threads", 0));
  if (n_thread == 0) n_thread = DefaultThreads().n;
  if (arguments.Has("target")) LimitTarget(arguments.Text("target", ""));
  const double bandwidth = PrintMachine(argc, argv, n_thread);
  std::printf("fused      %s\n\n", AttentionTarget());
  Table table({"heads", "K, V", "slots", "tokens", "fused, ms", "plain, ms", "packed, ms",
               "flash, ms", "stock / fused", "GB/s, of the ceiling"});
  struct Target {
    std::string name;
    double value, wanted;
    bool at_most = false;
  };
  std::vector<Target> targets;
  for (const Setup& setup : Setups(only)) {
    const auto& [heads, n_slot, n_tok, type] = setup;
    const Figures f = Measure(setup, reps, n_thread);
    const double rate = f.bytes / f.fused.Median() / 1e6;
    const double ratio = f.stock() / f.fused.Median();
    table.Add({heads.name, std::string(KvTypeName(type)), std::to_string(n_slot),
               std::to_string(n_tok), f.fused.Text(2), f.plain.empty() ? "-" : f.plain.Text(2),
               f.packed.empty() ? "-" : f.packed.Text(2), f.flash.Text(2), Number(ratio, 2),
               n_tok > 1 ? "-" : Number(rate) + ", " + Number(100 * rate / bandwidth) + " %"});
    const std::string name = std::string(heads.name) + ", " + std::string(KvTypeName(type)) + ", " +
                             std::to_string(n_slot) + " slots, " + std::to_string(n_tok) +
                             (n_tok == 1 ? " token" : " tokens");
    if (type == KvType::kF16) {
      const double decode = n_slot == 512 && AttentionTarget() == std::string("AVX2") ? 2.0 : 3.0;
      targets.push_back({name + ": stock / fused", ratio, n_tok == 1 ? decode : 1.0});
    }
    if (n_slot == 8192 && type == KvType::kF16) {
      targets.push_back({name + ": of the bandwidth", rate / bandwidth, 0.7});
    }
    if (n_slot == 8192 && type == KvType::kQ8_0) {
      targets.push_back({name + ": f16 / q8_0 time", f.f16.Median() / f.fused.Median(), 1.5});
    }
  }
  table.Print();
  for (const Heads& heads : {kSmall, kLarge}) {
    for (int32_t n_slot : {512, 8192}) {
      targets.push_back({std::string(heads.name) + ", f16, " + std::to_string(n_slot) +
                             " slots, 1 token: time with mass / without",
                         MassCost(heads, n_slot, 2 * reps + 1), 1.3, /*at_most=*/true});
    }
  }
  for (const Target& target : targets) {
    PrintTarget(target.name, target.value, target.wanted, target.at_most);
  }
}

}  // namespace
}  // namespace kvbound::bench

int main(int argc, char** argv) { kvbound::bench::Run(argc, argv); }
