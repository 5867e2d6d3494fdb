#ifndef KVBOUND_TESTING_GOLDEN_CASE_WRITER_H_
#define KVBOUND_TESTING_GOLDEN_CASE_WRITER_H_

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "testing/tiny_model.h"

namespace kvbound::testing {

// A case in the format of a golden folder while it is put together or altered: NAME.json with
// the header, NAME.bin with the arrays.
class GoldenCase {
 public:
  nlohmann::json header;

  void AddF32(const std::string& name, std::vector<int64_t> shape, const std::vector<double>& x);
  void AddI32(const std::string& name, std::vector<int64_t> shape, const std::vector<int32_t>& x);
  void AddU16(const std::string& name, std::vector<int64_t> shape, const std::vector<int32_t>& x);

  // The bytes of element `index` of an array, to be changed in place. REQUIRES: present.
  float ReadF32(std::string_view array, size_t index) const;
  void WriteF32(std::string_view array, size_t index, float value);
  void WriteU16(std::string_view array, size_t index, uint16_t value);
  uint16_t ReadU16(std::string_view array, size_t index) const;

  // Replaces what is there. `name` may have folders in it.
  void Write(const std::filesystem::path& folder, const std::string& name) const;
  static GoldenCase Read(const std::filesystem::path& folder, const std::string& name);

  std::string bytes;  // of NAME.bin

 private:
  void Add(const std::string& name, const char* dtype, std::vector<int64_t> shape, const void* data,
           size_t n_bytes);
  size_t OffsetOf(std::string_view array, size_t index, size_t value_bytes) const;
};

// Cases computed by the plain double-precision forward pass, for a model of one layer: there K
// and V of a token depend on its id and position alone, so a bounded cache and a flipped mask are
// ordinary forward passes over the kept tokens. `model_name` is the header's "model".

// Group logits: top 5, log-sum-exp and so on of every position, and a greedy continuation.
GoldenCase MakeLogitsCase(const TinyModel& model, const std::string& model_name,
                          const std::vector<int32_t>& ids, int n_greedy);

// Group counter-causal, a scores case: every reading and kind, keep sets of n/2 and n/4.
// REQUIRES: the row of `mean_id` in token_embd is the mean of the others (see WithMeanRow), and
// the id is not in `ids`.
GoldenCase MakeScoresCase(const TinyModel& model, const std::string& model_name,
                          const std::vector<int32_t>& ids, int32_t mean_id);

// Sets the embedding of the last id to the mean of all others, which is then the mean of all.
TinyModel WithMeanRow(TinyModel model);

struct CycleSetting {
  std::string method;  // none, sliding, streaming4, or {full,fast}-{aligned,published,protected}
  int budget = 16;
  int chunk = 8;
  int n_new = 12;
  int sinks = 0;  // of the protected methods and streaming4
  int recent = 0;
};

// The chunked cycle of a method. `continuation` has n_new ids.
GoldenCase MakeCycleCase(const TinyModel& model, const std::string& model_name,
                         const CycleSetting& setting, const std::vector<int32_t>& prompt,
                         const std::vector<int32_t>& continuation);

}  // namespace kvbound::testing

#endif  // KVBOUND_TESTING_GOLDEN_CASE_WRITER_H_
