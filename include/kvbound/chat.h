#ifndef KVBOUND_CHAT_H_
#define KVBOUND_CHAT_H_

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kvbound/status.h"
#include "kvbound/tokenizer.h"
#include "kvbound/types.h"

namespace kvbound {

struct ChatMessage {
  std::string role;     // "system", "user" or "assistant"
  std::string content;  // any valid UTF-8; control tokens written here stay text
};

struct EncodedChat {
  std::vector<Token> tokens;
  // tokens[0, system_end) hold the leading system message with its markers (and the begin-of-text
  // token): the span to pin. 0 when the first message is not a system message.
  size_t system_end = 0;
};

// Turns messages into the tokens a chat model was trained on. Known are the templates that
// llama's own llama_chat_apply_template knows, which is no Jinja engine: a template that fills in
// a default system message (SmolLM2 and Qwen2 do) gets none unless the caller passes it as the
// first message. Immutable and thread-safe.
class ChatTemplate {
 public:
  // The template built into llama under `name` (see BuiltinNames), or, with an empty name, the
  // one that the model file carries. kUnsupported when the file has none or one that llama does
  // not know, kNotFound for an unknown name.
  static Result<ChatTemplate> Create(std::shared_ptr<const Tokenizer> tokenizer,
                                     std::string_view name = {});

  static std::vector<std::string> BuiltinNames();

  // The tokens of a whole conversation, begin-of-text included where the model wants it.
  // `add_generation_prompt`: ends with the markers after which the assistant speaks.
  // kInvalidArgument for an empty list, another role or invalid UTF-8; kUnsupported when the
  // template has no place for one of the messages.
  Result<EncodedChat> Encode(std::span<const ChatMessage> messages,
                             bool add_generation_prompt) const;

  // The tokens to append to a running conversation so that the assistant can answer again.
  // `messages` is the whole conversation: everything that was said, the assistant's last answer
  // and, after it, at least one new message. `unfed_token` is the last token that was sampled for
  // that answer, if it was not fed (Generate's `last_token`), else -1. The result first completes
  // the assistant's turn, however it ended (end token, stop string, length): the unfed token
  // unless it is an end token, then the template's own closing markers; then come the new messages
  // and the generation prompt. Without an assistant message it is Encode(messages, true).tokens.
  // Errors as for Encode.
  Result<std::vector<Token>> EncodeTurn(std::span<const ChatMessage> messages,
                                        Token unfed_token = -1) const;

  // The conversation as text, as `Encode` sees it.
  Result<std::string> Render(std::span<const ChatMessage> messages,
                             bool add_generation_prompt) const;

 private:
  ChatTemplate(std::shared_ptr<const Tokenizer> tokenizer, std::string source);
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::string source_;  // a built-in name or Jinja source
};

}  // namespace kvbound

#endif  // KVBOUND_CHAT_H_
