#ifndef KVBOUND_TESTING_ATTENTION_CASE_H_
#define KVBOUND_TESTING_ATTENTION_CASE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/attention.h"

namespace kvbound::testing {

// A call of Attend with data of its own, whatever its options.
struct AttentionCaseOptions {
  AttentionShape shape = {};
  KvType type_k = KvType::kF16;
  KvType type_v = KvType::kF16;
  std::vector<int32_t> n_slot = {};      // [n_seq, n_kv_head]; empty: max_slots
  std::vector<int32_t> first_slot = {};  // [n_seq, n_kv_head]; empty: 0
  bool shuffled = false;                 // ranks are a permutation
  std::vector<Visible> visible =
      {};             // [n_seq, n_tok]; empty: the last n_tok slots are the queries'
  float size = 1.0f;  // of q and k
  uint32_t seed = 1;
};

struct AttentionOutputs {
  std::vector<double> out;         // [n_seq, n_tok, n_head, head_dim]
  std::vector<double> lse;         // [n_seq, n_tok, n_head]
  std::vector<double> mass;        // [n_seq, n_kv_head, max_slots]; zero where no slot is
  std::vector<double> value_mass;  // likewise
};

// How far Attend may be from the oracle, absolutely. Few queries over q8_0 rows are computed with
// 16-bit queries and weights; scales are random here, so that the values are up to 6.
struct AttentionTolerance {
  double out, lse, mass, value_mass;
};
AttentionTolerance ToleranceOf(const AttentionCaseOptions& options);

class AttentionCase {
 public:
  explicit AttentionCase(const AttentionCaseOptions& options);

  // By Attend in n_thread threads. With mass only if the shape says so.
  AttentionOutputs Run(int n_thread);
  // By plain loops in double over the stored K and V.
  AttentionOutputs Oracle() const;

  std::vector<float>& q() { return q_; }
  // Row of a slot of the store, counted from slot 0 and not from the head's first.
  std::byte* k_row(int32_t seq, int32_t kv_head, int32_t slot);
  // The call, whose outputs are not set yet.
  AttentionCall Call() const;
  const AttentionCaseOptions& options() const { return options_; }

 private:
  struct Store {
    SlotRows rows;
    std::vector<std::byte> bytes;
    std::vector<float> values;  // what the bytes stand for, [n_seq, n_kv_head, n_slot, head_dim]
  };
  Store MakeStore(KvType type, float size, uint32_t seed) const;
  int64_t StoreRow(int64_t unit, int32_t slot) const;

  AttentionCaseOptions options_;
  int32_t store_slots_ = 0;  // slots of a head, longer than what is used
  std::vector<float> q_;
  Store k_, v_;
  std::vector<int32_t> ranks_;
};

std::string Describe(const AttentionCaseOptions& options);

}  // namespace kvbound::testing

#endif  // KVBOUND_TESTING_ATTENTION_CASE_H_
