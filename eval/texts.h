#ifndef KVBOUND_EVAL_TEXTS_H_
#define KVBOUND_EVAL_TEXTS_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kvbound/status.h"
#include "kvbound/tokenizer.h"
#include "kvbound/types.h"

namespace kvbound::eval {

// A stretch of a held-out text.
struct TextWindow {
  std::string file;   // as given
  int64_t begin = 0;  // its first token among the file's
  std::vector<Token> tokens;
};

// The words of a file as a reader sees them: without a byte order mark, without carriage returns,
// and of a Project Gutenberg book only what lies between its "*** START OF" and "*** END OF" lines.
std::string PlainText(std::string_view text);

// `n_window` disjoint windows of `length` tokens, in the order of the files. Each file gives the
// same number (earlier files one more where that does not come out even), spread evenly over it.
// Where the model asks for a begin token, each window starts with it and has one token of text
// less. NotFound, Io or InvalidArgument, naming the file: it cannot be read, is no text, or has
// fewer tokens than its windows take (with both numbers). InvalidArgument: no files, no windows, a
// length below 2.
Result<std::vector<TextWindow>> CutWindows(const Tokenizer& tokenizer,
                                           const std::vector<std::string>& files, int32_t n_window,
                                           int32_t length);

}  // namespace kvbound::eval

#endif  // KVBOUND_EVAL_TEXTS_H_
