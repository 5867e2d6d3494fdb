#include "kvbound/chat.h"

#include <algorithm>
#include <utility>

#include "base/strings.h"
#include "llama.h"
#include "text/chat_render.h"
#include "text/llama_log.h"
#include "text/utf8.h"

namespace kvbound {
namespace {

constexpr size_t kMaxMessages = 100000;

Status CheckMessages(std::span<const ChatMessage> messages) {
  if (messages.empty() || messages.size() > kMaxMessages) {
    return InvalidArgument(
        StrCat("chat messages: expected 1..", kMaxMessages, ", found ", messages.size()));
  }
  for (size_t i = 0; i < messages.size(); ++i) {
    const std::string& role = messages[i].role;
    if (role != "system" && role != "user" && role != "assistant") {
      return InvalidArgument(StrCat("chat message ", i, ": role: expected system, user or ",
                                    "assistant, found '", Printable(role), "'"));
    }
    KVBOUND_RETURN_IF_ERROR(
        CheckUtf8(StrCat("chat message ", i, " (", role, ")"), messages[i].content));
  }
  return Status::Ok();
}

std::string Join(std::span<const ChatPart> parts) {
  std::string text;
  for (const ChatPart& part : parts) text += part.text;
  return text;
}

// Bytes of `parts`, the rendering of `messages`, that belong to the leading system message: what
// the template writes when that message stands alone, or, where a template merges it into the
// first turn, everything up to the end of its content.
Result<size_t> SystemBytes(const std::string& source, std::span<const ChatMessage> messages,
                           std::span<const ChatPart> parts) {
  if (messages.front().role != "system") return size_t{0};
  const Result<std::vector<ChatPart>> alone = RenderChat(source, messages.first(1), false);
  if (alone.ok()) {
    const std::string text = Join(*alone);
    if (Join(parts).starts_with(text)) return text.size();
  }
  size_t bytes = 0;
  for (const ChatPart& part : parts) {
    bytes += part.text.size();
    if (part.message == 0) return bytes;
  }
  return size_t{0};
}

// The parts as the tokenizer wants them, with a border at byte `border`. `index` receives the
// number of parts before it.
std::vector<TextPart> ToTextParts(std::span<const ChatPart> parts, size_t border, size_t* index) {
  std::vector<TextPart> result;
  *index = 0;
  size_t offset = 0;
  for (const ChatPart& part : parts) {
    const bool parse = part.message < 0;
    std::string_view text = part.text;
    if (offset < border && border < offset + text.size()) {
      result.push_back({text.substr(0, border - offset), parse});
      text.remove_prefix(border - offset);
      offset = border;
    }
    if (offset == border) *index = result.size();
    result.push_back({text, parse});
    offset += text.size();
  }
  if (offset == border) *index = result.size();
  return result;
}

}  // namespace

ChatTemplate::ChatTemplate(std::shared_ptr<const Tokenizer> tokenizer, std::string source)
    : tokenizer_(std::move(tokenizer)), source_(std::move(source)) {}

Result<ChatTemplate> ChatTemplate::Create(std::shared_ptr<const Tokenizer> tokenizer,
                                          std::string_view name) {
  if (name.empty()) {
    const std::optional<std::string>& source = tokenizer->ChatTemplateSource();
    if (!source) {
      return Unsupported(
          "chat template: the model file has none (key 'tokenizer.chat_template'): choose one by "
          "name (--chat-template NAME, for example chatml)");
    }
    if (!IsKnownTemplate(*source)) {
      return Unsupported(
          "chat template: llama does not know the one of the model file (key "
          "'tokenizer.chat_template'): choose one by name (--chat-template NAME, for example "
          "chatml)");
    }
    return ChatTemplate(std::move(tokenizer), *source);
  }
  const std::vector<std::string> names = BuiltinNames();
  if (std::find(names.begin(), names.end(), name) == names.end()) {
    std::string list;
    for (const std::string& known : names) list += (list.empty() ? "" : ", ") + known;
    return NotFound(
        StrCat("chat template: expected one of ", list, "; found '", Printable(name), "'"));
  }
  return ChatTemplate(std::move(tokenizer), std::string(name));
}

std::vector<std::string> ChatTemplate::BuiltinNames() {
  const int32_t n = llama_chat_builtin_templates(nullptr, 0);
  std::vector<const char*> names(static_cast<size_t>(std::max(n, 0)));
  llama_chat_builtin_templates(names.data(), names.size());
  return {names.begin(), names.end()};
}

Result<EncodedChat> ChatTemplate::Encode(std::span<const ChatMessage> messages,
                                         bool add_generation_prompt) const {
  KVBOUND_RETURN_IF_ERROR(CheckMessages(messages));
  KVBOUND_ASSIGN_OR_RETURN(const std::vector<ChatPart> parts,
                           RenderChat(source_, messages, add_generation_prompt));
  KVBOUND_ASSIGN_OR_RETURN(const size_t system_bytes, SystemBytes(source_, messages, parts));
  size_t system_parts = 0;
  const std::vector<TextPart> text_parts = ToTextParts(parts, system_bytes, &system_parts);
  EncodedChat chat;
  std::vector<size_t> ends;
  KVBOUND_ASSIGN_OR_RETURN(chat.tokens, tokenizer_->EncodeParts(text_parts, /*add_special=*/false,
                                                                /*continues=*/false, &ends));
  if (system_parts > 0) chat.system_end = ends[system_parts - 1];
  const std::optional<Token> bos = tokenizer_->Bos();
  if (tokenizer_->AddsBos() && bos && (chat.tokens.empty() || chat.tokens.front() != *bos)) {
    chat.tokens.insert(chat.tokens.begin(), *bos);
    if (system_parts > 0) ++chat.system_end;
  }
  return chat;
}

Result<std::vector<Token>> ChatTemplate::EncodeTurn(std::span<const ChatMessage> messages,
                                                    Token unfed_token) const {
  KVBOUND_RETURN_IF_ERROR(CheckMessages(messages));
  size_t answer = messages.size();
  while (answer > 0 && messages[answer - 1].role != "assistant") --answer;
  if (answer == 0) {
    KVBOUND_ASSIGN_OR_RETURN(EncodedChat chat, Encode(messages, true));
    return std::move(chat.tokens);
  }
  if (answer == messages.size()) {
    return InvalidArgument(
        "chat messages: expected a new message after the assistant's, found "
        "none");
  }
  KVBOUND_ASSIGN_OR_RETURN(const std::vector<ChatPart> parts, RenderChat(source_, messages, true));
  const int last_answer = static_cast<int>(answer) - 1;
  const auto said = std::find_if(parts.begin(), parts.end(),
                                 [&](const ChatPart& part) { return part.message == last_answer; });
  size_t border = 0;
  const std::vector<TextPart> rest = ToTextParts({said + 1, parts.end()}, 0, &border);
  KVBOUND_ASSIGN_OR_RETURN(
      std::vector<Token> tokens,
      tokenizer_->EncodeParts(rest, /*add_special=*/false, /*continues=*/true));
  if (unfed_token >= 0 && !tokenizer_->IsEog(unfed_token)) {
    tokens.insert(tokens.begin(), unfed_token);
  }
  return tokens;
}

Result<std::string> ChatTemplate::Render(std::span<const ChatMessage> messages,
                                         bool add_generation_prompt) const {
  KVBOUND_RETURN_IF_ERROR(CheckMessages(messages));
  KVBOUND_ASSIGN_OR_RETURN(const std::vector<ChatPart> parts,
                           RenderChat(source_, messages, add_generation_prompt));
  return Join(parts);
}

}  // namespace kvbound
