#ifndef KVBOUND_OPTIONS_H_
#define KVBOUND_OPTIONS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kvbound/gates.h"
#include "kvbound/policy.h"
#include "kvbound/status.h"

namespace kvbound {

// How K or V rows are stored. Block types (q8_0, q4_0) need a head size divisible by 32.
enum class KvType { kF32, kF16, kBF16, kQ8_0, kQ4_0 };

std::string_view KvTypeName(KvType type);
Result<KvType> ParseKvType(std::string_view name);

// What computes attention. Fused: our operator, on CPUs, which reads each row of K and V once.
// Stock: ggml's operators, product, softmax, product or flash attention, whichever is faster; V is
// stored transposed, in a float type. Flash: ggml's flash attention throughout. Auto: fused where
// it is possible, else stock on CPUs and flash elsewhere.
enum class AttentionPath { kAuto, kFused, kStock, kFlash };

std::string_view AttentionPathName(AttentionPath path);  // "auto", "fused", "stock", "flash"

// What RoPE rotates keys by. Original: a token's position in its text, for ever; a text far longer
// than the context that the model was trained on breaks down. Auto: the same until the next chunk
// would pass `position_limit`; then the cut before it rebases the cache, that is, rotates the keys
// of each token set on to the RoPE positions 0, 1, 2, ... in the order of the text (as
// StreamingLLM, arXiv 2309.17453, does at every step), and tokens go on from there.
enum class PositionMode { kAuto, kOriginal };

std::string_view PositionModeName(PositionMode mode);  // "auto", "original"

// How the weights are held. Changes no result beyond float rounding.
struct ModelOptions {
  bool mmap = true;             // map the file; false reads it into memory
  bool repack = true;           // rearrange weights for the CPU's vector units where ggml can
  bool dequantize_f32 = false;  // hold every weight as f32: exact, 4 bytes per weight
  std::string device = "cpu";   // a ggml device name; ListDevices() tells which exist
};

// One device that the installed ggml offers.
struct DeviceInfo {
  std::string name;  // as typed after --device
  std::string description;
};
std::vector<DeviceInfo> ListDevices();

// The bounded cache and the graphs around it. All of it is allocated once.
struct EngineOptions {
  // -- behaviour
  int32_t budget = 512;  // J: slots that survive a cut, per kv_head
  int32_t chunk = 128;   // h: tokens between two cuts; at most J + h slots are ever occupied
  int32_t n_seq = 1;     // sequences, each with its own budget
  KvType type_k = KvType::kF16;
  KvType type_v = KvType::kF16;
  // Sessions that ask for nothing else get this policy. The store is sized for it; a session
  // with another policy must need no more (granularity, hidden rows).
  PolicyOptions policy;
  PositionMode positions = PositionMode::kAuto;
  // With kAuto, no key or query is rotated by this position or a later one. At least budget +
  // chunk; 0: the context that the model was trained on, or budget + chunk if that is more.
  int32_t position_limit = 0;
  PolicyFactory own_policy;  // if set, takes the place of `policy`
  // For policies that read log beta. With gates, and only if the default policy needs them, every
  // forward pass computes log beta of its tokens.
  std::shared_ptr<const Gates> gates;
  // -- performance
  AttentionPath attention = AttentionPath::kAuto;
  int32_t n_threads = 0;  // at most; 0: as many as the process may use (affinity and CPU quota)
  // -- memory
  int32_t max_logit_rows = 0;  // logit rows that one forward pass can return; 0: n_seq
};

// Protection asked for by the user; a field left open takes the policy's default.
struct ProtectionOptions {
  std::optional<int32_t> sinks;
  std::optional<int32_t> recent;
  std::optional<bool> pin_prompt;
};

struct SessionOptions {
  std::optional<PolicyOptions> policy;  // else the engine's
  PolicyFactory own_policy;             // if set, used instead of a registered policy
  ProtectionOptions protection;
};

}  // namespace kvbound

#endif  // KVBOUND_OPTIONS_H_
