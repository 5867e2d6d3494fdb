#include "text/chat_render.h"

#include <algorithm>
#include <exception>
#include <string_view>

#include "base/strings.h"
#include "llama.h"

namespace kvbound {
namespace {

// A place-holder stands between tabs: where a template trims contents, the tabs are gone.
std::string PlaceHolder(size_t message) { return StrCat('\x02', message, '\x03'); }

std::string_view Trim(std::string_view text) {
  constexpr std::string_view kSpaces = " \t\n\v\f\r";
  const size_t begin = text.find_first_not_of(kSpaces);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpaces) - begin + 1);
}

Result<std::string> Apply(const std::string& source, std::span<const llama_chat_message> chat,
                          bool add_generation_prompt) {
  std::string text(256 + 128 * chat.size(), '\0');
  for (;;) {
    int32_t n = -1;
    try {
      n = llama_chat_apply_template(source.c_str(), chat.data(), chat.size(), add_generation_prompt,
                                    text.data(), static_cast<int32_t>(text.size()));
    } catch (const std::exception&) {
    }
    if (n < 0) return Unsupported("chat template: llama does not know it");
    const bool fits = static_cast<size_t>(n) <= text.size();
    text.resize(static_cast<size_t>(n));
    if (fits) return text;
  }
}

}  // namespace

bool IsKnownTemplate(const std::string& source) {
  const llama_chat_message message = {"user", "x"};
  return Apply(source, {&message, 1}, true).ok();
}

Result<std::vector<ChatPart>> RenderChat(const std::string& source,
                                         std::span<const ChatMessage> messages,
                                         bool add_generation_prompt) {
  std::vector<std::string> contents;
  std::vector<llama_chat_message> chat;
  contents.reserve(messages.size());
  for (size_t i = 0; i < messages.size(); ++i) {
    contents.push_back(StrCat('\t', PlaceHolder(i), '\t'));
    chat.push_back({messages[i].role.c_str(), contents.back().c_str()});
  }
  KVBOUND_ASSIGN_OR_RETURN(const std::string text, Apply(source, chat, add_generation_prompt));

  std::vector<std::pair<size_t, size_t>> places;  // offset, message
  for (size_t i = 0; i < messages.size(); ++i) {
    const size_t offset = text.find(PlaceHolder(i));
    if (offset == std::string::npos || text.find(PlaceHolder(i), offset + 1) != std::string::npos) {
      return Unsupported(StrCat("chat template: expected a place for message ", i, " (role ",
                                messages[i].role, "), found none at this point of a conversation"));
    }
    places.emplace_back(offset, i);
  }
  std::sort(places.begin(), places.end());

  std::vector<ChatPart> parts;
  size_t end = 0;
  for (const auto& [offset, i] : places) {
    const size_t after = offset + PlaceHolder(i).size();
    const bool trims = offset == 0 || text[offset - 1] != '\t' || text[after] != '\t';
    const size_t begin = trims ? offset : offset - 1;
    if (end < begin) parts.push_back({text.substr(end, begin - end), -1});
    const std::string& content = messages[i].content;
    parts.push_back({trims ? std::string(Trim(content)) : content, static_cast<int>(i)});
    end = trims ? after : after + 1;
  }
  if (end < text.size()) parts.push_back({text.substr(end), -1});
  return parts;
}

}  // namespace kvbound
