#ifndef KVBOUND_EVAL_FACT_ITEMS_H_
#define KVBOUND_EVAL_FACT_ITEMS_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "eval/texts.h"
#include "kvbound/status.h"
#include "kvbound/tokenizer.h"
#include "kvbound/types.h"

namespace kvbound::eval {

// Facts mentioned once in a long text and asked at its end.
enum class FactProbe {
  kPassKey,   // "The pass key is 48213. Remember it. 48213 is the pass key." (the passkey task of
              // Mohtashami and Jaggi, arXiv 2305.16300, inside a book's text)
  kInvented,  // invented people and places with a number, a name, a colour or a beast, in several
              // frames whose wording no training text has
};
std::string_view FactProbeName(FactProbe probe);  // "pass key", "invented names"

struct FactItem {
  std::string file;          // of the text around it
  std::string needle;        // the sentences that state the fact
  std::string question;      // with the first words of the answer
  std::string answer;        // one word
  int32_t needle_begin = 0;  // the needle and its line breaks: tokens[needle_begin, needle_end)
  int32_t needle_end = 0;
  std::vector<Token> tokens;  // the whole prompt
};

struct FactItemOptions {
  int32_t n_item = 32;
  int32_t length = 1500;  // tokens of a prompt, needle and question included
  uint64_t seed = 1;
};

inline constexpr int32_t kFactMargin = 64;     // tokens before the needle, at least
inline constexpr int32_t kFactDistance = 300;  // tokens after it, question included, at least

// Items over disjoint windows of `files` (see CutWindows). The needle is a paragraph of its own
// at a random place, after the end of a sentence where there is one near, at least kFactMargin
// tokens after the beginning and kFactDistance tokens before the end. Deterministic. Errors of
// CutWindows; InvalidArgument if `length` leaves no room for the needle.
Result<std::vector<FactItem>> MakeFactItems(const Tokenizer& tokenizer,
                                            const std::vector<std::string>& files, FactProbe probe,
                                            const FactItemOptions& options);

}  // namespace kvbound::eval

#endif  // KVBOUND_EVAL_FACT_ITEMS_H_
