#include "eval/facts.h"

#include <algorithm>
#include <numeric>
#include <span>
#include <utility>

#include "src/base/strings.h"

namespace kvbound::eval {
namespace {

char Lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

std::string Lower(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) c = Lower(c);
  return lower;
}

// A byte of a character outside ASCII counts as a letter.
bool IsWordByte(char c) {
  return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || static_cast<unsigned char>(c) >= 0x80;
}

Result<std::string> Answer(Contender& contender, const FactItem& item, int32_t n_predict) {
  Session* const session = contender.session.get();
  const Tokenizer& tokenizer = contender.engine->model().tokenizer();
  KVBOUND_RETURN_IF_ERROR(session->Reset());
  KVBOUND_RETURN_IF_ERROR(session->Feed(item.tokens));
  std::vector<Token> answer;
  for (int32_t i = 0; i < n_predict; ++i) {
    const std::span<const float> logits = session->logits();
    const auto top = static_cast<Token>(std::ranges::max_element(logits) - logits.begin());
    if (tokenizer.IsEog(top)) break;
    answer.push_back(top);
    if (i + 1 < n_predict)
      KVBOUND_RETURN_IF_ERROR(contender.engine->Step({&session, 1}, {&top, 1}));
  }
  return tokenizer.Decode(answer);
}

double Seconds(const SessionStats& stats) {
  return stats.prompt_seconds + stats.decode_seconds + stats.scoring_seconds;
}

}  // namespace

int64_t FactResult::n_right() const {
  return std::accumulate(right.begin(), right.end(), int64_t{0});
}

bool HoldsAnswer(std::string_view text, std::string_view answer) {
  const std::string low_text = Lower(text), low_answer = Lower(answer);
  for (size_t at = low_text.find(low_answer); at != std::string::npos;
       at = low_text.find(low_answer, at + 1)) {
    const size_t end = at + low_answer.size();
    const bool begins = at == 0 || !IsWordByte(low_text[at - 1]);
    if (begins && (end == low_text.size() || !IsWordByte(low_text[end]))) return true;
  }
  return false;
}

Result<std::vector<FactResult>> MeasureFacts(std::shared_ptr<const Model> model,
                                             const std::vector<FactItem>& items,
                                             const std::vector<FidelityPolicy>& policies,
                                             const FactOptions& options,
                                             const FactProgress& progress) {
  if (items.empty()) return InvalidArgument("facts: expected at least one item, found none");
  size_t longest = 0;
  for (const FactItem& item : items) longest = std::max(longest, item.tokens.size());
  const CacheShape shape{options.chunk, options.n_threads, 0};
  const int32_t n_token = static_cast<int32_t>(longest) + options.n_predict;

  std::vector<Contender> contenders(1);
  std::vector<FactResult> results(1);
  results[0].label = "uncut";
  KVBOUND_ASSIGN_OR_RETURN(contenders[0], MakeUncut(model, n_token, shape));
  for (const FidelityPolicy& policy : policies) {
    KVBOUND_ASSIGN_OR_RETURN(Contender contender, MakeContender(model, policy, shape));
    contenders.push_back(std::move(contender));
    results.emplace_back().label = policy.label;
  }
  const int64_t total = std::ssize(items) * std::ssize(contenders);
  int64_t done = 0;
  for (const FactItem& item : items) {
    for (size_t i = 0; i < contenders.size(); ++i) {
      KVBOUND_ASSIGN_OR_RETURN(std::string text, Answer(contenders[i], item, options.n_predict));
      results[i].right.push_back(HoldsAnswer(text, item.answer) ? 1 : 0);
      results[i].texts.push_back(std::move(text));
      results[i].seconds += Seconds(contenders[i].session->stats());
      if (progress && !progress(++done, total)) {
        return Cancelled(StrCat("stopped after ", done, " of ", total, " prompts"));
      }
    }
  }
  return results;
}

}  // namespace kvbound::eval
