#ifndef KVBOUND_TESTING_COUNTER_CAUSAL_ORACLE_H_
#define KVBOUND_TESTING_COUNTER_CAUSAL_ORACLE_H_

#include <cstdint>
#include <vector>

#include "kvbound/policy.h"
#include "testing/tiny_model.h"
#include "testing/tiny_reference.h"

namespace kvbound::testing {

// A bounded cache as the oracle sees it.
struct OracleCache {
  ReferenceResult pass;         // of all tokens fed, each having seen what the cache then held
  std::vector<int32_t> ids;     // all tokens fed, by position
  std::vector<int32_t> slots;   // position in each occupied slot, in any order
  std::vector<int32_t> rope;    // by which the key of each slot is rotated
  std::vector<int32_t> tokens;  // token entered for each slot: ids[slots[i]] unless published
};

struct OracleOptions {
  bool fast = false;  // the last layer alone, from the row that entered it
  CounterCausalOptions options;
  bool causal = false;  // reads slots up to and with its own
};

// The counter-causal score of every slot in plain loops and double precision: [n_slot], NaN where
// the reading is undefined.
std::vector<double> CounterCausalOracle(const TinyModel& model, const OracleCache& cache,
                                        const OracleOptions& options);

}  // namespace kvbound::testing

#endif  // KVBOUND_TESTING_COUNTER_CAUSAL_ORACLE_H_
