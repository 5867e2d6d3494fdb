#include <cmath>
#include <cstring>
#include <limits>
#include <unordered_set>
#include <utility>

#include "base/strings.h"
#include "scoring/gate_file.h"

namespace kvbound {
namespace {

constexpr size_t kMaxTextBytes = 1024;  // of one entry of the training record

std::string Key(std::string_view name) { return StrCat(kGateArchitecture, ".", name); }

class GateReader {
 public:
  explicit GateReader(const GgufFile& file) : file_(file) {}

  Result<Gates::Parts> Read() {
    KVBOUND_RETURN_IF_ERROR(CheckKind());
    KVBOUND_RETURN_IF_ERROR(ReadBase());
    KVBOUND_RETURN_IF_ERROR(ReadShape());
    KVBOUND_RETURN_IF_ERROR(ReadTraining());
    KVBOUND_RETURN_IF_ERROR(ReadTensors());
    KVBOUND_RETURN_IF_ERROR(CheckLeftovers());
    return std::move(parts_);
  }

 private:
  Status CheckKind() const {
    KVBOUND_ASSIGN_OR_RETURN(const std::string_view architecture,
                             file_.GetString("general.architecture"));
    if (architecture != kGateArchitecture) {
      return file_.KeyError("general.architecture",
                            StrCat("'", kGateArchitecture, "', a file of retention gates"),
                            StrCat("'", Printable(architecture), "': this is a model"));
    }
    KVBOUND_ASSIGN_OR_RETURN(const uint64_t version, file_.GetU64(Key("version")));
    if (version == kGateFileVersion) return Status::Ok();
    return Unsupported(StrCat(file_.path(), ": key '", Key("version"), "': expected ",
                              kGateFileVersion, ", found ", version));
  }

  Status Count(std::string_view name, uint64_t min, uint64_t max, int32_t* count) const {
    KVBOUND_ASSIGN_OR_RETURN(const uint64_t value, file_.GetU64(Key(name)));
    if (value < min || value > max) {
      return file_.KeyError(Key(name), StrCat("an integer in ", min, "..", max), StrCat(value));
    }
    *count = static_cast<int32_t>(value);
    return Status::Ok();
  }

  Status ReadBase() {
    BaseModel& base = parts_.base;
    KVBOUND_ASSIGN_OR_RETURN(const auto architecture, file_.GetString(Key("base.architecture")));
    KVBOUND_ASSIGN_OR_RETURN(const auto name, file_.GetStringOr(Key("base.name"), ""));
    base.architecture = Printable(architecture);
    base.name = Printable(name);
    KVBOUND_RETURN_IF_ERROR(Count("base.block_count", 1, kMaxGateLayers, &base.n_layer));
    KVBOUND_RETURN_IF_ERROR(Count("base.embedding_length", 1, kMaxGateWidth, &base.n_embd));
    // No model has more; the bound keeps a shared output from being copied into much more memory
    // than the file has bytes.
    const auto max_head = static_cast<uint64_t>(base.n_embd);
    KVBOUND_RETURN_IF_ERROR(Count("base.head_count_kv", 1, max_head, &base.n_kv_head));
    KVBOUND_RETURN_IF_ERROR(
        Count("base.vocab_size", 0, std::numeric_limits<int32_t>::max(), &base.n_vocab));
    KVBOUND_ASSIGN_OR_RETURN(base.norm_hash, file_.GetU64Or(Key("base.norm_hash"), 0));
    return Status::Ok();
  }

  Status ReadShape() {
    KVBOUND_ASSIGN_OR_RETURN(const auto name, file_.GetString(Key("activation")));
    const std::optional<GateActivation> activation = FindGateActivation(name);
    if (!activation) {
      return file_.KeyError(Key("activation"), "silu, gelu or relu",
                            StrCat("'", Printable(name), "'"));
    }
    parts_.activation = *activation;
    KVBOUND_ASSIGN_OR_RETURN(parts_.tied_output, file_.GetBoolOr(Key("tied_output"), false));
    const std::string key = Key("hidden_lengths");
    KVBOUND_ASSIGN_OR_RETURN(const GgufNumbers lengths, file_.GetNumbers(key));
    if (lengths.size() < 1 || lengths.size() > kMaxGateHidden) {
      return file_.KeyError(key, StrCat("1..", kMaxGateHidden, " integers"),
                            StrCat(lengths.size()));
    }
    for (uint64_t i = 0; i < lengths.size(); ++i) {
      const int64_t length = lengths.AsInt(i);
      if (length < 1 || length > static_cast<int64_t>(kMaxGateWidth)) {
        return file_.KeyError(key, StrCat("integers in 1..", kMaxGateWidth), StrCat(length));
      }
      hidden_.push_back(length);
    }
    return Status::Ok();
  }

  Status Amount(std::string_view name, int64_t* amount) const {
    const std::string key = Key(StrCat("training.", name));
    KVBOUND_ASSIGN_OR_RETURN(const uint64_t value, file_.GetU64Or(key, 0));
    constexpr uint64_t kMax = std::numeric_limits<int64_t>::max();
    if (value > kMax) return file_.KeyError(key, StrCat("at most ", kMax), StrCat(value));
    *amount = static_cast<int64_t>(value);
    return Status::Ok();
  }

  Status Measure(std::string_view name, double* measure) const {
    const std::string key = Key(StrCat("training.", name));
    KVBOUND_ASSIGN_OR_RETURN(*measure, file_.GetF64Or(key, 0));
    if (std::isfinite(*measure)) return Status::Ok();
    return file_.KeyError(key, "a finite number", StrCat(*measure));
  }

  Status ReadTraining() {
    GateTraining& training = parts_.training;
    KVBOUND_ASSIGN_OR_RETURN(const auto method, file_.GetStringOr(Key("training.method"), ""));
    training.method = Printable(method);
    if (file_.Has(Key("training.texts"))) {
      KVBOUND_ASSIGN_OR_RETURN(const auto texts, file_.GetStrings(Key("training.texts")));
      for (const std::string_view text : texts) {
        training.texts.push_back(Printable(text, kMaxTextBytes));
      }
    }
    KVBOUND_RETURN_IF_ERROR(Amount("tokens", &training.tokens));
    KVBOUND_RETURN_IF_ERROR(Amount("steps", &training.steps));
    KVBOUND_RETURN_IF_ERROR(Amount("seq_len", &training.seq_len));
    KVBOUND_RETURN_IF_ERROR(Amount("memory", &training.memory));
    KVBOUND_ASSIGN_OR_RETURN(training.seed, file_.GetU64Or(Key("training.seed"), 0));
    KVBOUND_RETURN_IF_ERROR(Measure("fact_share", &training.fact_share));
    KVBOUND_RETURN_IF_ERROR(Measure("loss", &training.loss));
    KVBOUND_RETURN_IF_ERROR(Measure("capacity_loss", &training.capacity_loss));
    return Measure("eviction_kl", &training.eviction_kl);
  }

  // Tensor `name` of this shape, [n_row, n_col] or, with n_row 0, a vector.
  Result<const GgufTensor*> Find(const std::string& name, int64_t n_row, int64_t n_col) {
    const GgufTensor* tensor = file_.FindTensor(name);
    if (tensor == nullptr) {
      return file_.TensorError(
          name,
          StrCat("one, as the file has ", parts_.base.n_layer, " layers with ", hidden_.size(),
                 " hidden linears each and ", parts_.tied_output ? "a shared output" : "an output"),
          "no such tensor: it is missing");
    }
    known_.insert(tensor->name);
    const int64_t n_outer = n_row == 0 ? 1 : n_row;
    if (tensor->ne != std::array<int64_t, 4>{n_col, n_outer, 1, 1}) {
      const std::string shape =
          n_row == 0 ? StrCat("[", n_col, "]") : StrCat("[", n_col, ", ", n_row, "]");
      return file_.TensorError(name, StrCat("shape ", shape, ", columns first"),
                               tensor->ShapeText());
    }
    return tensor;
  }

  Status ReadMatrix(const std::string& name, int64_t n_row, int64_t n_col, GateMatrix* matrix) {
    KVBOUND_ASSIGN_OR_RETURN(const GgufTensor* tensor, Find(name, n_row, n_col));
    const std::optional<GateType> type = FindGateType(tensor->type);
    if (!type) {
      return file_.TensorError(name, "type f32, f16 or q8_0",
                               StrCat("type ", ggml_type_name(tensor->type)));
    }
    *matrix = {*type, n_row, n_col, {tensor->data, tensor->data + tensor->n_bytes}};
    return Status::Ok();
  }

  Status ReadVector(const std::string& name, int64_t n, std::vector<float>* vector) {
    KVBOUND_ASSIGN_OR_RETURN(const GgufTensor* tensor, Find(name, 0, n));
    if (tensor->type != GGML_TYPE_F32) {
      return file_.TensorError(name, "type f32", StrCat("type ", ggml_type_name(tensor->type)));
    }
    vector->resize(static_cast<size_t>(n));
    std::memcpy(vector->data(), tensor->data, tensor->n_bytes);
    return Status::Ok();
  }

  Status ReadLayer(int32_t l, GateLayer* layer) {
    int64_t n_in = parts_.base.n_embd;
    for (size_t k = 0; k < hidden_.size(); ++k) {
      GateLinear& linear = layer->hidden.emplace_back();
      KVBOUND_RETURN_IF_ERROR(
          ReadMatrix(GateHiddenName(l, k, "weight"), hidden_[k], n_in, &linear.weight));
      KVBOUND_RETURN_IF_ERROR(ReadVector(GateHiddenName(l, k, "bias"), hidden_[k], &linear.bias));
      n_in = hidden_[k];
    }
    const bool tied = parts_.tied_output;
    const int64_t n_out = parts_.base.n_kv_head;
    KVBOUND_RETURN_IF_ERROR(
        ReadMatrix(GateOutputName(l, tied, "weight"), n_out, n_in, &layer->output.weight));
    return ReadVector(GateOutputName(l, tied, "bias"), n_out, &layer->output.bias);
  }

  Status ReadTensors() {
    for (int32_t l = 0; l < parts_.base.n_layer; ++l) {
      KVBOUND_RETURN_IF_ERROR(ReadLayer(l, &parts_.layers.emplace_back()));
    }
    return Status::Ok();
  }

  Status CheckLeftovers() const {
    for (const GgufTensor& tensor : file_.tensors()) {
      if (known_.contains(tensor.name)) continue;
      return file_.TensorError(tensor.name,
                               StrCat("no tensors beyond those of ", parts_.base.n_layer,
                                      " layers with ", hidden_.size(), " hidden linears each and ",
                                      parts_.tied_output ? "a shared output" : "an output"),
                               StrCat("this one, of shape ", tensor.ShapeText()));
    }
    return Status::Ok();
  }

  const GgufFile& file_;
  std::vector<int64_t> hidden_;
  std::unordered_set<std::string_view> known_;
  Gates::Parts parts_;
};

}  // namespace

Result<Gates::Parts> ReadGateParts(const GgufFile& file) { return GateReader(file).Read(); }

}  // namespace kvbound
