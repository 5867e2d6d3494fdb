#include "golden/case_file.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <utility>

#include "base/strings.h"

namespace kvbound::golden {
namespace {

using nlohmann::json;

// Upper bound of one dimension and of the values of one array.
constexpr uint64_t kMaxValues = CaseFile::kMaxArrayBytes / 2;

std::string Describe(const json* value) {
  if (value == nullptr) return "nothing";
  // Dump replaces invalid UTF-8 instead of throwing.
  return Printable(value->dump(-1, ' ', false, json::error_handler_t::replace), 60);
}

bool IsWholeNumber(const json& value, int64_t lowest, int64_t highest) {
  if (value.is_number_unsigned()) {
    const uint64_t number = value.get<uint64_t>();
    return highest >= 0 && number <= static_cast<uint64_t>(highest) &&
           (lowest <= 0 || number >= static_cast<uint64_t>(lowest));
  }
  if (!value.is_number_integer()) return false;
  const int64_t number = value.get<int64_t>();
  return number >= lowest && number <= highest;
}

std::string ShapeText(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) text += StrCat(i == 0 ? "" : ", ", shape[i]);
  return text + "]";
}

Result<std::string> ReadFile(const std::filesystem::path& file, const std::string& name,
                             uint64_t max_bytes) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(file, error)) {
    return NotFound(StrCat(name, ": expected a file, found nothing"));
  }
  const uint64_t size = std::filesystem::file_size(file, error);
  if (error) return IoError(StrCat(name, ": ", error.message()));
  if (size > max_bytes) {
    return Corrupt(StrCat(name, ": expected at most ", max_bytes, " bytes, found ", size));
  }
  std::ifstream in(file, std::ios::binary);
  std::string bytes(size, '\0');
  if (!in.read(bytes.data(), static_cast<std::streamsize>(size))) {
    return IoError(StrCat(name, ": cannot be read"));
  }
  return bytes;
}

// The little-endian values at the start of `bytes`.
template <typename T>
std::vector<T> CopyValues(const char* bytes, uint64_t n) {
  static_assert(std::endian::native == std::endian::little);
  std::vector<T> values(n);
  if (n > 0) std::memcpy(values.data(), bytes, n * sizeof(T));
  return values;
}

}  // namespace

Result<CaseFile> CaseFile::Read(const std::filesystem::path& json_file, std::string name) {
  CaseFile file;
  file.name_ = std::move(name);
  file.folder_ = json_file.parent_path();
  const std::string label = file.name_ + ".json";
  KVBOUND_ASSIGN_OR_RETURN(const std::string text, ReadFile(json_file, label, kMaxHeaderBytes));
  try {
    file.header_ = json::parse(text);
  } catch (const json::exception& error) {
    return Corrupt(StrCat(label, ": expected JSON, found: ", Printable(error.what(), 200)));
  }
  if (!file.header_.is_object()) {
    return Corrupt(StrCat(label, ": expected an object, found ", Describe(&file.header_)));
  }
  return file;
}

Status CaseFile::LoadArrays() {
  if (!Has("arrays")) return FieldError("arrays", "a list of arrays", "nothing");
  KVBOUND_ASSIGN_OR_RETURN(const json* entries, List("arrays"));
  KVBOUND_ASSIGN_OR_RETURN(const std::string bin, Text("bin"));
  // The arrays lie beside the header: a path that leads elsewhere is an error of the file.
  if (bin.empty() || bin.find('/') != std::string::npos || bin.find('\0') != std::string::npos) {
    return FieldError("bin", "the name of a file in the same folder", Printable(bin));
  }
  const std::string label = (std::filesystem::path(name_).parent_path() / bin).string();
  KVBOUND_ASSIGN_OR_RETURN(bytes_, ReadFile(folder_ / bin, label, kMaxArrayBytes));
  arrays_.clear();
  for (size_t i = 0; i < entries->size(); ++i) {
    KVBOUND_ASSIGN_OR_RETURN(Array array, ParseArray((*entries)[i], i));
    if (HasArray(array.name)) return ArrayError(array.name, "one entry", "two");
    arrays_.push_back(std::move(array));
  }
  return Status::Ok();
}

Result<CaseFile::Array> CaseFile::ParseArray(const json& entry, size_t index) const {
  const std::string field = StrCat("arrays[", index, "]");
  if (!entry.is_object()) return FieldError(field, "an object", Describe(&entry));
  Array array;
  const auto name = entry.find("name");
  if (name == entry.end() || !name->is_string()) {
    return FieldError(field + ".name", "text", Describe(name == entry.end() ? nullptr : &*name));
  }
  array.name = name->get<std::string>();
  const auto dtype = entry.find("dtype");
  const std::string type =
      dtype != entry.end() && dtype->is_string() ? dtype->get<std::string>() : "";
  if (type == "f32") {
    array.dtype = Dtype::kF32;
  } else if (type == "u16") {
    array.dtype = Dtype::kU16;
  } else if (type == "i32") {
    array.dtype = Dtype::kI32;
  } else {
    return ArrayError(array.name, "dtype f32, u16 or i32",
                      Describe(dtype == entry.end() ? nullptr : &*dtype));
  }
  KVBOUND_RETURN_IF_ERROR(ParseShape(entry, &array));
  const auto offset = entry.find("offset");
  if (offset == entry.end() || !IsWholeNumber(*offset, 0, kMaxArrayBytes) ||
      offset->get<uint64_t>() % 4 != 0) {
    return ArrayError(array.name, "an offset that is a multiple of 4",
                      Describe(offset == entry.end() ? nullptr : &*offset));
  }
  array.offset = offset->get<uint64_t>();
  const uint64_t end = array.offset + array.n_values * (array.dtype == Dtype::kU16 ? 2 : 4);
  if (end > bytes_.size()) {
    return ArrayError(array.name, StrCat("a .bin of at least ", end, " bytes"),
                      StrCat(bytes_.size()));
  }
  return array;
}

Status CaseFile::ParseShape(const json& entry, Array* array) const {
  const auto shape = entry.find("shape");
  const bool is_list = shape != entry.end() && shape->is_array() && shape->size() <= 8;
  array->n_values = 1;
  for (size_t i = 0; is_list && i < shape->size(); ++i) {
    if (!IsWholeNumber((*shape)[i], 0, kMaxValues)) break;
    array->shape.push_back((*shape)[i].get<int64_t>());
    array->n_values *= static_cast<uint64_t>(array->shape.back());
    if (array->n_values > kMaxValues) break;
  }
  if (!is_list || array->shape.size() != shape->size() || array->n_values > kMaxValues) {
    return ArrayError(array->name, StrCat("a shape of at most ", kMaxValues, " values"),
                      Describe(shape == entry.end() ? nullptr : &*shape));
  }
  return Status::Ok();
}

const json* CaseFile::Find(std::string_view field) const {
  const json* value = &header_;
  while (true) {
    const size_t dot = field.find('.');
    if (!value->is_object()) return nullptr;
    const auto whole = value->find(std::string(field));  // a key may hold dots
    if (whole != value->end()) return &*whole;
    const auto it = value->find(std::string(field.substr(0, dot)));
    if (it == value->end()) return nullptr;
    value = &*it;
    if (dot == std::string_view::npos) return value;
    field.remove_prefix(dot + 1);
  }
}

bool CaseFile::Has(std::string_view field) const {
  const json* value = Find(field);
  return value != nullptr && !value->is_null();
}

Result<int64_t> CaseFile::Int(std::string_view field, int64_t lowest, int64_t highest) const {
  const json* value = Find(field);
  if (value == nullptr || !IsWholeNumber(*value, lowest, highest)) {
    return FieldError(field, StrCat("a whole number ", lowest, "..", highest), Describe(value));
  }
  return value->get<int64_t>();
}

Result<double> CaseFile::Number(std::string_view field) const {
  const json* value = Find(field);
  if (value == nullptr || !value->is_number()) {
    return FieldError(field, "a number", Describe(value));
  }
  return value->get<double>();
}

Result<std::string> CaseFile::Text(std::string_view field) const {
  const json* value = Find(field);
  if (value == nullptr || !value->is_string()) return FieldError(field, "text", Describe(value));
  return value->get<std::string>();
}

Result<const json*> CaseFile::List(std::string_view field) const {
  const json* value = Find(field);
  if (value == nullptr || !value->is_array()) return FieldError(field, "a list", Describe(value));
  return value;
}

Result<std::vector<int32_t>> CaseFile::Ints(std::string_view field, int64_t end) const {
  KVBOUND_ASSIGN_OR_RETURN(const json* list, List(field));
  std::vector<int32_t> values;
  values.reserve(list->size());
  for (const json& value : *list) {
    if (!IsWholeNumber(value, 0, end - 1)) {
      return FieldError(StrCat(field, "[", values.size(), "]"),
                        StrCat("a whole number 0..", end - 1), Describe(&value));
    }
    values.push_back(value.get<int32_t>());
  }
  return values;
}

Result<std::vector<float>> CaseFile::Numbers(std::string_view field, size_t n) const {
  KVBOUND_ASSIGN_OR_RETURN(const json* list, List(field));
  if (list->size() != n) {
    return FieldError(field, StrCat(n, " numbers"), StrCat(list->size(), " entries"));
  }
  std::vector<float> values;
  values.reserve(n);
  for (const json& value : *list) {
    if (!value.is_number()) {
      return FieldError(StrCat(field, "[", values.size(), "]"), "a number", Describe(&value));
    }
    values.push_back(value.get<float>());
  }
  return values;
}

Result<std::vector<int32_t>> CaseFile::IntColumn(std::string_view field,
                                                 const std::string& key) const {
  KVBOUND_ASSIGN_OR_RETURN(const json* list, List(field));
  std::vector<int32_t> values;
  values.reserve(list->size());
  for (const json& entry : *list) {
    const bool has = entry.is_object() && entry.contains(key);
    if (!has || !IsWholeNumber(entry.at(key), 0, INT32_MAX)) {
      return FieldError(StrCat(field, "[", values.size(), "].", key), "a whole number",
                        Describe(has ? &entry.at(key) : nullptr));
    }
    values.push_back(entry.at(key).get<int32_t>());
  }
  return values;
}

bool CaseFile::HasArray(std::string_view name) const {
  for (const Array& array : arrays_) {
    if (array.name == name) return true;
  }
  return false;
}

Result<const CaseFile::Array*> CaseFile::FindArray(std::string_view name, Dtype dtype,
                                                   const std::vector<int64_t>& shape) const {
  static constexpr const char* kNames[] = {"f32", "u16", "i32"};
  for (const Array& array : arrays_) {
    if (array.name != name) continue;
    if (array.dtype != dtype) {
      return ArrayError(name, StrCat("dtype ", kNames[static_cast<int>(dtype)]),
                        kNames[static_cast<int>(array.dtype)]);
    }
    if (array.shape != shape) {
      return ArrayError(name, StrCat("shape ", ShapeText(shape)), ShapeText(array.shape));
    }
    return &array;
  }
  return ArrayError(name, StrCat(kNames[static_cast<int>(dtype)], " ", ShapeText(shape)),
                    "nothing");
}

Result<std::vector<float>> CaseFile::F32(std::string_view name, const std::vector<int64_t>& shape,
                                         NanRule nan) const {
  KVBOUND_ASSIGN_OR_RETURN(const Array* array, FindArray(name, Dtype::kF32, shape));
  const auto values = CopyValues<float>(bytes_.data() + array->offset, array->n_values);
  for (size_t i = 0; i < values.size(); ++i) {
    const bool undefined = nan == NanRule::kAllowed && std::isnan(values[i]);
    if (!std::isfinite(values[i]) && !undefined) {
      return ArrayError(name, "finite numbers", StrCat(values[i], " at index ", i));
    }
  }
  return values;
}

Result<std::vector<int32_t>> CaseFile::I32(std::string_view name,
                                           const std::vector<int64_t>& shape) const {
  KVBOUND_ASSIGN_OR_RETURN(const Array* array, FindArray(name, Dtype::kI32, shape));
  return CopyValues<int32_t>(bytes_.data() + array->offset, array->n_values);
}

Result<std::vector<int32_t>> CaseFile::U16(std::string_view name,
                                           const std::vector<int64_t>& shape) const {
  KVBOUND_ASSIGN_OR_RETURN(const Array* array, FindArray(name, Dtype::kU16, shape));
  const auto raw = CopyValues<uint16_t>(bytes_.data() + array->offset, array->n_values);
  return std::vector<int32_t>(raw.begin(), raw.end());
}

Status CaseFile::FieldError(std::string_view field, std::string_view expected,
                            std::string_view found) const {
  return Corrupt(StrCat(name_, ".json: field '", Printable(field), "': expected ", expected,
                        ", found ", found));
}

Status CaseFile::ArrayError(std::string_view array, std::string_view expected,
                            std::string_view found) const {
  return Corrupt(StrCat(name_, ".json: array '", Printable(array), "': expected ", expected,
                        ", found ", found));
}

}  // namespace kvbound::golden
