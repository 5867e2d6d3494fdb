#include "text/grammar_check.h"

#include <algorithm>
#include <cstdint>
#include <set>
#include <string>

#include "base/strings.h"
#include "text/utf8.h"

namespace kvbound {
namespace {

constexpr size_t kMaxGrammarBytes = size_t{256} << 10;
constexpr int kMaxDepth = 64;               // parentheses in parentheses
constexpr uint64_t kMaxRepetitions = 2000;  // llama's own limit
constexpr uint64_t kMaxElements = 1000000;  // after repetitions are written out

bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsHex(char c) { return IsDigit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }
bool IsWord(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' || IsDigit(c);
}

// A recursive descent over the text. Each Read... returns the failure, or Ok with pos_ behind
// what it read.
class Checker {
 public:
  explicit Checker(std::string_view text) : text_(text) {}

  Status Check() {
    SkipSpace(true);
    while (!AtEnd()) KVBOUND_RETURN_IF_ERROR(ReadRule());
    for (const std::string& name : used_) {
      if (!defined_.contains(name)) {
        return InvalidArgument(StrCat("grammar: rule '", name, "' is used but not defined"));
      }
    }
    if (!defined_.contains("root")) {
      return InvalidArgument("grammar: expected a rule named 'root', found none");
    }
    return Status::Ok();
  }

 private:
  bool AtEnd() const { return pos_ == text_.size(); }
  char Peek(size_t ahead = 0) const {
    return pos_ + ahead < text_.size() ? text_[pos_ + ahead] : '\0';
  }

  Status Expected(std::string_view what) const {
    const auto line =
        1 + std::count(text_.begin(), text_.begin() + static_cast<ptrdiff_t>(pos_), '\n');
    const std::string_view found = text_.substr(pos_, text_.substr(pos_).find('\n'));
    return InvalidArgument(StrCat("grammar: line ", line, ": expected ", what, ", found ",
                                  AtEnd() ? "the end" : "'" + Printable(found, 24) + "'"));
  }

  void SkipSpace(bool newlines) {
    for (;; ++pos_) {
      if (Peek() == '#') {
        while (!AtEnd() && Peek() != '\r' && Peek() != '\n') ++pos_;
      }
      const char c = Peek();
      const bool space = c == ' ' || c == '\t' || (newlines && (c == '\r' || c == '\n'));
      if (!space) return;
    }
  }

  std::string ReadName() {
    const size_t begin = pos_;
    while (IsWord(Peek())) ++pos_;
    return std::string(text_.substr(begin, pos_ - begin));
  }

  Status ReadRule() {
    const std::string name = ReadName();
    if (name.empty()) return Expected("a rule name");
    SkipSpace(false);
    if (!text_.substr(pos_).starts_with("::=")) return Expected("'::='");
    pos_ += 3;
    SkipSpace(true);
    defined_.insert(name);
    KVBOUND_RETURN_IF_ERROR(ReadAlternatives(0));
    if (!AtEnd() && Peek() != '\r' && Peek() != '\n') return Expected("a symbol or a new line");
    SkipSpace(true);
    return Status::Ok();
  }

  Status ReadAlternatives(int depth) {
    if (depth > kMaxDepth) return Expected(StrCat("at most ", kMaxDepth, " nested groups"));
    for (;;) {
      KVBOUND_RETURN_IF_ERROR(ReadSequence(depth));
      if (Peek() != '|') return Status::Ok();
      ++pos_;
      SkipSpace(true);
    }
  }

  // A sequence ends at the first character that starts no symbol. `size` is the number of elements
  // of the last symbol, which a repetition multiplies; 0: there is none.
  Status ReadSequence(int depth) {
    uint64_t size = 0;
    for (;;) {
      const char c = Peek();
      if (c == '"' || c == '[') {
        ++pos_;
        KVBOUND_RETURN_IF_ERROR(ReadCharacters(c == '"' ? '"' : ']', &size));
      } else if (c == '<' || c == '!') {
        KVBOUND_RETURN_IF_ERROR(ReadToken());
        size = 1;
      } else if (IsWord(c)) {
        used_.insert(ReadName());
        size = 1;
      } else if (c == '(') {
        ++pos_;
        SkipSpace(true);
        const uint64_t before = elements_;
        KVBOUND_RETURN_IF_ERROR(ReadAlternatives(depth + 1));
        if (Peek() != ')') return Expected("')'");
        ++pos_;
        size = elements_ - before + 1;
      } else if (c == '.') {
        ++pos_;
        size = 1;
      } else if (c == '*' || c == '+' || c == '?' || c == '{') {
        if (size == 0) return Expected("a symbol in front of a repetition");
        uint64_t times = 1;
        KVBOUND_RETURN_IF_ERROR(ReadRepetition(&times));
        size *= times + 1;
      } else {
        return Status::Ok();
      }
      elements_ += size;
      if (elements_ > kMaxElements) {
        return Expected(StrCat("at most ", kMaxElements, " elements after repetitions"));
      }
      SkipSpace(depth > 0);
    }
  }

  // The inside of "..." or [...], and its end.
  Status ReadCharacters(char end, uint64_t* size) {
    if (end == ']' && Peek() == '^') ++pos_;
    *size = 0;
    while (Peek() != end) {
      KVBOUND_RETURN_IF_ERROR(ReadCharacter(end));
      ++*size;
      if (end == ']' && Peek() == '-' && Peek(1) != ']') {
        ++pos_;
        KVBOUND_RETURN_IF_ERROR(ReadCharacter(end));
        ++*size;
      }
    }
    ++pos_;
    return Status::Ok();
  }

  Status ReadCharacter(char end) {
    if (AtEnd()) return Expected(StrCat("'", end, "'"));
    if (Peek() != '\\') {
      pos_ += ReadUtf8(text_.substr(pos_)).length;
      return Status::Ok();
    }
    const char c = Peek(1);
    const int digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    if (digits == 0 && std::string_view("trn\\\"[]-").find(c) == std::string_view::npos) {
      return Expected("one of the escapes \\t \\r \\n \\\\ \\\" \\[ \\] \\- \\x \\u \\U");
    }
    for (int i = 0; i < digits; ++i) {
      if (!IsHex(Peek(2 + static_cast<size_t>(i)))) {
        return Expected(StrCat("an escape with ", digits, " hexadecimal digits"));
      }
    }
    pos_ += 2 + static_cast<size_t>(digits);
    return Status::Ok();
  }

  // <[id]> or <token>, after an optional '!'.
  Status ReadToken() {
    if (Peek() == '!') ++pos_;
    if (Peek() != '<') return Expected("a token such as <[7]> or <|name|>");
    const size_t end = text_.substr(pos_).find('>');
    if (end == std::string_view::npos) return Expected("a token that ends with '>'");
    if (Peek(1) == '[') {
      const std::string_view id = text_.substr(pos_ + 2, end - 2);
      const bool digits = id.size() >= 2 && id.size() <= 10 && id.back() == ']' &&
                          std::all_of(id.begin(), id.end() - 1, IsDigit);
      if (!digits) return Expected("a token id such as <[7]>");
    }
    pos_ += end + 1;
    return Status::Ok();
  }

  // *, +, ?, {m}, {m,} or {m,n}. `times`: how often the symbol is written out.
  Status ReadRepetition(uint64_t* times) {
    *times = 1;
    if (Peek() != '{') {
      ++pos_;
      return Status::Ok();
    }
    ++pos_;
    SkipSpace(false);
    uint64_t low = 0, high = 0;
    KVBOUND_RETURN_IF_ERROR(ReadNumber(&low));
    high = low;
    if (Peek() == ',') {
      ++pos_;
      SkipSpace(false);
      if (IsDigit(Peek())) KVBOUND_RETURN_IF_ERROR(ReadNumber(&high));
      if (high < low) return Expected(StrCat("at least ", low, " as the upper bound"));
    }
    if (Peek() != '}') return Expected("',' or '}' in a repetition");
    ++pos_;
    *times = std::max<uint64_t>(high, 1);
    return Status::Ok();
  }

  Status ReadNumber(uint64_t* number) {
    if (!IsDigit(Peek())) return Expected("a number");
    for (*number = 0; IsDigit(Peek()); ++pos_) {
      *number = *number * 10 + static_cast<uint64_t>(Peek() - '0');
      if (*number > kMaxRepetitions) return Expected(StrCat("at most ", kMaxRepetitions, " times"));
    }
    SkipSpace(false);
    return Status::Ok();
  }

  std::string_view text_;
  size_t pos_ = 0;
  uint64_t elements_ = 0;
  std::set<std::string> defined_, used_;
};

}  // namespace

Status CheckGrammar(std::string_view grammar) {
  if (grammar.size() > kMaxGrammarBytes) {
    return InvalidArgument(
        StrCat("grammar: expected at most ", kMaxGrammarBytes, " bytes, found ", grammar.size()));
  }
  if (const size_t nul = grammar.find('\0'); nul != std::string_view::npos) {
    return InvalidArgument(StrCat("grammar: byte ", nul, ": expected text, found NUL"));
  }
  KVBOUND_RETURN_IF_ERROR(CheckUtf8("grammar", grammar));
  return Checker(grammar).Check();
}

}  // namespace kvbound
