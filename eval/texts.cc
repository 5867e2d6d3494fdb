#include "eval/texts.h"

#include <algorithm>
#include <utility>

#include "kvbound/prompt_file.h"
#include "src/base/strings.h"

namespace kvbound::eval {
namespace {

// What follows the line that starts with `mark`, or npos.
size_t AfterLine(std::string_view text, std::string_view mark) {
  const size_t at = text.find(mark);
  if (at == std::string_view::npos || (at > 0 && text[at - 1] != '\n')) return text.npos;
  const size_t end = text.find('\n', at);
  return end == text.npos ? text.size() : end + 1;
}

Result<std::vector<TextWindow>> CutFile(const Tokenizer& tokenizer, const std::string& file,
                                        int32_t n_window, int32_t length) {
  KVBOUND_ASSIGN_OR_RETURN(const std::string bytes, ReadPromptFile(file));
  EncodeOptions plain;
  plain.add_special = false;
  Result<std::vector<Token>> encoded = tokenizer.Encode(PlainText(bytes), plain);
  if (!encoded.ok()) {
    return Status(encoded.status().code(), StrCat(file, ": ", encoded.status().message()));
  }
  const bool with_bos = tokenizer.AddsBos() && tokenizer.Bos();
  const int64_t n_text = length - (with_bos ? 1 : 0);
  const int64_t n_file = std::ssize(*encoded);
  if (n_file < n_window * n_text) {
    return InvalidArgument(StrCat(file, ": expected at least ", n_window * n_text, " tokens for ",
                                  n_window, " windows of ", length, ", found ", n_file));
  }
  std::vector<TextWindow> windows;
  for (int64_t i = 0; i < n_window; ++i) {
    TextWindow& window = windows.emplace_back();
    window.file = file;
    // In the middle of the i-th part of the file.
    window.begin = n_file * i / n_window + (n_file / n_window - n_text) / 2;
    if (with_bos) window.tokens.push_back(*tokenizer.Bos());
    const auto begin = encoded->begin() + window.begin;
    window.tokens.insert(window.tokens.end(), begin, begin + n_text);
  }
  return windows;
}

}  // namespace

std::string PlainText(std::string_view text) {
  if (const size_t begin = AfterLine(text, "*** START OF "); begin != text.npos) {
    text.remove_prefix(begin);
    if (const size_t end = text.find("\n*** END OF "); end != text.npos) text = text.substr(0, end);
  }
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
  std::string plain(text);
  std::erase(plain, '\r');
  return plain;
}

Result<std::vector<TextWindow>> CutWindows(const Tokenizer& tokenizer,
                                           const std::vector<std::string>& files, int32_t n_window,
                                           int32_t length) {
  if (files.empty() || n_window < 1 || length < 2) {
    return InvalidArgument(
        StrCat("texts: expected files, windows and a length of at least 2 tokens, "
               "found ",
               files.size(), ", ", n_window, " and ", length));
  }
  std::vector<TextWindow> windows;
  const int32_t n_file = static_cast<int32_t>(files.size());
  for (int32_t i = 0; i < n_file; ++i) {
    const int32_t share = n_window / n_file + (i < n_window % n_file ? 1 : 0);
    if (share == 0) break;
    KVBOUND_ASSIGN_OR_RETURN(std::vector<TextWindow> cut,
                             CutFile(tokenizer, files[i], share, length));
    std::ranges::move(cut, std::back_inserter(windows));
  }
  return windows;
}

}  // namespace kvbound::eval
