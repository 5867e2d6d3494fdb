#include "kvbound/gates.h"

#include <cmath>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/strings.h"
#include "model/gguf_file.h"
#include "scoring/gate_file.h"

namespace kvbound {
namespace {

struct TypeInfo {
  GateType type;
  std::string_view name;
  ggml_type ggml;
};

constexpr TypeInfo kTypes[] = {
    {GateType::kF32, "f32", GGML_TYPE_F32},
    {GateType::kF16, "f16", GGML_TYPE_F16},
    {GateType::kQ8_0, "q8_0", GGML_TYPE_Q8_0},
};

constexpr std::pair<GateActivation, std::string_view> kActivations[] = {
    {GateActivation::kSilu, "silu"},
    {GateActivation::kGelu, "gelu"},
    {GateActivation::kRelu, "relu"},
};

Status TensorError(const std::string& name, std::string_view expected, std::string_view found) {
  return InvalidArgument(
      StrCat("gates: tensor '", name, "': expected ", expected, ", found ", found));
}

std::string ShapeText(int64_t n_row, int64_t n_col) { return StrCat("[", n_row, ", ", n_col, "]"); }

Status CheckFinite(const std::string& name, std::span<const float> values, int64_t n_col) {
  for (size_t i = 0; i < values.size(); ++i) {
    if (std::isfinite(values[i])) continue;
    const auto at = static_cast<int64_t>(i);
    const std::string where =
        n_col == 0 ? StrCat("element ", at) : StrCat("row ", at / n_col, ", column ", at % n_col);
    return TensorError(name, "finite weights", StrCat(values[i], " at ", where));
  }
  return Status::Ok();
}

Status CheckMatrix(const std::string& name, const GateMatrix& matrix, int64_t n_row,
                   int64_t n_col) {
  if (matrix.n_row != n_row || matrix.n_col != n_col) {
    return TensorError(name, StrCat("shape ", ShapeText(n_row, n_col), " (rows, columns)"),
                       ShapeText(matrix.n_row, matrix.n_col));
  }
  const ggml_type type = GateGgmlType(matrix.type);
  if (n_col % ggml_blck_size(type) != 0) {
    return TensorError(name,
                       StrCat("rows of a multiple of ", ggml_blck_size(type), " weights for type ",
                              GateTypeName(matrix.type)),
                       StrCat("rows of ", n_col));
  }
  const uint64_t n_bytes = static_cast<uint64_t>(n_row) * ggml_row_size(type, n_col);
  if (matrix.data.size() != n_bytes) {
    return TensorError(name, StrCat(n_bytes, " bytes"), StrCat(matrix.data.size()));
  }
  return CheckFinite(name, matrix.ToFloats(), n_col);
}

Status CheckBias(const std::string& name, const std::vector<float>& bias, int64_t n_row) {
  if (static_cast<int64_t>(bias.size()) != n_row) {
    return TensorError(name, StrCat(n_row, " values"), StrCat(bias.size()));
  }
  return CheckFinite(name, bias, 0);
}

Status CheckCount(std::string_view what, int64_t value, int64_t max) {
  if (value >= 1 && value <= max) return Status::Ok();
  return InvalidArgument(StrCat("gates: ", what, ": expected 1..", max, ", found ", value));
}

Status CheckCounts(const Gates::Parts& parts) {
  const BaseModel& base = parts.base;
  KVBOUND_RETURN_IF_ERROR(CheckCount("layers", base.n_layer, kMaxGateLayers));
  KVBOUND_RETURN_IF_ERROR(CheckCount("n_embd", base.n_embd, kMaxGateWidth));
  KVBOUND_RETURN_IF_ERROR(CheckCount("n_kv_head", base.n_kv_head, base.n_embd));
  if (parts.layers.size() != static_cast<size_t>(base.n_layer)) {
    return InvalidArgument(StrCat("gates: expected ", base.n_layer,
                                  " layers, as the base model has, found ", parts.layers.size()));
  }
  for (size_t l = 0; l < parts.layers.size(); ++l) {
    const std::vector<GateLinear>& hidden = parts.layers[l].hidden;
    const std::string what = StrCat("layer ", l, ": hidden linears");
    KVBOUND_RETURN_IF_ERROR(CheckCount(what, static_cast<int64_t>(hidden.size()), kMaxGateHidden));
    if (hidden.size() != parts.layers[0].hidden.size()) {
      return InvalidArgument(StrCat("gates: ", what, ": expected ", parts.layers[0].hidden.size(),
                                    " as in layer 0, found ", hidden.size()));
    }
    for (const GateLinear& linear : hidden) {
      KVBOUND_RETURN_IF_ERROR(
          CheckCount(StrCat("layer ", l, ": hidden size"), linear.weight.n_row, kMaxGateWidth));
    }
  }
  return Status::Ok();
}

// Every layer has the hidden sizes of the first.
Status CheckLayer(const Gates::Parts& parts, int64_t l) {
  const GateLayer& layer = parts.layers[l];
  int64_t n_in = parts.base.n_embd;
  for (size_t k = 0; k < layer.hidden.size(); ++k) {
    const int64_t n_out = parts.layers[0].hidden[k].weight.n_row;
    KVBOUND_RETURN_IF_ERROR(
        CheckMatrix(GateHiddenName(l, k, "weight"), layer.hidden[k].weight, n_out, n_in));
    KVBOUND_RETURN_IF_ERROR(CheckBias(GateHiddenName(l, k, "bias"), layer.hidden[k].bias, n_out));
    n_in = n_out;
  }
  const std::string weight = GateOutputName(l, parts.tied_output, "weight");
  const std::string bias = GateOutputName(l, parts.tied_output, "bias");
  KVBOUND_RETURN_IF_ERROR(CheckMatrix(weight, layer.output.weight, parts.base.n_kv_head, n_in));
  KVBOUND_RETURN_IF_ERROR(CheckBias(bias, layer.output.bias, parts.base.n_kv_head));
  if (!parts.tied_output || l == 0) return Status::Ok();
  const GateLinear& first = parts.layers[0].output;
  if (layer.output.weight.type == first.weight.type &&
      layer.output.weight.data == first.weight.data && layer.output.bias == first.bias) {
    return Status::Ok();
  }
  return TensorError(weight, "the same output in all layers, as it is tied",
                     StrCat("another one in layer ", l));
}

Status CheckParts(const Gates::Parts& parts) {
  KVBOUND_RETURN_IF_ERROR(CheckCounts(parts));
  for (size_t l = 0; l < parts.layers.size(); ++l) {
    KVBOUND_RETURN_IF_ERROR(CheckLayer(parts, static_cast<int64_t>(l)));
  }
  return Status::Ok();
}

template <typename F>
void ForEachLinear(const Gates::Parts& parts, bool tied_once, F&& visit) {
  for (size_t l = 0; l < parts.layers.size(); ++l) {
    for (const GateLinear& linear : parts.layers[l].hidden) visit(linear);
    if (l == 0 || !tied_once || !parts.tied_output) visit(parts.layers[l].output);
  }
}

}  // namespace

std::string_view GateActivationName(GateActivation activation) {
  for (const auto& [value, name] : kActivations) {
    if (value == activation) return name;
  }
  DCHECK(false);
  return "unknown";
}

std::optional<GateActivation> FindGateActivation(std::string_view name) {
  for (const auto& [value, value_name] : kActivations) {
    if (value_name == name) return value;
  }
  return std::nullopt;
}

std::string_view GateTypeName(GateType type) {
  for (const TypeInfo& info : kTypes) {
    if (info.type == type) return info.name;
  }
  DCHECK(false);
  return "unknown";
}

Result<GateType> ParseGateType(std::string_view name) {
  for (const TypeInfo& info : kTypes) {
    if (info.name == name) return info.type;
  }
  return InvalidArgument(
      StrCat("type of gates: expected f32, f16 or q8_0, found '", Printable(name), "'"));
}

std::optional<GateType> FindGateType(ggml_type type) {
  for (const TypeInfo& info : kTypes) {
    if (info.ggml == type) return info.type;
  }
  return std::nullopt;
}

GateMatrix GateMatrix::FromFloats(GateType type, int64_t n_row, int64_t n_col,
                                  std::span<const float> values) {
  const ggml_type ggml = GateGgmlType(type);
  DCHECK(static_cast<int64_t>(values.size()) == n_row * n_col);
  DCHECK(n_col % ggml_blck_size(ggml) == 0);
  GateMatrix matrix{type, n_row, n_col, {}};
  matrix.data.resize(static_cast<size_t>(n_row) * ggml_row_size(ggml, n_col));
  ggml_quantize_chunk(ggml, values.data(), matrix.data.data(), 0, n_row, n_col, nullptr);
  return matrix;
}

std::vector<float> GateMatrix::ToFloats() const {
  std::vector<float> values(static_cast<size_t>(n_row * n_col));
  const ggml_to_float_t to_float = ggml_get_type_traits(GateGgmlType(type))->to_float;
  if (type == GateType::kF32) {
    std::memcpy(values.data(), data.data(), data.size());
  } else {
    to_float(data.data(), values.data(), n_row * n_col);
  }
  return values;
}

Result<std::shared_ptr<const Gates>> Gates::Make(Parts parts) {
  KVBOUND_RETURN_IF_ERROR(CheckParts(parts));
  return std::shared_ptr<const Gates>(new Gates(std::move(parts)));
}

Result<std::shared_ptr<const Gates>> Gates::Load(const std::string& path) {
  KVBOUND_ASSIGN_OR_RETURN(const GgufFile file, GgufFile::Open(path));
  KVBOUND_ASSIGN_OR_RETURN(Parts parts, ReadGateParts(file));
  const Status status = CheckParts(parts);
  if (!status.ok()) return Corrupt(StrCat(path, ": ", status.message()));
  std::shared_ptr<Gates> gates(new Gates(std::move(parts)));
  gates->path_ = path;
  return std::shared_ptr<const Gates>(std::move(gates));
}

Status Gates::Save(const std::string& path) const { return WriteGateFile(parts_, path); }

Result<std::shared_ptr<const Gates>> Gates::ConvertTo(GateType type) const {
  Parts parts = parts_;
  const int64_t block = ggml_blck_size(GateGgmlType(type));
  for (GateLayer& layer : parts.layers) {
    std::vector<GateLinear*> linears;
    for (GateLinear& linear : layer.hidden) linears.push_back(&linear);
    linears.push_back(&layer.output);
    for (GateLinear* linear : linears) {
      const GateMatrix& from = linear->weight;
      if (from.type == type) continue;
      if (from.n_col % block != 0) {
        return InvalidArgument(StrCat("gates: type ", GateTypeName(type),
                                      " needs n_embd and hidden sizes divisible by ", block,
                                      ", found ", from.n_col, "; use f16"));
      }
      linear->weight = GateMatrix::FromFloats(type, from.n_row, from.n_col, from.ToFloats());
    }
  }
  return Make(std::move(parts));
}

GateType Gates::type() const { return parts_.layers.front().hidden.front().weight.type; }

int64_t Gates::n_parameter() const {
  int64_t n = 0;
  ForEachLinear(parts_, true, [&n](const GateLinear& linear) {
    n += linear.weight.n_row * linear.weight.n_col + static_cast<int64_t>(linear.bias.size());
  });
  return n;
}

uint64_t Gates::weight_bytes() const {
  uint64_t n = 0;
  ForEachLinear(parts_, false, [&n](const GateLinear& linear) {
    n += linear.weight.data.size() + linear.bias.size() * sizeof(float);
  });
  return n;
}

}  // namespace kvbound
