#include "cli/chat.h"

#include <unistd.h>

#include <cstdio>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cli/logging.h"
#include "cli/signals.h"
#include "cli/terminal.h"
#include "kvbound/chat.h"
#include "src/base/strings.h"

namespace kvbound::cli {
namespace {

class Conversation {
 public:
  Conversation(Runner& runner, const RunArgs& args, ChatTemplate chat_template)
      : runner_(runner), args_(args), template_(std::move(chat_template)) {
    Clear();
  }

  void Clear() {
    messages_.clear();
    if (args_.system_prompt) messages_.push_back({"system", *args_.system_prompt});
    started_ = false;
    unfed_ = -1;
  }

  // Feeds a message and streams the reply. InvalidArgument: the message cannot be said, and nothing
  // has changed.
  Status Say(const std::string& message) {
    messages_.push_back({"user", message});
    if (Status fed = started_ ? FeedNext() : FeedFirst(); !fed.ok()) {
      messages_.pop_back();
      return fed;
    }
    // A grammar governs each reply from its start.
    if (!args_.sampler_options.grammar.empty()) runner_.sampler().Reset();
    std::string reply;
    KVBOUND_RETURN_IF_ERROR(runner_.Generate(&reply, &unfed_).status());
    messages_.push_back({"assistant", reply});
    if (!runner_.output().ends_with_newline()) runner_.output().Write("\n");
    return Status::Ok();
  }

 private:
  // The system message first, alone: once it is in the cache it can be pinned.
  Status FeedFirst() {
    KVBOUND_ASSIGN_OR_RETURN(const EncodedChat chat, template_.Encode(messages_, true));
    const std::span<const Token> tokens(chat.tokens);
    const auto pin = args_.cache_setup.session.protection.pin_prompt;
    if (chat.system_end > 0 && pin.value_or(true) && runner_.session().policy().evicts) {
      const int32_t end = static_cast<int32_t>(chat.system_end);
      if (end >= runner_.budget()) {
        return OutOfBudget(StrCat("--system-prompt: expected fewer tokens than the budget of ",
                                  runner_.budget(), " slots, found ", end));
      }
      KVBOUND_RETURN_IF_ERROR(Feed(tokens.first(chat.system_end)));
      if (Status pinned = runner_.session().Pin({Position{0}, Position{end}}); !pinned.ok()) {
        return OutOfBudget(StrCat("--system-prompt: ", pinned.message()));
      }
      return Feed(tokens.subspan(chat.system_end));
    }
    return Feed(tokens);
  }

  Status FeedNext() {
    KVBOUND_ASSIGN_OR_RETURN(const std::vector<Token> tokens,
                             template_.EncodeTurn(messages_, unfed_));
    return Feed(tokens);
  }

  // What cannot be read in whole ends the conversation, so InvalidArgument is not passed on.
  Status Feed(std::span<const Token> tokens) {
    started_ = true;
    const Status status = runner_.Feed(tokens);
    if (status.code() != StatusCode::kInvalidArgument) return status;
    return Internal(status.message());
  }

  Runner& runner_;
  const RunArgs& args_;
  ChatTemplate template_;
  std::vector<ChatMessage> messages_;
  bool started_ = false;
  Token unfed_ = -1;  // sampled last, not in the cache
};

// Handles /stats and /reset; whether `line` was one of them.
Result<bool> RunCommand(const std::string& line, Runner& runner, Conversation& conversation) {
  if (line == "/stats") {
    runner.PrintStats();
    return true;
  }
  if (line != "/reset") return false;
  KVBOUND_RETURN_IF_ERROR(runner.Reset());
  conversation.Clear();
  return true;
}

}  // namespace

Status Chat(Runner& runner, const RunArgs& args) {
  KVBOUND_ASSIGN_OR_RETURN(
      ChatTemplate chat_template,
      ChatTemplate::Create(runner.model().shared_tokenizer(), args.chat_template));
  Conversation conversation(runner, args, std::move(chat_template));
  LineReader lines;
  const bool terminal = isatty(STDIN_FILENO);
  while (true) {
    if (terminal) std::fputs("> ", stderr);
    const std::optional<std::string> line = lines.Next();
    if (!line || *line == "/quit") return Status::Ok();
    if (line->empty()) continue;
    KVBOUND_ASSIGN_OR_RETURN(const bool was_command, RunCommand(*line, runner, conversation));
    if (was_command) continue;
    const Status said = conversation.Say(*line);
    if (said.code() == StatusCode::kInvalidArgument) {
      PrintError(said.message());
      continue;
    }
    KVBOUND_RETURN_IF_ERROR(said);
    if (Interrupted() || runner.output().closed()) return Status::Ok();
  }
}

}  // namespace kvbound::cli
