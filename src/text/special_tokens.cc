#include "text/special_tokens.h"

#include <algorithm>

namespace kvbound {
namespace {

constexpr int kSpecial =
    LLAMA_TOKEN_ATTR_CONTROL | LLAMA_TOKEN_ATTR_USER_DEFINED | LLAMA_TOKEN_ATTR_UNKNOWN;

bool IsSpace(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

uint64_t Edge(uint32_t node, char byte) { return uint64_t{node} << 8 | static_cast<uint8_t>(byte); }

}  // namespace

SpecialTokens::SpecialTokens(const llama_vocab* vocab) {
  entry_of_.push_back(-1);
  for (Token token = 0; token < llama_vocab_n_tokens(vocab); ++token) {
    const int attributes = llama_vocab_get_attr(vocab, token);
    if ((attributes & kSpecial) == 0) continue;
    const std::string_view text = llama_vocab_get_text(vocab, token);
    if (text.empty()) continue;
    uint32_t node = 0;
    for (size_t i = 0; i < text.size(); ++i) {
      uint32_t& next = i == 0 ? roots_[static_cast<uint8_t>(text[0])] : edges_[Edge(node, text[i])];
      if (next == 0) {
        next = static_cast<uint32_t>(entry_of_.size());
        entry_of_.push_back(-1);
      }
      node = next;
    }
    entry_of_[node] = static_cast<int32_t>(entries_.size());
    entries_.push_back(
        {.token = token,
         .control = (attributes & (LLAMA_TOKEN_ATTR_CONTROL | LLAMA_TOKEN_ATTR_UNKNOWN)) != 0,
         .strip_left = (attributes & LLAMA_TOKEN_ATTR_LSTRIP) != 0,
         .strip_right = (attributes & LLAMA_TOKEN_ATTR_RSTRIP) != 0,
         .length = text.size()});
  }
}

const SpecialTokens::Entry* SpecialTokens::Match(std::string_view text,
                                                 size_t control_limit) const {
  const Entry* longest = nullptr;
  uint32_t node = roots_[static_cast<uint8_t>(text[0])];
  for (size_t i = 1; node != 0; ++i) {
    if (const int32_t e = entry_of_[node]; e >= 0) {
      if (!entries_[e].control || entries_[e].length <= control_limit) longest = &entries_[e];
    }
    if (i == text.size()) break;
    const auto edge = edges_.find(Edge(node, text[i]));
    node = edge == edges_.end() ? 0 : edge->second;
  }
  return longest;
}

std::vector<TextFragment> SpecialTokens::Split(std::string_view text,
                                               std::span<const TextPart> parts) const {
  std::vector<TextFragment> fragments;
  size_t plain = 0;  // start of the plain text not yet cut off
  const auto close_plain = [&](size_t end) {
    if (plain < end) fragments.push_back({plain, end, -1});
  };
  size_t part = 0, part_end = parts.empty() ? 0 : parts[0].text.size();
  size_t i = 0;
  while (i < text.size()) {
    while (i >= part_end) part_end += parts[++part].text.size();
    const Entry* entry = nullptr;
    if (roots_[static_cast<uint8_t>(text[i])] != 0) {
      entry = Match(text.substr(i), parts[part].parse_special ? part_end - i : 0);
    }
    if (entry == nullptr) {
      ++i;
      continue;
    }
    size_t end = i;
    while (entry->strip_left && end > plain && IsSpace(text[end - 1])) --end;
    close_plain(end);
    fragments.push_back({i, i + entry->length, entry->token});
    i += entry->length;
    while (entry->strip_right && i < text.size() && IsSpace(text[i])) ++i;
    plain = i;
  }
  close_plain(text.size());
  return fragments;
}

}  // namespace kvbound
