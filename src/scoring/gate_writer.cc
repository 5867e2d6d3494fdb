#include <gguf.h>

#include <array>
#include <memory>
#include <vector>

#include "base/atomic_file.h"
#include "base/check.h"
#include "base/strings.h"
#include "ggml-cpp.h"
#include "scoring/gate_file.h"

namespace kvbound {
namespace {

constexpr std::array<uint8_t, GGUF_DEFAULT_ALIGNMENT> kZeros{};

// Collects keys and tensors in ggml's writer, which lays the header out; the data stays where it
// is until it is written.
class GateWriter {
 public:
  explicit GateWriter(const Gates::Parts& parts)
      : parts_(parts),
        context_(ggml_init({ggml_tensor_overhead() * NumTensors(), nullptr, true})),
        gguf_(gguf_init_empty()) {}

  Status Write(const std::string& path) {
    AddKeys();
    AddTraining();
    AddTensors();
    std::vector<uint8_t> header(gguf_get_meta_size(gguf_.get()));
    gguf_get_meta_data(gguf_.get(), header.data());
    std::vector<std::span<const uint8_t>> pieces = {header};
    for (const std::span<const uint8_t> data : data_) {
      pieces.push_back(data);
      const size_t rest = data.size() % kZeros.size();
      if (rest != 0) pieces.push_back(std::span(kZeros).first(kZeros.size() - rest));
    }
    return WriteFileAtomically(path, pieces);
  }

 private:
  size_t NumTensors() const {
    return parts_.layers.size() * (parts_.layers.front().hidden.size() + 1) * 2;
  }

  static std::string Key(std::string_view name) { return StrCat(kGateArchitecture, ".", name); }
  void SetU32(std::string_view name, int64_t value) {
    gguf_set_val_u32(gguf_.get(), Key(name).c_str(), static_cast<uint32_t>(value));
  }
  void SetU64(std::string_view name, uint64_t value) {
    gguf_set_val_u64(gguf_.get(), Key(name).c_str(), value);
  }
  void SetF64(std::string_view name, double value) {
    gguf_set_val_f64(gguf_.get(), Key(name).c_str(), value);
  }
  void SetString(std::string_view name, const std::string& value) {
    gguf_set_val_str(gguf_.get(), Key(name).c_str(), value.c_str());
  }

  void AddKeys() {
    const BaseModel& base = parts_.base;
    gguf_set_val_str(gguf_.get(), "general.architecture", std::string(kGateArchitecture).c_str());
    SetU32("version", kGateFileVersion);
    SetString("base.architecture", base.architecture);
    SetString("base.name", base.name);
    SetU32("base.block_count", base.n_layer);
    SetU32("base.embedding_length", base.n_embd);
    SetU32("base.head_count_kv", base.n_kv_head);
    SetU32("base.vocab_size", base.n_vocab);
    SetU64("base.norm_hash", base.norm_hash);
    SetString("activation", std::string(GateActivationName(parts_.activation)));
    gguf_set_val_bool(gguf_.get(), Key("tied_output").c_str(), parts_.tied_output);
    std::vector<uint32_t> lengths;
    for (const GateLinear& linear : parts_.layers.front().hidden) {
      lengths.push_back(static_cast<uint32_t>(linear.weight.n_row));
    }
    gguf_set_arr_data(gguf_.get(), Key("hidden_lengths").c_str(), GGUF_TYPE_UINT32, lengths.data(),
                      lengths.size());
  }

  void AddTraining() {
    const GateTraining& training = parts_.training;
    SetString("training.method", training.method);
    std::vector<const char*> texts;
    for (const std::string& text : training.texts) texts.push_back(text.c_str());
    if (!texts.empty()) {
      gguf_set_arr_str(gguf_.get(), Key("training.texts").c_str(), texts.data(), texts.size());
    }
    SetU64("training.tokens", static_cast<uint64_t>(training.tokens));
    SetU64("training.steps", static_cast<uint64_t>(training.steps));
    SetU64("training.seq_len", static_cast<uint64_t>(training.seq_len));
    SetU64("training.memory", static_cast<uint64_t>(training.memory));
    SetU64("training.seed", training.seed);
    SetF64("training.fact_share", training.fact_share);
    SetF64("training.loss", training.loss);
    SetF64("training.capacity_loss", training.capacity_loss);
    SetF64("training.eviction_kl", training.eviction_kl);
  }

  void AddTensor(const std::string& name, ggml_tensor* tensor, std::span<const uint8_t> data) {
    DCHECK(data.size() == ggml_nbytes(tensor));
    ggml_set_name(tensor, name.c_str());
    gguf_add_tensor(gguf_.get(), tensor);
    data_.push_back(data);
  }

  void AddLinear(const std::string& weight, const std::string& bias, const GateLinear& linear) {
    const GateMatrix& matrix = linear.weight;
    AddTensor(
        weight,
        ggml_new_tensor_2d(context_.get(), GateGgmlType(matrix.type), matrix.n_col, matrix.n_row),
        matrix.data);
    const auto n_out = static_cast<int64_t>(linear.bias.size());
    AddTensor(
        bias, ggml_new_tensor_1d(context_.get(), GGML_TYPE_F32, n_out),
        {reinterpret_cast<const uint8_t*>(linear.bias.data()), linear.bias.size() * sizeof(float)});
  }

  void AddTensors() {
    const bool tied = parts_.tied_output;
    for (size_t i = 0; i < parts_.layers.size(); ++i) {
      const auto l = static_cast<int64_t>(i);
      const GateLayer& layer = parts_.layers[i];
      for (size_t k = 0; k < layer.hidden.size(); ++k) {
        AddLinear(GateHiddenName(l, k, "weight"), GateHiddenName(l, k, "bias"), layer.hidden[k]);
      }
      if (tied && i > 0) continue;
      AddLinear(GateOutputName(l, tied, "weight"), GateOutputName(l, tied, "bias"), layer.output);
    }
  }

  const Gates::Parts& parts_;
  ggml_context_ptr context_;
  gguf_context_ptr gguf_;
  std::vector<std::span<const uint8_t>> data_;
};

}  // namespace

std::string GateHiddenName(int64_t layer, size_t hidden, std::string_view part) {
  return StrCat("blk.", layer, ".gate.linear", hidden + 1, ".", part);
}

std::string GateOutputName(int64_t layer, bool tied, std::string_view part) {
  return tied ? StrCat("gate.output.", part) : StrCat("blk.", layer, ".gate.output.", part);
}

Status WriteGateFile(const Gates::Parts& parts, const std::string& path) {
  return GateWriter(parts).Write(path);
}

}  // namespace kvbound
