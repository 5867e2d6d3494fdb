#ifndef KVBOUND_TESTS_GOLDEN_CASE_FILE_H_
#define KVBOUND_TESTS_GOLDEN_CASE_FILE_H_

#include <cstdint>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kvbound/status.h"
#include "kvbound/types.h"

namespace kvbound::golden {

// Whether an array of scores may hold NaN, which stands for "undefined".
enum class NanRule { kRefused, kAllowed };

// One case of a golden folder: the header NAME.json and the arrays of NAME.bin. Whatever the
// files hold, reading gives a value or an error that names file and field, expected and found.
class CaseFile {
 public:
  // Larger files and longer texts are refused, so that a case takes bounded memory and time.
  static constexpr uint64_t kMaxHeaderBytes = uint64_t{16} << 20;
  static constexpr int64_t kMaxTokens = 1 << 14;
  static constexpr uint64_t kMaxArrayBytes = uint64_t{64} << 20;

  // Reads the header alone, so that a case can be listed and skipped without its arrays. `name`
  // stands in messages: the path below the folder, without ".json".
  static Result<CaseFile> Read(const std::filesystem::path& json_file, std::string name);

  // Reads the arrays and checks dtype, shape and extent of every one.
  Status LoadArrays();

  const std::string& name() const { return name_; }
  const std::filesystem::path& folder() const { return folder_; }

  // Fields of the header. A dot descends: "options.authors_keep.full".
  bool Has(std::string_view field) const;  // present and not null
  Result<int64_t> Int(std::string_view field, int64_t lowest, int64_t highest) const;
  Result<double> Number(std::string_view field) const;
  Result<std::string> Text(std::string_view field) const;
  // A list of whole numbers 0 <= x < `end`.
  Result<std::vector<int32_t>> Ints(std::string_view field, int64_t end) const;
  Result<std::vector<float>> Numbers(std::string_view field, size_t n) const;
  // From a list of objects, the whole number `key` >= 0 of each.
  Result<std::vector<int32_t>> IntColumn(std::string_view field, const std::string& key) const;

  // Arrays. REQUIRES: LoadArrays succeeded.
  bool HasArray(std::string_view name) const;
  Result<std::vector<float>> F32(std::string_view name, const std::vector<int64_t>& shape,
                                 NanRule nan = NanRule::kRefused) const;
  Result<std::vector<int32_t>> I32(std::string_view name, const std::vector<int64_t>& shape) const;
  Result<std::vector<int32_t>> U16(std::string_view name, const std::vector<int64_t>& shape) const;

  // "NAME.json: field 'FIELD': expected EXPECTED, found FOUND".
  Status FieldError(std::string_view field, std::string_view expected,
                    std::string_view found) const;
  Status ArrayError(std::string_view array, std::string_view expected,
                    std::string_view found) const;

 private:
  enum class Dtype { kF32, kU16, kI32 };
  struct Array {
    std::string name;
    Dtype dtype = Dtype::kF32;
    std::vector<int64_t> shape;
    uint64_t n_values = 0;
    uint64_t offset = 0;
  };

  CaseFile() = default;
  const nlohmann::json* Find(std::string_view field) const;
  Result<const nlohmann::json*> List(std::string_view field) const;
  Result<Array> ParseArray(const nlohmann::json& entry, size_t index) const;
  Status ParseShape(const nlohmann::json& entry, Array* array) const;
  Result<const Array*> FindArray(std::string_view name, Dtype dtype,
                                 const std::vector<int64_t>& shape) const;

  std::string name_;
  std::filesystem::path folder_;
  nlohmann::json header_;
  std::vector<Array> arrays_;
  std::string bytes_;  // of NAME.bin
};

}  // namespace kvbound::golden

#endif  // KVBOUND_TESTS_GOLDEN_CASE_FILE_H_
