#ifndef KVBOUND_TESTS_GOLDEN_CYCLE_CASE_H_
#define KVBOUND_TESTS_GOLDEN_CYCLE_CASE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "golden/case_file.h"
#include "kvbound/model.h"
#include "kvbound/status.h"

namespace kvbound::golden {

// One refresh of the reference that cut.
struct Refresh {
  int32_t processed = 0;                   // tokens fed so far
  int32_t n_before = 0;                    // slots before the cut
  std::vector<std::vector<int32_t>> kept;  // [n_set][J], positions ascending
  std::vector<float> margin;               // [n_set], or empty
  std::vector<float> scores;               // [n_before] in the order of positions, or empty
};

// The content of a *-cycle-* case.
struct CycleCase {
  int32_t budget = 0;  // J; without one, room for every token
  bool bounded = false;
  int32_t chunk = 0;  // h
  int32_t n_set = 1;
  std::vector<Token> prompt;
  std::vector<Token> continuation;  // [n_new], fed by the forced run
  std::vector<Token> generated;     // [n_new]
  std::vector<float> gap;           // [n_new]
  std::vector<float> logp;          // [n_new]
  std::vector<Refresh> refreshes;
  std::vector<float> forced_logp;         // [n_new]
  std::vector<Refresh> forced_refreshes;  // of decode; without n_before, margin and scores
  double mean_forced_nll = 0;
  double full_cache_nll = 0;  // nll_of_generated_under_full_cache
  int32_t same_prefix = 0;    // same_prefix_as_full_cache
};

// What a method's files have beyond the kept sets.
struct CycleArrays {
  bool margin = false;
  bool scores = false;
};

Result<CycleCase> ReadCycleCase(const CaseFile& file, const ModelInfo& model, CycleArrays arrays);

}  // namespace kvbound::golden

#endif  // KVBOUND_TESTS_GOLDEN_CYCLE_CASE_H_
