#include "kvbound/generate.h"

#include <array>
#include <utility>

#include "kvbound/text_stream.h"

namespace kvbound {
namespace {

Status CheckCall(const Session& session, const GenerateOptions& options) {
  if (session.logits().empty()) {
    return InvalidArgument("generate: expected a session that has been fed, found an empty one");
  }
  if (options.n_predict < -1) {
    return InvalidArgument("n_predict: expected a number of tokens or -1, found " +
                           std::to_string(options.n_predict));
  }
  return Status::Ok();
}

Status Feed(Engine& engine, Session& session, Token token) {
  const std::array<Session*, 1> sessions = {&session};
  const std::array<Token, 1> tokens = {token};
  return engine.Step(sessions, tokens);
}

}  // namespace

Result<GenerateResult> Generate(Engine& engine, Session& session, Sampler& sampler,
                                const GenerateOptions& options, const TextCallback& on_text,
                                Token* last_token) {
  if (last_token) *last_token = -1;
  KVBOUND_RETURN_IF_ERROR(CheckCall(session, options));
  KVBOUND_ASSIGN_OR_RETURN(TextStream stream, TextStream::Create(options.stop));
  const Tokenizer& tokenizer = engine.model().tokenizer();

  GenerateResult result;
  Token token = -1;
  while (options.n_predict < 0 || result.n_tokens < options.n_predict) {
    if (result.n_tokens > 0) KVBOUND_RETURN_IF_ERROR(Feed(engine, session, token));
    KVBOUND_ASSIGN_OR_RETURN(token, sampler.Sample(session.logits()));
    KVBOUND_RETURN_IF_ERROR(sampler.Accept(token));
    ++result.n_tokens;
    if (last_token) *last_token = token;
    if (!options.ignore_eos && tokenizer.IsEog(token)) {
      result.reason = FinishReason::kStopToken;
      break;
    }
    if (!on_text(stream.Push(tokenizer.Piece(token)))) {
      result.reason = FinishReason::kCancelled;
      return result;
    }
    if (stream.stopped()) {
      result.reason = FinishReason::kStopString;
      result.stopping_string = options.stop[stream.stop_index()];
      break;
    }
  }
  if (const std::string_view rest = stream.Finish(); !rest.empty() && !on_text(rest)) {
    result.reason = FinishReason::kCancelled;
  }
  return result;
}

}  // namespace kvbound
