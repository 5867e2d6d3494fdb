#include "kvbound/tokenizer.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "base/strings.h"
#include "llama.h"
#include "text/llama_log.h"
#include "text/plain_encoder.h"
#include "text/special_tokens.h"
#include "text/utf8.h"

namespace kvbound {
namespace {

struct ModelDeleter {
  void operator()(llama_model* model) const { llama_model_free(model); }
};
using ModelPtr = std::unique_ptr<llama_model, ModelDeleter>;

std::string MetaValue(const llama_model* model, const char* key) {
  char value[256];
  const int32_t n = llama_model_meta_val_str(model, key, value, sizeof(value));
  return n < 0 ? std::string() : std::string(value);
}

std::optional<Token> OptionalToken(Token token) {
  if (token < 0) return std::nullopt;
  return token;
}

Result<ModelPtr> LoadVocabulary(const std::string& path) {
  InstallLlamaLog();
  llama_model_params params = llama_model_default_params();
  params.vocab_only = true;
  params.n_gpu_layers = 0;
  const LlamaErrorCapture errors;
  try {
    ModelPtr model(llama_model_load_from_file(path.c_str(), params));
    if (model != nullptr) return model;
  } catch (const std::exception& error) {
    return Unsupported(StrCat(path, ": llama cannot read the vocabulary: ", error.what()));
  }
  return Unsupported(
      StrCat(path, ": llama cannot read the vocabulary: ", errors.TextOr("no reason given")));
}

}  // namespace

struct Tokenizer::Impl {
  explicit Impl(ModelPtr loaded)
      : model(std::move(loaded)),
        vocab(llama_model_get_vocab(model.get())),
        special(vocab),
        plain(vocab, MetaValue(model.get(), "tokenizer.ggml.pre")) {
    if (const char* source = llama_model_chat_template(model.get(), nullptr)) {
      chat_template = source;
    }
  }

  ModelPtr model;
  const llama_vocab* vocab;
  SpecialTokens special;
  PlainEncoder plain;
  std::optional<std::string> chat_template;
};

Tokenizer::Tokenizer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::~Tokenizer() = default;

Result<std::shared_ptr<const Tokenizer>> Tokenizer::Load(const std::string& gguf_path) {
  KVBOUND_ASSIGN_OR_RETURN(ModelPtr model, LoadVocabulary(gguf_path));
  const llama_vocab* vocab = llama_model_get_vocab(model.get());
  const auto type = llama_vocab_type(vocab);
  if (type != LLAMA_VOCAB_TYPE_SPM && type != LLAMA_VOCAB_TYPE_BPE) {
    return Unsupported(StrCat(gguf_path,
                              ": key 'tokenizer.ggml.model': expected a SentencePiece ('llama') or "
                              "byte-level BPE ('gpt2') vocabulary, found '",
                              MetaValue(model.get(), "tokenizer.ggml.model"), "'"));
  }
  if (llama_vocab_get_add_bos(vocab) && llama_vocab_bos(vocab) < 0) {
    return Unsupported(StrCat(gguf_path, ": key 'tokenizer.ggml.bos_token_id': expected an id, ",
                              "since add_bos_token is set, found none"));
  }
  try {
    return std::shared_ptr<const Tokenizer>(
        new Tokenizer(std::make_unique<Impl>(std::move(model))));
  } catch (const std::exception& error) {
    return Unsupported(StrCat(gguf_path, ": cannot index the vocabulary: ", error.what()));
  }
}

Result<std::vector<Token>> Tokenizer::Encode(std::string_view text, EncodeOptions options) const {
  const TextPart part{text, options.parse_special};
  return EncodeParts({&part, 1}, options.add_special);
}

namespace {

// The token counts at the ends of the parts: a token counts for the part in which it begins.
class EndCounter {
 public:
  EndCounter(std::span<const TextPart> parts, std::vector<size_t>* ends)
      : parts_(parts), ends_(ends) {}

  // A token begins at byte `offset`, and `count` tokens stand before it.
  void Token(size_t offset, size_t count) {
    while (ends_->size() < parts_.size() && offset >= end_ + parts_[ends_->size()].text.size()) {
      end_ += parts_[ends_->size()].text.size();
      ends_->push_back(count);
    }
  }

  void Finish(size_t count) { ends_->resize(parts_.size(), count); }

 private:
  std::span<const TextPart> parts_;
  std::vector<size_t>* ends_;
  size_t end_ = 0;  // byte offset where part ends_->size() begins
};

// Bytes of `text` that `piece`, without its first `skip` bytes, stands for: a piece's space may be
// a U+2581 in the text.
size_t SpelledBytes(std::string_view text, std::string_view piece, size_t skip) {
  constexpr std::string_view kSpaceMark = "\xE2\x96\x81";
  size_t bytes = 0;
  for (const char c : piece.substr(std::min(skip, piece.size()))) {
    const bool mark = c == ' ' && text.substr(std::min(bytes, text.size())).starts_with(kSpaceMark);
    bytes += mark ? kSpaceMark.size() : 1;
  }
  return std::min(bytes, text.size());
}

Result<std::string> JoinParts(std::span<const TextPart> parts) {
  size_t bytes = 0;
  for (const TextPart& part : parts) bytes += part.text.size();
  if (bytes > Tokenizer::kMaxTextBytes) {
    return InvalidArgument(
        StrCat("text: expected at most ", Tokenizer::kMaxTextBytes, " bytes, found ", bytes));
  }
  std::string text;
  text.reserve(bytes);
  for (const TextPart& part : parts) text += part.text;
  KVBOUND_RETURN_IF_ERROR(CheckUtf8("text", text));
  return text;
}

}  // namespace

Result<std::vector<Token>> Tokenizer::EncodeParts(std::span<const TextPart> parts, bool add_special,
                                                  bool continues, std::vector<size_t>* ends) const {
  KVBOUND_ASSIGN_OR_RETURN(const std::string text, JoinParts(parts));
  const std::vector<TextFragment> fragments = impl_->special.Split(text, parts);
  std::vector<Token> tokens;
  if (add_special && AddsBos() && (fragments.empty() || fragments.front().token != *Bos())) {
    tokens.push_back(*Bos());
  }
  std::vector<size_t> unused;
  if (ends == nullptr) ends = &unused;
  ends->clear();
  EndCounter counter(parts, ends);
  for (const TextFragment& fragment : fragments) {
    if (fragment.token >= 0) {
      counter.Token(fragment.begin, tokens.size());
      tokens.push_back(fragment.token);
      continue;
    }
    const bool goes_on = continues && fragment.begin == 0;
    const size_t first = tokens.size();
    KVBOUND_RETURN_IF_ERROR(impl_->plain.Append(
        std::string_view(text).substr(fragment.begin, fragment.end - fragment.begin), goes_on,
        &tokens));
    if (ends == &unused) continue;
    size_t offset = fragment.begin;
    size_t skip = goes_on ? 0 : impl_->plain.prefix_bytes();
    for (size_t i = first; i < tokens.size(); ++i) {
      counter.Token(offset, i);
      offset += SpelledBytes(std::string_view(text).substr(offset), Piece(tokens[i], true), skip);
      skip = 0;
    }
  }
  counter.Finish(tokens.size());
  if (add_special && llama_vocab_get_add_eos(impl_->vocab) && Eos()) tokens.push_back(*Eos());
  return tokens;
}

std::string Tokenizer::Piece(Token token, bool render_special) const {
  if (token < 0 || token >= VocabSize()) return {};
  char small[64];
  int32_t n = llama_token_to_piece(impl_->vocab, token, small, sizeof(small), 0, render_special);
  if (n >= 0) return std::string(small, static_cast<size_t>(n));
  std::string piece(static_cast<size_t>(-n), '\0');
  n = llama_token_to_piece(impl_->vocab, token, piece.data(), -n, 0, render_special);
  piece.resize(static_cast<size_t>(std::max(n, 0)));
  return piece;
}

std::string Tokenizer::Decode(std::span<const Token> tokens, bool render_special) const {
  std::string text;
  for (const Token token : tokens) text += Piece(token, render_special);
  return text;
}

int32_t Tokenizer::VocabSize() const { return llama_vocab_n_tokens(impl_->vocab); }
std::optional<Token> Tokenizer::Bos() const { return OptionalToken(llama_vocab_bos(impl_->vocab)); }
std::optional<Token> Tokenizer::Eos() const { return OptionalToken(llama_vocab_eos(impl_->vocab)); }
std::optional<Token> Tokenizer::Eot() const { return OptionalToken(llama_vocab_eot(impl_->vocab)); }

bool Tokenizer::IsEog(Token token) const {
  return token >= 0 && token < VocabSize() && llama_vocab_is_eog(impl_->vocab, token);
}

bool Tokenizer::IsControl(Token token) const {
  return token >= 0 && token < VocabSize() && llama_vocab_is_control(impl_->vocab, token);
}

bool Tokenizer::AddsBos() const { return llama_vocab_get_add_bos(impl_->vocab); }

const std::optional<std::string>& Tokenizer::ChatTemplateSource() const {
  return impl_->chat_template;
}

const llama_vocab* Tokenizer::vocab() const { return impl_->vocab; }

}  // namespace kvbound
