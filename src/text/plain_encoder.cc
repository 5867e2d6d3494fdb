#include "text/plain_encoder.h"

#include <algorithm>
#include <array>
#include <exception>
#include <stdexcept>
#include <unordered_set>

#include "base/strings.h"
#include "text/utf8.h"

namespace kvbound {
namespace {

constexpr size_t kChunkBytes = size_t{256} << 10;
constexpr size_t kMaxUnlisted = 1024;  // characters without a token of their own, per chunk
constexpr uint32_t kSpaceMark = 0x2581;
constexpr uint32_t kPrivateUse = 0xE000, kPrivateUseEnd = 0xF900;

// Values of tokenizer.ggml.pre whose pre-tokenizer llama implements without std::regex recursion
// and which end a word between a letter and a space.
constexpr std::array<std::string_view, 21> kLinearPreTokenizers = {"llama3",
                                                                   "llama-v3",
                                                                   "llama-bpe",
                                                                   "falcon3",
                                                                   "lfm2",
                                                                   "gpt-2",
                                                                   "phi-2",
                                                                   "exaone4",
                                                                   "mpt",
                                                                   "olmo",
                                                                   "jais",
                                                                   "starcoder",
                                                                   "refact",
                                                                   "command-r",
                                                                   "codeshell",
                                                                   "exaone",
                                                                   "smollm",
                                                                   "qwen2",
                                                                   "deepseek-r1-qwen",
                                                                   "megrez",
                                                                   "stablelm2"};

bool IsAsciiLetter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool IsSpace(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

// SentencePiece writes spaces as U+2581.
uint32_t Marked(uint32_t code_point) { return code_point == ' ' ? kSpaceMark : code_point; }

// Whether SentencePiece merging can arrive at `text`: it is one character, or two symbols (a
// character or a token each) make it up.
bool IsReachable(std::string_view text, const std::unordered_set<std::string>& tokens) {
  if (text.empty()) return false;
  const auto first = [](std::string_view t) { return ReadUtf8(t).length; };
  const auto is_symbol = [&](std::string_view t) {
    return first(t) == t.size() || tokens.contains(std::string(t));
  };
  if (first(text) == text.size()) return true;
  for (size_t cut = first(text); cut < text.size(); cut += first(text.substr(cut))) {
    if (is_symbol(text.substr(0, cut)) && is_symbol(text.substr(cut))) return true;
  }
  return false;
}

}  // namespace

PlainEncoder::PlainEncoder(const llama_vocab* vocab, const std::string& pre_tokenizer)
    : vocab_(vocab), sentence_piece_(llama_vocab_type(vocab) == LLAMA_VOCAB_TYPE_SPM) {
  if (!sentence_piece_) {
    linear_bpe_ = std::find(kLinearPreTokenizers.begin(), kLinearPreTokenizers.end(),
                            pre_tokenizer) != kLinearPreTokenizers.end();
    return;
  }
  IndexCharacters();
  // The marker's tokens are its UTF-8 bytes; what stands in front of them is the space prefix.
  for (uint32_t c = kPrivateUse; c < kPrivateUseEnd; ++c) {
    if (IsListed(c)) continue;
    marker_ = EncodeUtf8(c);
    break;
  }
  std::vector<Token> tokens;
  if (marker_.empty() || !CallLlama(marker_, &tokens).ok()) return;
  if (tokens.size() < marker_.size()) return;
  marker_tokens_ = marker_.size();
  prefix_tokens_ = tokens.size() - marker_tokens_;
  can_continue_ = true;
}

// Only tokens that merging can arrive at count: else the digits in the names of byte tokens
// ("<0x0A>") would.
void PlainEncoder::IndexCharacters() {
  listed_.resize(0x110000);
  joins_space_.resize(0x110000);
  std::unordered_set<std::string> texts;
  for (Token token = 0; token < llama_vocab_n_tokens(vocab_); ++token) {
    texts.insert(llama_vocab_get_text(vocab_, token));
  }
  for (const std::string& text : texts) {
    if (IsReachable(text, texts)) IndexToken(text);
  }
}

void PlainEncoder::IndexToken(std::string_view text) {
  uint32_t before = 0;
  while (!text.empty()) {
    const Utf8Unit unit = ReadUtf8(text);
    text.remove_prefix(unit.length);
    if (!unit.valid) continue;
    const uint32_t c = Marked(unit.code_point);
    listed_[c] = true;
    if (c == kSpaceMark && before != 0) joins_space_[before] = true;
    before = c;
  }
}

Status PlainEncoder::Append(std::string_view text, bool continues, std::vector<Token>* out) const {
  if (!sentence_piece_ && !linear_bpe_) KVBOUND_RETURN_IF_ERROR(CheckStretches(text));
  while (!text.empty()) {
    const size_t length = ChunkLength(text);
    KVBOUND_RETURN_IF_ERROR(AppendChunk(text.substr(0, length), continues, out));
    text.remove_prefix(length);
    continues = true;
  }
  return Status::Ok();
}

size_t PlainEncoder::ChunkLength(std::string_view text) const {
  if (sentence_piece_) return can_continue_ ? SentencePieceChunk(text) : text.size();
  if (!linear_bpe_) return text.size();
  for (size_t i = kChunkBytes; i + 1 < text.size(); ++i) {
    if (text[i] == ' ' && IsAsciiLetter(text[i - 1]) && IsAsciiLetter(text[i + 1])) return i;
  }
  return text.size();
}

size_t PlainEncoder::SentencePieceChunk(std::string_view text) const {
  size_t unlisted = 0;
  uint32_t before = 0;
  for (size_t i = 0; i < text.size();) {
    const Utf8Unit unit = ReadUtf8(text.substr(i));
    const uint32_t c = Marked(unit.code_point);
    const bool is_listed = IsListed(c);
    if (i > 0) {
      if (!is_listed && unlisted >= kMaxUnlisted) return i;
      if (i >= kChunkBytes && (!is_listed || (c == kSpaceMark && !joins_space_[before]))) return i;
    }
    if (!is_listed) ++unlisted;
    before = c;
    i += unit.length;
  }
  return text.size();
}

Status PlainEncoder::CheckStretches(std::string_view text) const {
  size_t begin = 0, length = 0;
  bool space = false;
  for (size_t i = 0; i < text.size(); ++i) {
    if ((text[i] & 0xC0) == 0x80) continue;
    if (length == 0 || IsSpace(text[i]) != space) {
      begin = i;
      length = 0;
      space = IsSpace(text[i]);
    }
    if (++length <= kMaxStretch) continue;
    return InvalidArgument(
        StrCat("text: byte ", begin, ": expected at most ", kMaxStretch,
               space ? " characters of white space" : " characters without a space",
               " in a row (the limit of this vocabulary's pre-tokenizer), found "
               "more"));
  }
  return Status::Ok();
}

Status PlainEncoder::AppendChunk(std::string_view text, bool continues,
                                 std::vector<Token>* out) const {
  if (!sentence_piece_ || !continues || !can_continue_ || prefix_tokens_ == 0) {
    return CallLlama(text, out);
  }
  // No token reaches over the marker, so what stands in front of the text can be taken away.
  const size_t size = out->size();
  KVBOUND_RETURN_IF_ERROR(CallLlama(marker_ + std::string(text), out));
  const auto first = out->begin() + static_cast<ptrdiff_t>(size);
  out->erase(first, first + static_cast<ptrdiff_t>(prefix_tokens_ + marker_tokens_));
  return Status::Ok();
}

Status PlainEncoder::CallLlama(std::string_view text, std::vector<Token>* out) const {
  const size_t size = out->size();
  size_t room = text.size() / 2 + 16;
  try {
    for (;;) {
      out->resize(size + room);
      const int32_t n = llama_tokenize(vocab_, text.data(), static_cast<int32_t>(text.size()),
                                       out->data() + size, static_cast<int32_t>(room),
                                       /*add_special=*/false, /*parse_special=*/false);
      if (n >= 0) {
        out->resize(size + static_cast<size_t>(n));
        return Status::Ok();
      }
      if (n == INT32_MIN) return Internal("llama_tokenize: more than 2^31 tokens");
      room = static_cast<size_t>(-static_cast<int64_t>(n));
    }
  } catch (const std::out_of_range&) {
    out->resize(size);
    return InvalidArgument(StrCat("text: '", Printable(text, 32),
                                  "': holds a character that the vocabulary has no token and no "
                                  "byte tokens for"));
  } catch (const std::exception& error) {
    out->resize(size);
    return InvalidArgument(
        StrCat("text: '", Printable(text, 32), "': llama cannot tokenize it: ", error.what()));
  }
}

}  // namespace kvbound
