#include "train/text_files.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "base/hash.h"
#include "base/strings.h"
#include "eval/texts.h"
#include "text/utf8.h"

namespace kvbound::train {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr std::array<const char*, 9> kTextFields = {"text",     "instruction", "input",
                                                    "prompt",   "question",    "content",
                                                    "response", "answer",      "output"};

bool IsTextName(const fs::path& path) {
  const std::string extension = path.extension().string();
  return extension == ".txt" || extension == ".jsonl" || extension == ".json";
}

bool IsLicence(const fs::path& path) {
  const std::string name = path.filename().string();
  return name.starts_with("LICENSE") || name.starts_with("COPYING");
}

Result<std::vector<fs::path>> FindFiles(const std::string& path, std::vector<Skipped>* skipped) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (!fs::exists(status)) return NotFound(StrCat(path, ": expected a file or folder, found none"));
  if (!fs::is_directory(status)) {
    if (!IsTextName(path)) {
      return Unsupported(StrCat(path, ": expected .txt, .jsonl or .json, found '",
                                fs::path(path).extension().string(), "'"));
    }
    return std::vector<fs::path>{path};
  }
  std::vector<fs::path> files;
  for (fs::recursive_directory_iterator it(path, error), end; !error && it != end;
       it.increment(error)) {
    if (!it->is_regular_file(error) || !IsTextName(it->path())) continue;
    if (IsLicence(it->path())) {
      skipped->push_back({it->path().string(), "a licence"});
    } else {
      files.push_back(it->path());
    }
  }
  if (error) return IoError(StrCat(path, ": ", error.message()));
  std::sort(files.begin(), files.end());
  return files;
}

Result<std::string> ReadFile(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream bytes;
  if (in) bytes << in.rdbuf();
  if (!in || in.bad()) return IoError(StrCat(path, ": cannot be read: ", std::strerror(errno)));
  return std::move(bytes).str();
}

// Why a document cannot be used; empty if it can.
std::string Reason(std::string_view text) {
  if (text.empty()) return "empty";
  if (text.find('\0') != std::string_view::npos) return "has NUL characters";
  if (text.find_first_not_of(" \t\r\n\f\v") == std::string_view::npos) return "only spaces";
  if (const size_t at = FindInvalidUtf8(text); at != std::string_view::npos) {
    return StrCat("no UTF-8 at byte ", at);
  }
  return "";
}

void AddDocument(std::string name, std::string text, TextFile* file,
                 std::vector<Skipped>* skipped) {
  if (std::string reason = Reason(text); !reason.empty()) {
    skipped->push_back({std::move(name), std::move(reason)});
  } else {
    file->documents.push_back({std::move(name), std::move(text)});
  }
}

void AddItem(const std::string& name, const Json& item, TextFile* file,
             std::vector<Skipped>* skipped) {
  std::string text;
  const auto add = [&](const char* field) {
    const auto found = item.find(field);
    if (found == item.end() || !found->is_string()) return;
    if (!text.empty()) text += '\n';
    text += found->get_ref<const std::string&>();
  };
  if (item.is_string()) text = item.get<std::string>();
  if (item.is_object()) {
    for (const char* field : kTextFields) add(field);
    if (text.empty()) {
      skipped->push_back({name, "no text field (text, question, answer, instruction, ...)"});
      return;
    }
  }
  AddDocument(name, std::move(text), file, skipped);
}

Status AddJsonLines(std::string_view bytes, TextFile* file, std::vector<Skipped>* skipped) {
  int64_t number = 0;
  while (!bytes.empty()) {
    const size_t end = std::min(bytes.find('\n'), bytes.size());
    const std::string_view line = bytes.substr(0, end);
    bytes.remove_prefix(std::min(end + 1, bytes.size()));
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    const std::string name = StrCat(file->path, ":", number);
    const Json item = Json::parse(line, nullptr, false);
    if (item.is_discarded()) return Corrupt(StrCat(name, ": expected one JSON value a line"));
    AddItem(name, item, file, skipped);
  }
  return Status::Ok();
}

Status AddJson(std::string_view bytes, TextFile* file, std::vector<Skipped>* skipped) {
  const Json value = Json::parse(bytes, nullptr, false);
  if (value.is_discarded()) return Corrupt(StrCat(file->path, ": expected JSON"));
  if (!value.is_array()) {
    AddItem(file->path, value, file, skipped);
    return Status::Ok();
  }
  for (size_t i = 0; i < value.size(); ++i) {
    AddItem(StrCat(file->path, "[", i, "]"), value[i], file, skipped);
  }
  return Status::Ok();
}

Result<TextFile> ReadTextFile(const fs::path& path, std::vector<Skipped>* skipped) {
  TextFile file;
  file.path = path.string();
  KVBOUND_ASSIGN_OR_RETURN(const std::string bytes, ReadFile(file.path));
  file.n_byte = bytes.size();
  file.hash = Fnv1a64(bytes);
  std::string_view text = bytes;
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  const std::string extension = path.extension().string();
  if (extension == ".jsonl") {
    KVBOUND_RETURN_IF_ERROR(AddJsonLines(text, &file, skipped));
  } else if (extension == ".json") {
    KVBOUND_RETURN_IF_ERROR(AddJson(text, &file, skipped));
  } else {
    AddDocument(file.path, eval::PlainText(text), &file, skipped);
  }
  return file;
}

}  // namespace

std::string TextFile::Describe() const {
  char hex[17];
  std::snprintf(hex, sizeof(hex), "%016llx", static_cast<unsigned long long>(hash));
  return StrCat(fs::path(path).filename().string(), ", ", n_byte, " bytes, fnv1a ", hex);
}

Result<uint64_t> HashFile(const std::string& path) {
  KVBOUND_ASSIGN_OR_RETURN(const std::string bytes, ReadFile(path));
  return Fnv1a64(bytes);
}

Result<TextCorpus> ReadTexts(const std::vector<std::string>& paths) {
  TextCorpus corpus;
  for (const std::string& path : paths) {
    KVBOUND_ASSIGN_OR_RETURN(const std::vector<fs::path> files, FindFiles(path, &corpus.skipped));
    for (const fs::path& file : files) {
      KVBOUND_ASSIGN_OR_RETURN(TextFile read, ReadTextFile(file, &corpus.skipped));
      corpus.files.push_back(std::move(read));
    }
  }
  return corpus;
}

}  // namespace kvbound::train
