#include "kvbound/options.h"

#include <array>
#include <utility>

#include "base/strings.h"

namespace kvbound {

namespace {

constexpr std::array<std::pair<KvType, std::string_view>, 5> kKvTypes = {{
    {KvType::kF32, "f32"},
    {KvType::kF16, "f16"},
    {KvType::kBF16, "bf16"},
    {KvType::kQ8_0, "q8_0"},
    {KvType::kQ4_0, "q4_0"},
}};

}  // namespace

std::string_view KvTypeName(KvType type) {
  for (const auto& [value, name] : kKvTypes) {
    if (value == type) return name;
  }
  return "unknown";
}

std::string_view AttentionPathName(AttentionPath path) {
  switch (path) {
    case AttentionPath::kAuto:
      return "auto";
    case AttentionPath::kFused:
      return "fused";
    case AttentionPath::kStock:
      return "stock";
    case AttentionPath::kFlash:
      return "flash";
  }
  return "unknown";
}

std::string_view PositionModeName(PositionMode mode) {
  return mode == PositionMode::kAuto ? "auto" : "original";
}

Result<KvType> ParseKvType(std::string_view name) {
  std::string known;
  for (const auto& [value, text] : kKvTypes) {
    if (text == name) return value;
    known += StrCat(known.empty() ? "" : ", ", text);
  }
  return InvalidArgument(
      StrCat("KV type: expected one of ", known, ", found '", Printable(name), "'"));
}

std::string_view GranularityName(Granularity granularity) {
  switch (granularity) {
    case Granularity::kShared:
      return "shared";
    case Granularity::kPerLayer:
      return "per_layer";
    case Granularity::kPerHead:
      return "per_head";
  }
  return "unknown";
}

}  // namespace kvbound
