#include "model/weights.h"

#include <cstring>
#include <string_view>

#include "base/strings.h"
#include "ggml-backend.h"
#include "ggml.h"

namespace kvbound {
namespace {

// The one extra buffer type of the CPU back end that is safe to use: "AMX" crashed in llama.cpp
// itself on some Xeons.
constexpr std::string_view kRepackName = "CPU_REPACK";

ggml_backend_buffer_type_t FindRepackType(ggml_backend_dev_t device) {
  if (ggml_backend_dev_type(device) != GGML_BACKEND_DEVICE_TYPE_CPU) return nullptr;
  auto get = reinterpret_cast<ggml_backend_dev_get_extra_bufts_t>(ggml_backend_reg_get_proc_address(
      ggml_backend_dev_backend_reg(device), "ggml_backend_dev_get_extra_bufts"));
  if (get == nullptr) return nullptr;
  for (ggml_backend_buffer_type_t* type = get(device); type != nullptr && *type != nullptr;
       ++type) {
    if (ggml_backend_buft_name(*type) == kRepackName) return *type;
  }
  return nullptr;
}

}  // namespace

// Fills a Weights in two passes: declare every tensor with its place, then give each its bytes.
class WeightLoader {
 public:
  WeightLoader(const CheckedModelFile& file, const ModelOptions& options, ggml_backend_dev_t device,
               Weights::Mode mode, Weights* out)
      : file_(file), options_(options), device_(device), mode_(mode), out_(*out) {
    on_cpu_ = ggml_backend_dev_type(device) == GGML_BACKEND_DEVICE_TYPE_CPU;
    if (options.repack && !options.dequantize_f32) repack_type_ = FindRepackType(device);
    if (repack_type_ != nullptr) probe_.reset(ggml_backend_buft_alloc_buffer(repack_type_, 0));
  }

  Status Run() {
    const size_t n_tensors = file_.file.tensors().size() + 1;  // + a rearranged copy of the head
    out_.context_.reset(ggml_init({n_tensors * ggml_tensor_overhead(), nullptr, true}));
    if (!out_.context_) return Internal("cannot make the context of the weights");
    Declare();
    return mode_ == Weights::Mode::kLoad ? Load() : PretendLoaded();
  }

 private:
  enum class Place { kFile, kOwned, kRepacked };  // kOwned: converted, or on another device

  struct Entry {
    const GgufTensor* source;
    ggml_tensor* tensor;
    Place place;
  };

  void Declare() {
    const HParams& hp = file_.hparams;
    out_.token_embd = Plain("token_embd.weight");
    out_.output_norm = Vector("output_norm.weight");
    out_.rope_freqs = Vector("rope_freqs.weight");
    const bool tied = file_.file.FindTensor("output.weight") == nullptr;
    out_.head_rows = tied ? out_.token_embd : Plain("output.weight");
    ggml_tensor* repacked = Repacked(tied ? "token_embd.weight" : "output.weight");
    out_.head = repacked != nullptr ? repacked : out_.head_rows;
    out_.layers.resize(hp.n_layer);
    for (int32_t i = 0; i < hp.n_layer; ++i) DeclareLayer(StrCat("blk.", i, "."), &out_.layers[i]);
  }

  void DeclareLayer(const std::string& prefix, LayerWeights* layer) {
    layer->attn_norm = Vector(prefix + "attn_norm.weight");
    layer->q = Matrix(prefix + "attn_q.weight");
    layer->k = Matrix(prefix + "attn_k.weight");
    layer->v = Matrix(prefix + "attn_v.weight");
    layer->q_bias = Vector(prefix + "attn_q.bias");
    layer->k_bias = Vector(prefix + "attn_k.bias");
    layer->v_bias = Vector(prefix + "attn_v.bias");
    layer->q_norm = Vector(prefix + "attn_q_norm.weight");
    layer->k_norm = Vector(prefix + "attn_k_norm.weight");
    layer->attn_out = Matrix(prefix + "attn_output.weight");
    layer->ffn_norm = Vector(prefix + "ffn_norm.weight");
    layer->ffn_gate = Matrix(prefix + "ffn_gate.weight");
    layer->ffn_up = Matrix(prefix + "ffn_up.weight");
    layer->ffn_down = Matrix(prefix + "ffn_down.weight");
  }

  // A norm, bias or factor row: always f32. nullptr if the file has none.
  ggml_tensor* Vector(const std::string& name) { return Add(name, true); }

  // A matrix that only multiplies: rearranged where the CPU can.
  ggml_tensor* Matrix(const std::string& name) {
    ggml_tensor* repacked = Repacked(name);
    return repacked != nullptr ? repacked : Plain(name);
  }

  // A matrix in the file's own form (or f32 if asked for), whose rows can be gathered.
  ggml_tensor* Plain(const std::string& name) { return Add(name, options_.dequantize_f32); }

  ggml_tensor* Add(const std::string& name, bool to_f32) {
    const GgufTensor* source = file_.file.FindTensor(name);
    if (source == nullptr) return nullptr;
    const ggml_type type = to_f32 ? GGML_TYPE_F32 : source->type;
    const bool as_is = on_cpu_ && type == source->type;
    return Push(*source, type, as_is ? Place::kFile : Place::kOwned);
  }

  // nullptr unless the CPU has a rearranged form of this tensor.
  ggml_tensor* Repacked(const std::string& name) {
    const GgufTensor* source = file_.file.FindTensor(name);
    if (source == nullptr || !probe_ || !CanRepack(*source)) return nullptr;
    return Push(*source, source->type, Place::kRepacked);
  }

  bool CanRepack(const GgufTensor& source) {
    ggml_context_ptr scratch(ggml_init({ggml_tensor_overhead() * 4, nullptr, true}));
    ggml_tensor* weight =
        ggml_new_tensor_2d(scratch.get(), source.type, source.ne[0], source.ne[1]);
    ggml_tensor* rows = ggml_new_tensor_2d(scratch.get(), GGML_TYPE_F32, source.ne[0], 512);
    ggml_tensor* product = ggml_mul_mat(scratch.get(), weight, rows);
    weight->buffer = probe_.get();
    return ggml_backend_dev_supports_op(device_, product);
  }

  ggml_tensor* Push(const GgufTensor& source, ggml_type type, Place place) {
    ggml_tensor* tensor =
        ggml_new_tensor(out_.context_.get(), type, source.n_dims, source.ne.data());
    ggml_set_name(tensor, std::string(source.name).c_str());
    entries_.push_back({&source, tensor, place});
    return tensor;
  }

  // Sizes as Load would allocate them; tensors get a place that no graph allocator touches.
  Status PretendLoaded() {
    for (const Entry& e : entries_) {
      e.tensor->data = reinterpret_cast<void*>(uintptr_t{4096});
      if (e.place != Place::kRepacked) continue;
      e.tensor->buffer = probe_.get();
      ggml_backend_buffer_init_tensor(probe_.get(), e.tensor);
    }
    if (probe_) out_.owned_.push_back(std::move(probe_));
    AddBuffer("mapped", FileBytesUsed());
    AddBuffer(ggml_backend_buft_name(OwnedType()), BytesIn(Place::kOwned, OwnedType()));
    if (repack_type_ != nullptr) {
      AddBuffer(std::string(kRepackName), BytesIn(Place::kRepacked, repack_type_));
    }
    return Status::Ok();
  }

  Status Load() {
    KVBOUND_RETURN_IF_ERROR(MapFile());
    KVBOUND_RETURN_IF_ERROR(Allocate(Place::kOwned, OwnedType()));
    if (repack_type_ != nullptr) {
      KVBOUND_RETURN_IF_ERROR(Allocate(Place::kRepacked, repack_type_));
    }
    return Status::Ok();
  }

  Status MapFile() {
    std::vector<ggml_backend_buffer_t> shard_buffers;
    for (const FileBytes& shard : file_.file.shards()) {
      auto* base = const_cast<uint8_t*>(shard.data());
      ggml_backend_buffer_t buffer = ggml_backend_cpu_buffer_from_ptr(base, shard.size());
      if (buffer == nullptr) return IoError(StrCat(shard.path(), ": cannot use the mapping"));
      ggml_backend_buffer_set_usage(buffer, GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
      out_.owned_.emplace_back(buffer);
      shard_buffers.push_back(buffer);
    }
    for (const Entry& e : entries_) {
      if (e.place != Place::kFile) continue;
      ggml_backend_tensor_alloc(shard_buffers[e.source->shard], e.tensor,
                                const_cast<uint8_t*>(e.source->data));
    }
    AddBuffer("mapped", FileBytesUsed());
    return Status::Ok();
  }

  Status Allocate(Place place, ggml_backend_buffer_type_t type) {
    const uint64_t bytes = BytesIn(place, type);
    if (bytes == 0) return Status::Ok();
    ggml_backend_buffer_t buffer = ggml_backend_buft_alloc_buffer(type, bytes);
    if (buffer == nullptr) {
      return OutOfBudget(StrCat(file_.file.path(), ": cannot allocate ", bytes,
                                " bytes for weights in ", ggml_backend_buft_name(type)));
    }
    ggml_backend_buffer_set_usage(buffer, GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
    out_.owned_.emplace_back(buffer);
    ggml_tallocr place_at = ggml_tallocr_new(buffer);
    for (const Entry& e : entries_) {
      if (e.place != place) continue;
      if (ggml_tallocr_alloc(&place_at, e.tensor) != GGML_STATUS_SUCCESS) {
        return Internal(StrCat("no room for tensor ", ggml_get_name(e.tensor)));
      }
      Fill(e);
    }
    AddBuffer(ggml_backend_buft_name(type), bytes);
    return Status::Ok();
  }

  void Fill(const Entry& e) {
    if (e.tensor->type == e.source->type) {
      ggml_backend_tensor_set(e.tensor, e.source->data, 0, e.source->n_bytes);
      return;
    }
    const int64_t n = e.source->ne[0];
    const size_t row_bytes = ggml_row_size(e.source->type, n);
    const ggml_to_float_t to_float = ggml_get_type_traits(e.source->type)->to_float;
    row_.resize(n);
    const int64_t n_rows = e.source->n_elements() / n;
    for (int64_t r = 0; r < n_rows; ++r) {
      to_float(e.source->data + r * row_bytes, row_.data(), n);
      ggml_backend_tensor_set(e.tensor, row_.data(), r * n * sizeof(float), n * sizeof(float));
    }
  }

  ggml_backend_buffer_type_t OwnedType() { return ggml_backend_dev_buffer_type(device_); }

  // Exactly what a ggml_tallocr needs, padding included.
  uint64_t BytesIn(Place place, ggml_backend_buffer_type_t type) const {
    const uint64_t alignment = ggml_backend_buft_get_alignment(type);
    uint64_t bytes = 0;
    for (const Entry& e : entries_) {
      if (e.place != place) continue;
      const uint64_t size = ggml_backend_buft_get_alloc_size(type, e.tensor);
      bytes += (size + alignment - 1) / alignment * alignment;
    }
    return bytes;
  }

  uint64_t FileBytesUsed() const {
    uint64_t bytes = 0;
    for (const Entry& e : entries_) {
      if (e.place == Place::kFile) bytes += e.source->n_bytes;
    }
    return bytes;
  }

  void AddBuffer(std::string name, uint64_t bytes) {
    if (bytes > 0) out_.buffers_.push_back({std::move(name), bytes});
  }

  const CheckedModelFile& file_;
  const ModelOptions& options_;
  ggml_backend_dev_t device_;
  Weights::Mode mode_;
  Weights& out_;
  bool on_cpu_ = false;
  ggml_backend_buffer_type_t repack_type_ = nullptr;
  ggml_backend_buffer_ptr probe_;  // of the repack type, empty: asks what it supports
  std::vector<Entry> entries_;
  std::vector<float> row_;
};

Result<std::unique_ptr<Weights>> Weights::Make(const CheckedModelFile& file,
                                               const ModelOptions& options,
                                               ggml_backend_dev_t device, Mode mode) {
  auto weights = std::make_unique<Weights>();
  KVBOUND_RETURN_IF_ERROR(WeightLoader(file, options, device, mode, weights.get()).Run());
  return weights;
}

uint64_t Weights::total_bytes() const {
  uint64_t total = 0;
  for (const WeightBuffer& buffer : buffers_) total += buffer.bytes;
  return total;
}

}  // namespace kvbound
