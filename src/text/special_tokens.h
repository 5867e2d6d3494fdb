#ifndef KVBOUND_TEXT_SPECIAL_TOKENS_H_
#define KVBOUND_TEXT_SPECIAL_TOKENS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "kvbound/tokenizer.h"
#include "kvbound/types.h"
#include "llama.h"

namespace kvbound {

// A stretch [begin, end) of a text: one special token, or plain text (token < 0).
struct TextFragment {
  size_t begin = 0;
  size_t end = 0;
  Token token = -1;
};

// Finds the tokens that a text spells out literally: control tokens where they are allowed, and
// tokens the model's makers defined for certain strings everywhere. llama does the same, in time
// that grows with the square of the number of matches; this is linear. Immutable.
class SpecialTokens {
 public:
  explicit SpecialTokens(const llama_vocab* vocab);

  // Cuts `text`, the concatenation of `parts`, into fragments in text order: leftmost match first,
  // the longest if several start there. A control token counts only inside one part that has
  // parse_special. White space that a token asks to strip beside it belongs to no fragment.
  std::vector<TextFragment> Split(std::string_view text, std::span<const TextPart> parts) const;

 private:
  struct Entry {
    Token token = -1;
    bool control = false;
    bool strip_left = false, strip_right = false;
    size_t length = 0;
  };

  // The longest entry that `text` starts with, or null. Control entries may be at most
  // `control_limit` bytes long.
  const Entry* Match(std::string_view text, size_t control_limit) const;

  // A trie: edges (node, byte) -> node; entry_of_[node] >= 0 where a token ends.
  std::unordered_map<uint64_t, uint32_t> edges_;
  std::array<uint32_t, 256> roots_ = {};  // node after the first byte, 0 = none
  std::vector<int32_t> entry_of_;
  std::vector<Entry> entries_;
};

}  // namespace kvbound

#endif  // KVBOUND_TEXT_SPECIAL_TOKENS_H_
