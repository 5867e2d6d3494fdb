#include "golden/golden_gates.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/strings.h"

namespace kvbound::golden {
namespace {

constexpr uint64_t kGolden = 0x9E3779B97F4A7C15;

uint64_t Fnv1a(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3;
  return hash;
}

// offset + scale * u, u in [-1, 1) by splitmix64, exact in f32.
std::vector<float> Values(const std::string& name, int64_t n, uint64_t seed, double scale,
                          double offset) {
  std::vector<float> values(static_cast<size_t>(n));
  uint64_t state = Fnv1a(name) ^ (seed * kGolden);
  for (float& value : values) {
    state += kGolden;
    uint64_t z = state;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
    z ^= z >> 31;
    const double u = (static_cast<double>(z >> 40) - 0x1p23) / 0x1p23;
    value = static_cast<float>(offset + scale * u);
  }
  return values;
}

GateMatrix Matrix(int64_t n_row, int64_t n_col, const std::vector<float>& values) {
  GateMatrix matrix{GateType::kF32, n_row, n_col, {}};
  matrix.data.resize(values.size() * sizeof(float));
  std::memcpy(matrix.data.data(), values.data(), matrix.data.size());
  return matrix;
}

std::string Prefix(int32_t layer) {
  return StrCat("model.layers.", layer, ".self_attn.retention_gate.");
}

GateLayer MakeLayer(const GateArguments& a, int32_t layer) {
  const std::string prefix = Prefix(layer);
  const auto values = [&](const char* name, int64_t n, double scale, double offset) {
    return Values(prefix + name, n, a.seed, scale, offset);
  };
  GateLinear hidden;
  hidden.weight = Matrix(a.n_hidden, a.n_embd,
                         values("linear1.weight", int64_t{a.n_hidden} * a.n_embd, a.scale1, 0));
  hidden.bias = values("linear1.bias", a.n_hidden, 0.5, 0);
  GateLayer made;
  made.hidden.push_back(std::move(hidden));
  made.output.weight =
      Matrix(a.n_kv_head, a.n_hidden,
             values("linear2.weight", int64_t{a.n_kv_head} * a.n_hidden, a.scale2, 0));
  made.output.bias = values("bias", a.n_kv_head, 1, 4);
  return made;
}

// The header's first four values of one tensor of layer 0 (all where it has fewer).
Status CheckFirst(const CaseFile& file, const std::string& tensor, std::span<const float> found) {
  const std::string field = "gate.first_values." + Prefix(0) + tensor;
  found = found.first(std::min<size_t>(found.size(), 4));
  KVBOUND_ASSIGN_OR_RETURN(const std::vector<float> expected, file.Numbers(field, found.size()));
  for (size_t i = 0; i < found.size(); ++i) {
    if (expected[i] == found[i]) continue;
    return file.FieldError(StrCat(field, "[", i, "]"), StrCat(found[i], " of the generator"),
                           StrCat(expected[i]));
  }
  return Status::Ok();
}

Result<double> PowerOfTwo(const CaseFile& file, const std::string& field) {
  KVBOUND_ASSIGN_OR_RETURN(const double scale, file.Number(field));
  int exponent = 0;
  if (scale > 0 && std::frexp(scale, &exponent) == 0.5 && std::abs(exponent) < 30) return scale;
  return file.FieldError(field, "a power of two", StrCat(scale));
}

Result<GateArguments> ReadArguments(const CaseFile& file) {
  KVBOUND_ASSIGN_OR_RETURN(const std::string generator, file.Text("gate.generator"));
  if (generator != "gates.py") {
    return file.FieldError("gate.generator", "gates.py", Printable(generator));
  }
  constexpr int64_t kMaxWidth = 1 << 14;
  constexpr int64_t kMaxLayer = 256;
  constexpr int64_t kMaxValues = int64_t{1} << 26;
  const auto width = [&](const char* field, int64_t highest) {
    return file.Int(StrCat("gate.", field), 1, highest);
  };
  KVBOUND_ASSIGN_OR_RETURN(const int64_t n_embd, width("dim", kMaxWidth));
  KVBOUND_ASSIGN_OR_RETURN(const int64_t n_hidden, width("hidden", kMaxWidth));
  KVBOUND_ASSIGN_OR_RETURN(const int64_t n_kv_head, width("n_kv_heads", kMaxWidth));
  KVBOUND_ASSIGN_OR_RETURN(const int64_t n_layer, width("n_layers", kMaxLayer));
  if ((n_embd + n_kv_head + 1) * n_hidden * n_layer > kMaxValues) {
    return file.FieldError("gate", StrCat("at most ", kMaxValues, " values"), "more");
  }
  KVBOUND_ASSIGN_OR_RETURN(const int64_t seed, file.Int("gate.seed", 0, INT64_MAX));
  GateArguments a;
  a.n_embd = static_cast<int32_t>(n_embd);
  a.n_hidden = static_cast<int32_t>(n_hidden);
  a.n_kv_head = static_cast<int32_t>(n_kv_head);
  a.n_layer = static_cast<int32_t>(n_layer);
  a.seed = static_cast<uint64_t>(seed);
  KVBOUND_ASSIGN_OR_RETURN(a.scale1, PowerOfTwo(file, "gate.scale1"));
  KVBOUND_ASSIGN_OR_RETURN(a.scale2, PowerOfTwo(file, "gate.scale2"));
  return a;
}

std::vector<float> Floats(const GateMatrix& matrix) {
  std::vector<float> values(matrix.data.size() / sizeof(float));
  std::memcpy(values.data(), matrix.data.data(), matrix.data.size());
  return values;
}

}  // namespace

Gates::Parts MakeGoldenGates(const GateArguments& arguments) {
  Gates::Parts parts;
  parts.base.n_layer = arguments.n_layer;
  parts.base.n_embd = arguments.n_embd;
  parts.base.n_kv_head = arguments.n_kv_head;
  for (int32_t l = 0; l < arguments.n_layer; ++l) parts.layers.push_back(MakeLayer(arguments, l));
  return parts;
}

Result<Gates::Parts> GoldenGates(const CaseFile& file) {
  KVBOUND_ASSIGN_OR_RETURN(const GateArguments arguments, ReadArguments(file));
  Gates::Parts parts = MakeGoldenGates(arguments);
  const GateLayer& first = parts.layers.front();
  KVBOUND_RETURN_IF_ERROR(CheckFirst(file, "linear1.weight", Floats(first.hidden[0].weight)));
  KVBOUND_RETURN_IF_ERROR(CheckFirst(file, "linear1.bias", first.hidden[0].bias));
  KVBOUND_RETURN_IF_ERROR(CheckFirst(file, "linear2.weight", Floats(first.output.weight)));
  KVBOUND_RETURN_IF_ERROR(CheckFirst(file, "bias", first.output.bias));
  return parts;
}

Result<std::shared_ptr<const Gates>> GatesOfCase(const CaseFile& file, const Model& model) {
  const auto read_parts = [&]() -> Result<Gates::Parts> {
    if (file.Has("gate")) return GoldenGates(file);
    KVBOUND_ASSIGN_OR_RETURN(const std::string name, file.Text("model"));
    const std::string keep = name + "-keep";
    KVBOUND_ASSIGN_OR_RETURN(const CaseFile beside,
                             CaseFile::Read(file.folder() / (keep + ".json"), keep));
    return GoldenGates(beside);
  };
  KVBOUND_ASSIGN_OR_RETURN(Gates::Parts parts, read_parts());
  parts.base = DescribeBase(model);
  return Gates::Make(std::move(parts));
}

}  // namespace kvbound::golden
