#include "text/grammar_check.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace kvbound {
namespace {

using namespace std::string_literals;

TEST(GrammarCheck, TakesWhatLlamaTakes) {
  for (const std::string& grammar : {
           "root ::= \"a\""s,
           "root ::= \"\""s,
           "# comment\n\nroot ::= a | b # more\na ::= [a-z]+\nb ::= ([0-9] | \".\")*\r\n"s,
           "root ::= (\n  \"a\"\n  | \"b\"\n)?\n"s,
           "root ::= \"\\n\\t\\\"\\\\\\x41\\u00e9\\U0001F638\" [^\\]\\-a-f] ."s,
           "root ::= \"a\"{3} \"b\"{2,} \"c\"{0,5} \"d\"{ 1 , 2 }"s,
           "root ::= x-1 |\n  \"y\"\nx-1 ::= \"\xC3\xA9\""s,
           "root ::= <[7]> !<[8]> \"x\""s,
           "root ::= [-a] [a-] []"s,
       }) {
    EXPECT_TRUE(CheckGrammar(grammar).ok()) << grammar << CheckGrammar(grammar);
  }
}

TEST(GrammarCheck, RefusesWithLineAndReason) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "root"},
      {"rule ::= \"a\"", "root"},
      {"root ::= missing", "'missing'"},
      {"root = \"a\"", "'::='"},
      {"\n\nroot ::= \"a", "line 3"},
      {"root ::= [a-z", "']'"},
      {"root ::= [a-", "']'"},
      {"root ::= (\"a\" | \"b\"", "')'"},
      {"root ::= \"a\")", "new line"},
      {"root ::= * \"a\"", "in front"},
      {"root ::= \"\"*", "in front"},
      {"root ::= []+", "in front"},
      {"root ::= \"a\"{", "number"},
      {"root ::= \"a\"{5,2}", "at least 5"},
      {"root ::= \"a\"{99999999999999999999}", "at most"},
      {"root ::= \"a\"{2001}", "at most"},
      {"root ::= \"a\"{2", "'}'"},
      {"root ::= \"\\q\"", "escapes"},
      {"root ::= \"\\x4\"", "2 hex"},
      {"root ::= <[x]>", "token id"},
      {"root ::= <[99999999999999999999]>", "token id"},
      {"root ::= !x", "token"},
      {"root ::= <|x", "'>'"},
      {"root ::= \"\xFF\"", "byte 10"},
      {"root ::= \"a\" \"b\"{1000} (\"c\"{1000}){1000}", "elements"},
      {"::= \"a\"", "rule name"},
  };
  for (const auto& [grammar, reason] : cases) {
    const Status status = CheckGrammar(grammar);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << grammar;
    EXPECT_NE(status.message().find(reason), std::string::npos) << grammar << ": " << status;
  }
  EXPECT_FALSE(CheckGrammar("root ::= \"a\"\0"s).ok());
  EXPECT_FALSE(CheckGrammar("root ::= " + std::string(100000, '(')).ok());
  EXPECT_FALSE(CheckGrammar("root ::= \"" + std::string(300000, 'a') + "\"").ok());
}

}  // namespace
}  // namespace kvbound
