#include "kvbound/text_stream.h"

#include <algorithm>
#include <utility>

#include "base/strings.h"
#include "text/utf8.h"

namespace kvbound {
namespace {

// Longest end of `text` that is a proper beginning of `stop`.
size_t HeldBack(std::string_view text, std::string_view stop) {
  size_t length = std::min(text.size(), stop.size() - 1);
  while (length > 0 && !stop.starts_with(text.substr(text.size() - length))) --length;
  return length;
}

}  // namespace

Result<TextStream> TextStream::Create(std::vector<std::string> stops) {
  if (stops.size() > kMaxStops) {
    return InvalidArgument(
        StrCat("stop strings: expected at most ", kMaxStops, ", found ", stops.size()));
  }
  for (size_t i = 0; i < stops.size(); ++i) {
    if (stops[i].empty() || stops[i].size() > kMaxStopBytes) {
      return InvalidArgument(StrCat("stop string ", i, ": expected 1..", kMaxStopBytes,
                                    " bytes, found ", stops[i].size()));
    }
    KVBOUND_RETURN_IF_ERROR(CheckUtf8(StrCat("stop string ", i), stops[i]));
  }
  return TextStream(std::move(stops));
}

// Appends `bytes` to chunk_ as well-formed UTF-8; an incomplete character at the end waits in
// partial_.
void TextStream::Emit(std::string_view bytes) {
  partial_ += bytes;
  std::string_view rest = partial_;
  while (!rest.empty()) {
    const Utf8Unit unit = ReadUtf8(rest);
    if (unit.incomplete) break;
    chunk_ += unit.valid ? rest.substr(0, unit.length) : kReplacementCharacter;
    rest.remove_prefix(unit.length);
  }
  partial_.erase(0, partial_.size() - rest.size());
}

std::string_view TextStream::Push(std::string_view piece) {
  chunk_.clear();
  if (stopped_ || finished_) return chunk_;
  held_ += piece;
  size_t first = std::string::npos;
  for (size_t i = 0; i < stops_.size(); ++i) {
    const size_t offset = held_.find(stops_[i]);
    if (offset < first) {
      first = offset;
      stop_index_ = i;
    }
  }
  if (first != std::string::npos) {
    stopped_ = true;
    Emit(std::string_view(held_).substr(0, first));
    held_.clear();
    if (!partial_.empty()) chunk_ += kReplacementCharacter;
    partial_.clear();
    return chunk_;
  }
  size_t keep = 0;
  for (const std::string& stop : stops_) keep = std::max(keep, HeldBack(held_, stop));
  const size_t shown = held_.size() - keep;
  Emit(std::string_view(held_).substr(0, shown));
  held_.erase(0, shown);
  return chunk_;
}

std::string_view TextStream::Finish() {
  chunk_.clear();
  if (finished_) return chunk_;
  finished_ = true;
  Emit(held_);
  held_.clear();
  if (!partial_.empty()) chunk_ += kReplacementCharacter;
  partial_.clear();
  return chunk_;
}

}  // namespace kvbound
