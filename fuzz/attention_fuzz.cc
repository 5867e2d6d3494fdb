// Attend over any shapes, types, lengths, offsets, orders and visibility, in one thread and in
// three, against plain loops in double.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "testing/attention_case.h"

namespace {

using kvbound::KvType;
using kvbound::testing::AttentionCase;
using kvbound::testing::AttentionCaseOptions;
using kvbound::testing::AttentionOutputs;
using kvbound::testing::AttentionTolerance;

class Bytes {
 public:
  Bytes(const uint8_t* data, size_t size) : data_(data), size_(size) {}
  // In [low, high]; zeros once the input is used up.
  int32_t Int(int32_t low, int32_t high) {
    uint32_t value = Next();
    if (high - low > 255) value = value << 8 | Next();
    return low + static_cast<int32_t>(value % static_cast<uint32_t>(high - low + 1));
  }

 private:
  uint32_t Next() { return at_ < size_ ? data_[at_++] : 0; }
  const uint8_t* data_;
  size_t size_;
  size_t at_ = 0;
};

AttentionCaseOptions Read(Bytes bytes) {
  constexpr KvType kTypes[] = {KvType::kF32, KvType::kF16, KvType::kBF16, KvType::kQ8_0,
                               KvType::kQ4_0};
  AttentionCaseOptions options;
  kvbound::AttentionShape& shape = options.shape;
  options.type_k = kTypes[bytes.Int(0, 4)];
  options.type_v = kTypes[bytes.Int(0, 4)];
  const bool blocks = options.type_k >= KvType::kQ8_0 || options.type_v >= KvType::kQ8_0;
  shape.head_dim = blocks ? 32 * bytes.Int(1, 4) : bytes.Int(1, 130);
  shape.n_seq = bytes.Int(1, 2);
  shape.n_kv_head = bytes.Int(1, 2);
  shape.n_head = shape.n_kv_head * bytes.Int(1, 9);
  shape.n_tok = bytes.Int(1, 40);
  shape.max_slots = bytes.Int(1, 1400);
  shape.mass = bytes.Int(0, 1) == 1;
  options.shuffled = bytes.Int(0, 1) == 1;
  options.seed = static_cast<uint32_t>(bytes.Int(1, 200));
  const int32_t n_same = bytes.Int(0, shape.max_slots);
  for (int32_t i = 0; i < shape.n_seq * shape.n_kv_head; ++i) {
    options.n_slot.push_back(options.shuffled ? n_same : bytes.Int(0, shape.max_slots));
    options.first_slot.push_back(bytes.Int(0, 70));
  }
  if (bytes.Int(0, 1) == 0) return options;
  for (int32_t i = 0; i < shape.n_seq * shape.n_tok; ++i) {
    options.visible.push_back({bytes.Int(0, shape.max_slots), bytes.Int(-3, shape.max_slots)});
  }
  return options;
}

void RequireNear(const std::vector<double>& found, const std::vector<double>& expected,
                 double tolerance, const char* what, const AttentionCaseOptions& options) {
  for (size_t i = 0; i < found.size(); ++i) {
    if (found[i] == expected[i] || std::abs(found[i] - expected[i]) <= tolerance) continue;
    std::fprintf(stderr, "%s[%zu]: expected %.9g, found %.9g\n%s\n", what, i, expected[i], found[i],
                 Describe(options).c_str());
    std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const AttentionCaseOptions options = Read(Bytes(data, size));
  AttentionCase attention(options);
  const AttentionOutputs expected = attention.Oracle(), found = attention.Run(1);
  const AttentionTolerance tolerance = ToleranceOf(options);
  RequireNear(found.out, expected.out, 2 * tolerance.out, "out", options);
  RequireNear(found.lse, expected.lse, 2 * tolerance.lse, "lse", options);
  const AttentionOutputs many = attention.Run(3);
  RequireNear(many.out, found.out, 0, "out of three threads", options);
  if (!options.shape.mass) return 0;
  RequireNear(found.mass, expected.mass, 2 * tolerance.mass, "mass", options);
  RequireNear(found.value_mass, expected.value_mass, 3 * tolerance.value_mass, "value mass",
              options);
  RequireNear(many.mass, found.mass, 0, "mass of three threads", options);
  return 0;
}
