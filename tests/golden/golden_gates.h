#ifndef KVBOUND_TESTS_GOLDEN_GOLDEN_GATES_H_
#define KVBOUND_TESTS_GOLDEN_GOLDEN_GATES_H_

#include <cstdint>
#include <memory>

#include "golden/case_file.h"
#include "kvbound/gates.h"
#include "kvbound/model.h"
#include "kvbound/status.h"

namespace kvbound::golden {

// Arguments of the golden data's portable gate generator (gates.py there).
struct GateArguments {
  int32_t n_embd = 0;
  int32_t n_hidden = 0;
  int32_t n_kv_head = 0;
  int32_t n_layer = 0;
  uint64_t seed = 0;
  double scale1 = 0;  // of the first matrix; powers of two, so that the values are exact
  double scale2 = 0;  // of the output matrix
};

// One hidden linear, SiLU, an output bias of 4 + u; matrices f32. The same bits as gates.py's.
// `base` holds the shapes alone.
Gates::Parts MakeGoldenGates(const GateArguments& arguments);

// The gates of a case, by the header field "gate": its arguments, and its first values as a check
// of the generator.
Result<Gates::Parts> GoldenGates(const CaseFile& file);

// The gates that a case of `model` runs with: its own, or those of MODEL-keep.json beside it.
Result<std::shared_ptr<const Gates>> GatesOfCase(const CaseFile& file, const Model& model);

}  // namespace kvbound::golden

#endif  // KVBOUND_TESTS_GOLDEN_GOLDEN_GATES_H_
