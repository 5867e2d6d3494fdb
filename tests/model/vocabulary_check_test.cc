#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "base/strings.h"
#include "model/hparams.h"
#include "testing/expect_refused.h"
#include "testing/gguf_writer.h"
#include "testing/tiny_model.h"

namespace kvbound {
namespace {

using testing::BoolKey;
using testing::ExpectRefused;
using testing::GgufKey;
using testing::GgufSpec;
using testing::MakeTinyModel;
using testing::NumberKey;
using testing::NumbersKey;
using testing::StringKey;
using testing::StringsKey;
using testing::U32Key;

constexpr int kVocab = 286;
const std::string kTokens = "tokenizer.ggml.tokens";
const std::string kMerges = "tokenizer.ggml.merges";

GgufSpec TinySpec() { return MakeTinyModel().Spec(); }

std::vector<std::string> TinyTokens() {
  std::vector<std::string> tokens;
  for (const testing::TinyPiece& piece : MakeTinyModel().pieces) tokens.push_back(piece.text);
  return tokens;
}

// A byte-pair vocabulary of made-up pieces.
GgufSpec BytePairSpec() {
  std::vector<std::string> tokens;
  for (int i = 0; i < kVocab; ++i) tokens.push_back(StrCat("p", i));
  return TinySpec()
      .Set(StringKey("tokenizer.ggml.model", "gpt2"))
      .Set(StringsKey(kTokens, tokens))
      .Set(StringsKey(kMerges, {"p 1", "p 2"}))
      .Drop("tokenizer.ggml.scores")
      .Drop("tokenizer.ggml.token_type");
}

Status Check(const GgufSpec& spec) {
  const testing::GgufBytes bytes = BuildGguf(spec);
  KVBOUND_ASSIGN_OR_RETURN(const GgufFile file, GgufFile::FromMemory(bytes, "t.gguf"));
  KVBOUND_ASSIGN_OR_RETURN(const HParams hparams, ReadHParams(file));
  return CheckVocabulary(file, hparams);
}

Status CheckWith(GgufKey key) { return Check(TinySpec().Set(std::move(key))); }

Status CheckToken(int id, const std::string& text) {
  std::vector<std::string> tokens = TinyTokens();
  tokens[static_cast<size_t>(id)] = text;
  return CheckWith(StringsKey(kTokens, tokens));
}

TEST(VocabularyCheckTest, AcceptsBothKinds) {
  EXPECT_TRUE(Check(TinySpec()).ok()) << Check(TinySpec());
  EXPECT_TRUE(Check(BytePairSpec()).ok()) << Check(BytePairSpec());
}

TEST(VocabularyCheckTest, RefusesOtherKinds) {
  for (const char* model : {"bert", "t5", "rwkv", "plamo2", "none", "no_vocab", "no-such", ""}) {
    ExpectRefused(CheckWith(StringKey("tokenizer.ggml.model", model)),
                  {"t.gguf", "tokenizer.ggml.model", "llama or gpt2", model});
  }
  ExpectRefused(Check(TinySpec().Drop("tokenizer.ggml.model")),
                {"tokenizer.ggml.model", "missing"});
  ExpectRefused(CheckWith(U32Key("tokenizer.ggml.pre", 1)), {"tokenizer.ggml.pre", "u32"});
}

TEST(VocabularyCheckTest, ChecksTheTokens) {
  ExpectRefused(Check(TinySpec().Drop(kTokens)), {kTokens, "missing"});
  ExpectRefused(CheckWith(NumbersKey(kTokens, GgufType::kU32, {1, 2})), {kTokens, "u32"});
  ExpectRefused(CheckWith(StringKey(kTokens, "a")), {kTokens, "string"});
  ExpectRefused(CheckWith(StringsKey(kTokens, {"a", "b"})), {kTokens, "286", "found 2"});
}

// The library aborts the process on these.
TEST(VocabularyCheckTest, RefusesEntriesThatOccurTwice) {
  ExpectRefused(CheckToken(280, "a"), {kTokens, "'a'", "260", "280"});
  ExpectRefused(CheckToken(280, std::string("a\0x", 3)), {kTokens, "'a'", "260", "280"});
  std::vector<std::string> tokens = TinyTokens();
  tokens[270] = tokens[271] = "";  // the library gives empty entries names of their own
  EXPECT_TRUE(CheckWith(StringsKey(kTokens, tokens)).ok());
  tokens[272] = "[EMPTY_270]";
  ExpectRefused(CheckWith(StringsKey(kTokens, tokens)), {kTokens, "[EMPTY_270]"});
}

TEST(VocabularyCheckTest, RefusesCharactersBeyondUnicode) {
  ExpectRefused(CheckToken(280, "x\xf4\x90\x80\x80"), {kTokens, "U+10FFFF", "280"});
  ExpectRefused(CheckToken(280, "\xf7\x80\x80\x80"), {kTokens, "U+10FFFF"});
  EXPECT_TRUE(CheckToken(280, "\xf4\x8f\xbf\xbf").ok());
}

TEST(VocabularyCheckTest, ChecksScoresAndTypes) {
  const std::string scores = "tokenizer.ggml.scores", types = "tokenizer.ggml.token_type";
  const std::vector<double> zeros(kVocab);
  for (const size_t n : {size_t{0}, size_t{5}, size_t{kVocab - 1}, size_t{kVocab + 1}}) {
    const std::vector<double> values(n);
    ExpectRefused(CheckWith(NumbersKey(scores, GgufType::kF32, values)), {scores, "286"});
    ExpectRefused(CheckWith(NumbersKey(types, GgufType::kI32, values)), {types, "286"});
  }
  ExpectRefused(CheckWith(NumbersKey(scores, GgufType::kF64, zeros)), {scores, "f64"});
  ExpectRefused(CheckWith(NumbersKey(types, GgufType::kU32, zeros)), {types, "u32"});
  EXPECT_TRUE(CheckWith(NumbersKey(scores, GgufType::kI32, zeros)).ok());
  std::vector<double> with_nan = zeros;
  with_nan[7] = std::nan("");
  ExpectRefused(CheckWith(NumbersKey(scores, GgufType::kF32, with_nan)), {scores, "token 7"});
  std::vector<double> all_bytes(kVocab, 6.0);
  ExpectRefused(CheckWith(NumbersKey(types, GgufType::kI32, all_bytes)), {types, "<0x00>"});
}

// The library throws on a byte token of less than three characters, whatever the kind.
TEST(VocabularyCheckTest, ChecksByteTokensOfBytePairs) {
  const std::string types = "tokenizer.ggml.token_type";
  std::vector<double> values(kVocab, 1.0);
  values[5] = 6.0;
  ExpectRefused(Check(BytePairSpec().Set(NumbersKey(types, GgufType::kI32, values))),
                {types, "token 5", "'p5'"});
}

TEST(VocabularyCheckTest, NeedsEveryByteToken) {
  const std::string types = "tokenizer.ggml.token_type";
  const GgufSpec untyped = TinySpec().Drop(types);
  for (const int byte : {0x00, 0x0A, 0x7F, 0xC3, 0xFF}) {
    std::vector<std::string> tokens = TinyTokens();
    tokens[static_cast<size_t>(3 + byte)] = "other";
    char spelled[8];
    std::snprintf(spelled, sizeof(spelled), "<0x%02X>", byte);
    ExpectRefused(Check(GgufSpec(untyped).Set(StringsKey(kTokens, tokens))), {kTokens, spelled});
  }
}

TEST(VocabularyCheckTest, ChecksMerges) {
  ExpectRefused(Check(BytePairSpec().Drop(kMerges)), {kMerges, "missing"});
  ExpectRefused(Check(BytePairSpec().Set(NumbersKey(kMerges, GgufType::kU32, {1}))),
                {kMerges, "u32"});
  for (const char* merge : {"", "ab", " ", "a ", " b"}) {
    ExpectRefused(Check(BytePairSpec().Set(StringsKey(kMerges, {"p 1", merge}))),
                  {kMerges, "element 1"});
  }
}

TEST(VocabularyCheckTest, ChecksSpecialIdsAndFlags) {
  for (const char* name : {"bos", "eos", "eot", "unknown", "padding", "fim_pre", "mask"}) {
    const std::string key = std::string("tokenizer.ggml.") + name + "_token_id";
    ExpectRefused(CheckWith(U32Key(key, kVocab)), {key, "286"});
    ExpectRefused(CheckWith(NumberKey(key, GgufType::kI32, 1)), {key, "u32"});
    EXPECT_TRUE(CheckWith(U32Key(key, kVocab - 1)).ok());
  }
  for (const char* name : {"add_bos_token", "add_eos_token", "add_space_prefix"}) {
    const std::string key = std::string("tokenizer.ggml.") + name;
    ExpectRefused(CheckWith(U32Key(key, 1)), {key, "bool", "u32"});
  }
  ExpectRefused(CheckWith(U32Key("tokenizer.chat_template", 1)),
                {"tokenizer.chat_template", "string"});
  ExpectRefused(CheckWith(StringKey("general.file_type", "f32")), {"general.file_type", "u32"});
}

// The library aborts when it is told to add a token that it does not have.
TEST(VocabularyCheckTest, NeedsTheTokensThatAreAdded) {
  const std::string bos = "tokenizer.ggml.bos_token_id", flag = "tokenizer.ggml.add_bos_token";
  ExpectRefused(Check(BytePairSpec().Drop(bos).Set(BoolKey(flag, true))), {bos, flag, "missing"});
  EXPECT_TRUE(Check(BytePairSpec().Drop(bos).Set(BoolKey(flag, false))).ok());
  EXPECT_TRUE(Check(TinySpec().Drop(bos).Set(BoolKey(flag, true))).ok());  // default id 1
}

}  // namespace
}  // namespace kvbound
