#ifndef KVBOUND_SCORING_GATE_FILE_H_
#define KVBOUND_SCORING_GATE_FILE_H_

#include <ggml.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "kvbound/gates.h"
#include "kvbound/status.h"
#include "model/gate_type.h"
#include "model/gguf_file.h"

namespace kvbound {

// The gate file of docs/formats.md: a GGUF file with an architecture name of its own.
inline constexpr std::string_view kGateArchitecture = "kvbound-gates";
inline constexpr uint64_t kGateFileVersion = 1;

// Bounds of what is read and made; a gate has one or two hidden linears in the papers.
inline constexpr uint64_t kMaxGateLayers = 1024;
inline constexpr uint64_t kMaxGateHidden = 8;
inline constexpr uint64_t kMaxGateWidth = 1 << 24;

// Names of tensors: "blk.3.gate.linear1.weight", "blk.3.gate.output.bias"; without "blk.3." for an
// output that all layers share. `hidden` counts from 0.
std::string GateHiddenName(int64_t layer, size_t hidden, std::string_view part);
std::string GateOutputName(int64_t layer, bool tied, std::string_view part);

std::optional<GateActivation> FindGateActivation(std::string_view name);

std::optional<GateType> FindGateType(ggml_type type);

// What is in an open gate file. Errors name file and key or tensor, expected and found. Weights
// are copied, not searched for NaN.
Result<Gates::Parts> ReadGateParts(const GgufFile& file);

// The whole file. REQUIRES: parts that Gates::Make accepts.
Status WriteGateFile(const Gates::Parts& parts, const std::string& path);

}  // namespace kvbound

#endif  // KVBOUND_SCORING_GATE_FILE_H_
