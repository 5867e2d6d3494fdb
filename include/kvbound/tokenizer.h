#ifndef KVBOUND_TOKENIZER_H_
#define KVBOUND_TOKENIZER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kvbound/status.h"
#include "kvbound/types.h"

struct llama_vocab;

namespace kvbound {

struct EncodeOptions {
  // Put the begin-of-text token in front (and the end-of-text token behind) where the model asks
  // for it.
  bool add_special = true;
  // Text that spells a control token ("<|im_end|>", "</s>") becomes that token. Off: it stays
  // text, which is the only safe choice for text that a user wrote.
  bool parse_special = false;
};

// A stretch of a text of which only some stretches may contain control tokens (EncodeParts).
struct TextPart {
  std::string_view text;
  bool parse_special = false;
};

// The vocabulary of a model file and the rules that turn text into tokens. Immutable and
// thread-safe: one object serves every sequence of a model.
class Tokenizer {
 public:
  // Most bytes that one Encode takes: 64 MiB.
  static constexpr size_t kMaxTextBytes = size_t{64} << 20;

  // Reads the vocabulary of a GGUF file. The file must have passed the model loader's checks:
  // llama aborts the process on some malformed vocabularies.
  // kUnsupported when llama cannot use the vocabulary.
  static Result<std::shared_ptr<const Tokenizer>> Load(const std::string& gguf_path);
  ~Tokenizer();

  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  // The tokens of `text`, all of it: NUL is a character like any other. Empty text gives the
  // special tokens only, and a text that spells its own begin token gets no second one.
  // kInvalidArgument when `text` is not valid UTF-8 (the message gives the byte offset), is longer
  // than kMaxTextBytes, has a character that the vocabulary cannot spell, or, with the
  // vocabularies that llama cuts by general regular expressions, has more than 8192 characters
  // without a space.
  Result<std::vector<Token>> Encode(std::string_view text, EncodeOptions options = {}) const;

  // The tokens of the parts joined to one text. A control token is recognised only where it lies
  // inside one part that has parse_special; so a template and a user's words become the tokens
  // of the joined text, except that the user cannot write control tokens. `continues`: the parts
  // go on from text in front of them, so they get no space prefix. `ends`, if given, receives for
  // each part the number of tokens that begin before its end. Errors as for Encode.
  Result<std::vector<Token>> EncodeParts(std::span<const TextPart> parts, bool add_special,
                                         bool continues = false,
                                         std::vector<size_t>* ends = nullptr) const;

  // The bytes that `token` adds to a text: may be a part of a character (see TextStream) and is
  // empty for control tokens unless `render_special`, and for ids outside the vocabulary.
  std::string Piece(Token token, bool render_special = false) const;

  // The pieces of `tokens` one after the other. A space that the vocabulary puts in front of a
  // text (SentencePiece) is still there.
  std::string Decode(std::span<const Token> tokens, bool render_special = false) const;

  // Number of tokens; valid ids are [0, VocabSize()).
  int32_t VocabSize() const;

  // Begin of text, end of text and end of turn, where the vocabulary has them.
  std::optional<Token> Bos() const;
  std::optional<Token> Eos() const;
  std::optional<Token> Eot() const;

  // Whether `token` ends a generation (end of text, end of turn, end of message).
  bool IsEog(Token token) const;
  // Whether `token` is a control token, which no plain text becomes.
  bool IsControl(Token token) const;
  // Whether the model asks for Bos() in front of a text.
  bool AddsBos() const;

  // The chat template that the file carries (Jinja source), if any.
  const std::optional<std::string>& ChatTemplateSource() const;

  // For the library's own samplers.
  const llama_vocab* vocab() const;

 private:
  struct Impl;
  explicit Tokenizer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvbound

#endif  // KVBOUND_TOKENIZER_H_
