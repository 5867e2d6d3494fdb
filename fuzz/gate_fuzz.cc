// Any bytes as a gate file: what passes has finite weights of the right sizes, can be stored as
// other types, and is the same after it was saved and loaded. Inputs are changes to valid files.

#include <unistd.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "changes_common.h"
#include "kvbound/gates.h"
#include "model/gguf_file.h"
#include "scoring/gate_file.h"
#include "testing/gguf_writer.h"
#include "testing/random_gates.h"

namespace {

using kvbound::GateLayer;
using kvbound::GateLinear;
using kvbound::Gates;
using kvbound::GateType;
using kvbound::testing::GgufBytes;

void Require(bool holds) {
  if (!holds) std::abort();
}

const std::string& TemporaryPath() {
  static const std::string path =
      kvbound::testing::MakeTempDir() + "/" + std::to_string(getpid()) + ".gguf";
  return path;
}

GgufBytes Saved(const Gates& gates) {
  Require(gates.Save(TemporaryPath()).ok());
  const kvbound::FileBytes bytes = *kvbound::FileBytes::Read(TemporaryPath());
  return GgufBytes(bytes.data(), bytes.data() + bytes.size());
}

std::vector<GgufBytes> MakeBases() {
  std::vector<GgufBytes> bases;
  for (const GateType type : {GateType::kF32, GateType::kF16, GateType::kQ8_0}) {
    kvbound::testing::RandomGatesOptions options;
    options.type = type;
    options.hidden = {32};
    options.tied_output = type == GateType::kQ8_0;
    if (type == GateType::kF16) options.hidden = {32, 16};
    bases.push_back(Saved(**Gates::Make(kvbound::testing::RandomGateParts(options))));
  }
  return bases;
}

void CheckLinear(const GateLinear& linear, int64_t n_in) {
  Require(linear.weight.n_col == n_in);
  Require(linear.weight.n_row == static_cast<int64_t>(linear.bias.size()));
  for (const float value : linear.weight.ToFloats()) Require(std::isfinite(value));
  for (const float value : linear.bias) Require(std::isfinite(value));
}

void CheckGates(const Gates& gates) {
  const Gates::Parts& parts = gates.parts();
  Require(gates.n_layer() == parts.base.n_layer);
  for (const GateLayer& layer : parts.layers) {
    int64_t n_in = parts.base.n_embd;
    for (const GateLinear& linear : layer.hidden) {
      CheckLinear(linear, n_in);
      n_in = linear.weight.n_row;
    }
    CheckLinear(layer.output, n_in);
    Require(layer.output.weight.n_row == parts.base.n_kv_head);
  }
  for (const GateType type : {GateType::kF32, GateType::kF16, GateType::kQ8_0}) {
    const auto converted = gates.ConvertTo(type);
    if (!converted.ok()) {
      Require(!converted.status().message().empty());
      continue;
    }
    Require((*converted)->type() == type && (*converted)->n_parameter() == gates.n_parameter());
  }
  const GgufBytes once = Saved(gates);
  Require(Saved(**Gates::Load(TemporaryPath())) == once);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::vector<GgufBytes> kBases = MakeBases();
  const GgufBytes bytes = kvbound::fuzz::MakeBytes(data, size, kBases);
  const auto file = kvbound::GgufFile::FromMemory(bytes, "fuzz.gguf");
  if (!file.ok()) return 0;
  auto parts = kvbound::ReadGateParts(*file);
  if (!parts.ok()) {
    Require(!parts.status().message().empty());
    return 0;
  }
  const auto gates = Gates::Make(std::move(*parts));
  if (gates.ok()) {
    CheckGates(**gates);
  } else {
    Require(!gates.status().message().empty());
  }
  return 0;
}
