#ifndef KVBOUND_TEXT_CHAT_RENDER_H_
#define KVBOUND_TEXT_CHAT_RENDER_H_

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "kvbound/chat.h"
#include "kvbound/status.h"

namespace kvbound {

// A stretch of a rendered conversation.
struct ChatPart {
  std::string text;
  int message = -1;  // whose content it is; -1: the template's own text
};

// Renders through llama_chat_apply_template with place-holders for the contents, so that what a
// user wrote is never taken for a part of the template. `source`: a built-in name or a template.
// kUnsupported when the template is unknown or has no place for a message.
Result<std::vector<ChatPart>> RenderChat(const std::string& source,
                                         std::span<const ChatMessage> messages,
                                         bool add_generation_prompt);

// Whether llama knows the template.
bool IsKnownTemplate(const std::string& source);

}  // namespace kvbound

#endif  // KVBOUND_TEXT_CHAT_RENDER_H_
