#ifndef KVBOUND_TEXT_GRAMMAR_CHECK_H_
#define KVBOUND_TEXT_GRAMMAR_CHECK_H_

#include <string_view>

#include "kvbound/status.h"

namespace kvbound {

// Reads a GBNF grammar as llama's parser does and refuses what that parser would print on stderr,
// loop over or run out of memory for. kInvalidArgument "grammar: line 3: expected ..., found ...".
// Left recursion is left for llama to find.
Status CheckGrammar(std::string_view grammar);

}  // namespace kvbound

#endif  // KVBOUND_TEXT_GRAMMAR_CHECK_H_
