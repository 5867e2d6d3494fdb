// What the llama library does with a vocabulary that breaks its expectations (seen with ggml
// 0.25.3): an entry that occurs twice, a general.file_type that is no u32 and an add_bos_token
// without a BOS abort the process; missing byte tokens throw out_of_range in the middle of
// tokenizing; short arrays and wrong types fail the load with a log line only.

#include <array>
#include <cmath>
#include <cstdio>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/strings.h"
#include "model/hparams.h"

namespace kvbound {
namespace {

constexpr std::string_view kModel = "tokenizer.ggml.model";
constexpr std::string_view kTokens = "tokenizer.ggml.tokens";
constexpr std::string_view kScores = "tokenizer.ggml.scores";
constexpr std::string_view kTokenType = "tokenizer.ggml.token_type";
constexpr std::string_view kMerges = "tokenizer.ggml.merges";

constexpr int64_t kByteToken = 6;  // LLAMA_TOKEN_TYPE_BYTE

enum class Kind { kSentencePiece, kBytePair };

// llama reads an entry up to its first zero byte, and names empty ones by their id.
std::string EntryAsLlamaSeesIt(std::string_view entry, uint64_t id) {
  const std::string_view text = entry.substr(0, entry.find('\0'));
  return text.empty() ? StrCat("[EMPTY_", id, "]") : std::string(text);
}

// Such a sequence makes the library throw; other invalid UTF-8 does not.
bool HasCodepointBeyondUnicode(std::string_view text) {
  for (size_t i = 0; i + 3 < text.size(); ++i) {
    const auto lead = static_cast<uint8_t>(text[i]), next = static_cast<uint8_t>(text[i + 1]);
    if ((lead == 0xF4 && next >= 0x90) || (lead >= 0xF5 && lead <= 0xF7)) return true;
  }
  return false;
}

std::string ByteTokenText(int byte) {
  char text[8];
  std::snprintf(text, sizeof(text), "<0x%02X>", byte);
  return text;
}

bool IsByteTokenText(const std::string& text) {
  unsigned byte = 0;
  return text.size() == 6 && std::sscanf(text.c_str(), "<0x%2X>", &byte) == 1 &&
         text == ByteTokenText(static_cast<int>(byte));
}

class Checker {
 public:
  Checker(const GgufFile& file, const HParams& hparams) : file_(file), hparams_(hparams) {}

  Status Check() {
    KVBOUND_RETURN_IF_ERROR(CheckLibraryKeys());
    KVBOUND_RETURN_IF_ERROR(ReadKind());
    KVBOUND_RETURN_IF_ERROR(CheckTokens());
    KVBOUND_RETURN_IF_ERROR(CheckScores());
    KVBOUND_RETURN_IF_ERROR(CheckTokenTypes());
    KVBOUND_RETURN_IF_ERROR(kind_ == Kind::kBytePair ? CheckMerges() : CheckByteTokens());
    KVBOUND_RETURN_IF_ERROR(CheckFlags());
    KVBOUND_RETURN_IF_ERROR(CheckSpecialIds());
    return CheckAddedTokens();
  }

 private:
  Status CheckLibraryKeys() const;
  Status ReadKind();
  Status CheckTokens();
  Status CheckScores() const;
  Status CheckTokenTypes() const;
  Status CheckMerges() const;
  Status CheckByteTokens() const;
  Status CheckFlags() const;
  Status CheckSpecialIds() const;
  Status CheckAddedTokens() const;
  Status CheckType(std::string_view key, GgufType type) const;
  Status CheckLength(std::string_view key, const GgufNumbers& numbers) const;

  const GgufFile& file_;
  const HParams& hparams_;
  Kind kind_ = Kind::kSentencePiece;
  std::unordered_map<std::string, uint64_t> ids_;
};

// An optional key that the library reads with one exact type.
Status Checker::CheckType(std::string_view key, GgufType type) const {
  const GgufValue* value = file_.Find(key);
  if (value == nullptr || value->type == type) return Status::Ok();
  return file_.KeyError(key, StrCat("a value of type ", GgufTypeName(type)), value->TypeName());
}

Status Checker::CheckLength(std::string_view key, const GgufNumbers& numbers) const {
  if (numbers.size() == static_cast<uint64_t>(hparams_.n_vocab)) return Status::Ok();
  return file_.KeyError(key, StrCat(hparams_.n_vocab, " elements, one for each token"),
                        StrCat(numbers.size()));
}

Status Checker::CheckLibraryKeys() const {
  KVBOUND_RETURN_IF_ERROR(CheckType("general.file_type", GgufType::kU32));
  return CheckType("general.name", GgufType::kString);
}

Status Checker::ReadKind() {
  KVBOUND_ASSIGN_OR_RETURN(const std::string_view model, file_.GetString(kModel));
  KVBOUND_RETURN_IF_ERROR(CheckType("tokenizer.ggml.pre", GgufType::kString));
  if (model != "llama" && model != "gpt2") {
    return Unsupported(StrCat(file_.path(), ": key '", kModel, "': expected llama or gpt2, found '",
                              Printable(model), "'"));
  }
  kind_ = model == "llama" ? Kind::kSentencePiece : Kind::kBytePair;
  return Status::Ok();
}

Status Checker::CheckTokens() {
  KVBOUND_ASSIGN_OR_RETURN(const GgufStrings tokens, file_.GetStrings(kTokens));
  if (tokens.size() != static_cast<uint64_t>(hparams_.n_vocab)) {
    return file_.KeyError(kTokens,
                          StrCat(hparams_.n_vocab, " entries, the rows of token_embd.weight"),
                          StrCat(tokens.size()));
  }
  ids_.reserve(tokens.size());
  uint64_t id = 0;
  for (const std::string_view token : tokens) {
    if (HasCodepointBeyondUnicode(token)) {
      return file_.KeyError(kTokens, "characters up to U+10FFFF",
                            StrCat("'", Printable(token), "' as id ", id));
    }
    std::string entry = EntryAsLlamaSeesIt(token, id);
    const auto [it, is_new] = ids_.emplace(std::move(entry), id);
    if (!is_new) {
      return file_.KeyError(
          kTokens, "entries that differ",
          StrCat("'", Printable(it->first), "' twice, as ids ", it->second, " and ", id));
    }
    ++id;
  }
  return Status::Ok();
}

Status Checker::CheckScores() const {
  if (!file_.Has(kScores)) return Status::Ok();
  KVBOUND_ASSIGN_OR_RETURN(const GgufNumbers scores, file_.GetNumbers(kScores));
  if (scores.type() != GgufType::kF32 && scores.type() != GgufType::kI32) {
    return file_.KeyError(kScores, "an array of f32 or i32", GgufTypeName(scores.type()));
  }
  KVBOUND_RETURN_IF_ERROR(CheckLength(kScores, scores));
  for (uint64_t i = 0; i < scores.size(); ++i) {
    if (std::isnan(scores.AsDouble(i))) {
      return file_.KeyError(kScores, "numbers", StrCat("NaN for token ", i));
    }
  }
  return Status::Ok();
}

Status Checker::CheckTokenTypes() const {
  if (!file_.Has(kTokenType)) return Status::Ok();
  KVBOUND_ASSIGN_OR_RETURN(const GgufNumbers types, file_.GetNumbers(kTokenType));
  if (types.type() != GgufType::kI32) {
    return file_.KeyError(kTokenType, "an array of i32", GgufTypeName(types.type()));
  }
  KVBOUND_RETURN_IF_ERROR(CheckLength(kTokenType, types));
  // The library reads the byte of such an entry from its third character on.
  const bool is_pieces = kind_ == Kind::kSentencePiece;
  for (const auto& [text, id] : ids_) {
    if (types.AsInt(id) != kByteToken) continue;
    const bool is_good = is_pieces ? IsByteTokenText(text) : text.size() > 3;
    if (!is_good) {
      return file_.KeyError(kTokenType, StrCat("token ", id, " to be spelled <0x00> to <0xFF>"),
                            StrCat("a byte token '", Printable(text), "'"));
    }
  }
  return Status::Ok();
}

Status Checker::CheckMerges() const {
  KVBOUND_ASSIGN_OR_RETURN(const GgufStrings merges, file_.GetStrings(kMerges));
  uint64_t i = 0;
  for (const std::string_view merge : merges) {
    const size_t space = merge.find(' ', 1);
    if (space == std::string_view::npos || space + 1 >= merge.size()) {
      return file_.KeyError(kMerges, "pairs of pieces with a space between",
                            StrCat("'", Printable(merge), "' at element ", i));
    }
    ++i;
  }
  return Status::Ok();
}

Status Checker::CheckByteTokens() const {
  for (int byte = 0; byte < 256; ++byte) {
    const std::string spelled = ByteTokenText(byte);
    const bool as_text = byte != 0 && ids_.contains(std::string(1, static_cast<char>(byte)));
    if (!ids_.contains(spelled) && !as_text) {
      return file_.KeyError(kTokens, "a token for each byte <0x00> to <0xFF>",
                            StrCat("none for ", spelled));
    }
  }
  return Status::Ok();
}

Status Checker::CheckFlags() const {
  static constexpr std::string_view kFlags[] = {
      "tokenizer.ggml.add_bos_token", "tokenizer.ggml.add_eos_token",
      "tokenizer.ggml.add_sep_token", "tokenizer.ggml.add_space_prefix",
      "tokenizer.ggml.remove_extra_whitespaces"};
  for (const std::string_view key : kFlags) {
    KVBOUND_RETURN_IF_ERROR(CheckType(key, GgufType::kBool));
  }
  return CheckType("tokenizer.chat_template", GgufType::kString);
}

Status Checker::CheckSpecialIds() const {
  static constexpr std::string_view kPrefix = "tokenizer.ggml.";
  static constexpr std::string_view kSuffix = "_token_id";
  for (const auto& [key, value] : file_.metadata()) {
    if (!key.starts_with(kPrefix) || !key.ends_with(kSuffix)) continue;
    KVBOUND_RETURN_IF_ERROR(CheckType(key, GgufType::kU32));
    KVBOUND_ASSIGN_OR_RETURN(const uint64_t id, file_.GetU64(key));
    if (id >= static_cast<uint64_t>(hparams_.n_vocab)) {
      return file_.KeyError(key, StrCat("a token id below ", hparams_.n_vocab), StrCat(id));
    }
  }
  return Status::Ok();
}

// A BOS or EOS that is to be added must exist: given by key, or the library's default id. Some
// byte-pair pre-tokenizers have no default, so there a flag that is on needs its key.
Status Checker::CheckAddedTokens() const {
  const bool is_pieces = kind_ == Kind::kSentencePiece;
  struct Added {
    std::string_view flag, id_key;
    int32_t default_id;
    bool default_flag;
  };
  const Added kAdded[] = {
      {"tokenizer.ggml.add_bos_token", "tokenizer.ggml.bos_token_id", is_pieces ? 1 : 11, true},
      {"tokenizer.ggml.add_eos_token", "tokenizer.ggml.eos_token_id", is_pieces ? 2 : 11, false}};
  for (const Added& added : kAdded) {
    KVBOUND_ASSIGN_OR_RETURN(const bool is_on, file_.GetBoolOr(added.flag, added.default_flag));
    if (!is_on || file_.Has(added.id_key)) continue;
    const bool has_default = is_pieces || !file_.Has(added.flag);
    if (!has_default || added.default_id >= hparams_.n_vocab) {
      return file_.KeyError(added.id_key, StrCat("a token id, as ", added.flag, " is on"),
                            "no such key: it is missing");
    }
  }
  return Status::Ok();
}

}  // namespace

Status CheckVocabulary(const GgufFile& file, const HParams& hparams) {
  return Checker(file, hparams).Check();
}

}  // namespace kvbound
