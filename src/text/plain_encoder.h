#ifndef KVBOUND_TEXT_PLAIN_ENCODER_H_
#define KVBOUND_TEXT_PLAIN_ENCODER_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kvbound/status.h"
#include "kvbound/types.h"
#include "llama.h"

namespace kvbound {

// Turns plain text (without control tokens) into tokens through llama_tokenize, which is neither
// linear in time nor safe for long texts. Long texts are cut where no token can reach over the
// cut, so the tokens are those of one call:
// - SentencePiece vocabularies: beside a character that is in no token, or before a space that no
//   token has after the character in front of it. (Characters in no token cost llama quadratic
//   time.)
// - byte-level BPE: before a space between two ASCII letters, for the pre-tokenizers known to
//   start a word there. The others run std::regex, which overflows the stack on a long word: for
//   them an unbroken stretch has a limit.
// Immutable and thread-safe.
class PlainEncoder {
 public:
  // Longest run of characters without a space or newline, or of nothing else, for vocabularies
  // whose pre-tokenizer runs std::regex.
  static constexpr size_t kMaxStretch = 8192;

  // `pre_tokenizer`: the value of tokenizer.ggml.pre, empty if there is none.
  PlainEncoder(const llama_vocab* vocab, const std::string& pre_tokenizer);

  // Appends the tokens of `text`, valid UTF-8 that holds no control or user-defined token.
  // `continues`: the text goes on from text in front of it, so it gets no space prefix.
  // On failure `out` holds a part of the tokens.
  Status Append(std::string_view text, bool continues, std::vector<Token>* out) const;

  // Bytes that the vocabulary puts in front of a text: 1 for a space prefix, else 0.
  size_t prefix_bytes() const { return prefix_tokens_ > 0 ? 1 : 0; }

 private:
  void IndexCharacters();
  void IndexToken(std::string_view text);
  bool IsListed(uint32_t code_point) const { return listed_[code_point]; }
  // Length of the first chunk of `text`, cut as said above.
  size_t ChunkLength(std::string_view text) const;
  size_t SentencePieceChunk(std::string_view text) const;
  Status CheckStretches(std::string_view text) const;
  Status AppendChunk(std::string_view text, bool continues, std::vector<Token>* out) const;
  Status CallLlama(std::string_view text, std::vector<Token>* out) const;

  const llama_vocab* vocab_;
  bool sentence_piece_;
  bool linear_bpe_ = false;        // a byte-level BPE whose pre-tokenizer may be cut
  bool can_continue_ = false;      // SentencePiece: the space prefix can be told apart
  size_t prefix_tokens_ = 0;       // SentencePiece: tokens of the space prefix
  std::string marker_;             // SentencePiece: a character that is in no token
  size_t marker_tokens_ = 0;       // its tokens, without the space prefix
  std::vector<bool> listed_;       // [code point]: occurs in a token
  std::vector<bool> joins_space_;  // [code point]: a token has a space after it
};

}  // namespace kvbound

#endif  // KVBOUND_TEXT_PLAIN_ENCODER_H_
