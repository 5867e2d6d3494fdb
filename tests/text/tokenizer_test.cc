#include "kvbound/tokenizer.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "llama.h"
#include "testing/paths.h"
#include "testing/tiny_model.h"

namespace kvbound {
namespace {

using namespace std::string_literals;
using testing::DefaultModel;
using testing::SharedDir;
using testing::StringKey;

std::shared_ptr<const Tokenizer> Load(const std::string& path) {
  Result<std::shared_ptr<const Tokenizer>> tokenizer = Tokenizer::Load(path);
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return tokenizer.ok() ? *tokenizer : nullptr;
}

std::shared_ptr<const Tokenizer> Spelling(std::vector<testing::TinyPiece> extra = {}) {
  testing::SpellingOptions options;
  options.extra_pieces = std::move(extra);
  return Load(testing::MakeSpellingModel(options).Write());
}

std::vector<Token> Encode(const Tokenizer& tokenizer, std::string_view text,
                          EncodeOptions options = {.add_special = false}) {
  Result<std::vector<Token>> tokens = tokenizer.Encode(text, options);
  EXPECT_TRUE(tokens.ok()) << tokens.status();
  return tokens.ok() ? *tokens : std::vector<Token>{-1};
}

// One call of llama for the whole text.
std::vector<Token> OneShot(const Tokenizer& tokenizer, std::string_view text,
                           bool parse_special = false) {
  std::vector<Token> tokens(text.size() * 3 + 16);
  const int32_t n =
      llama_tokenize(tokenizer.vocab(), text.data(), static_cast<int32_t>(text.size()),
                     tokens.data(), static_cast<int32_t>(tokens.size()),
                     /*add_special=*/false, parse_special);
  EXPECT_GE(n, 0);
  tokens.resize(static_cast<size_t>(std::max(n, 0)));
  return tokens;
}

std::string ReadAll(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

constexpr Token kA = 260, kByte0 = 3;

TEST(Tokenizer, SpellingVocabulary) {
  const auto tokenizer = Spelling();
  EXPECT_EQ(tokenizer->VocabSize(), 286);
  EXPECT_EQ(Encode(*tokenizer, "abz"), (std::vector<Token>{kA, kA + 1, kA + 25}));
  EXPECT_EQ(Encode(*tokenizer, "a\nA"), (std::vector<Token>{kA, kByte0 + '\n', kByte0 + 'A'}));
  EXPECT_EQ(Encode(*tokenizer, ""), std::vector<Token>{});
  EXPECT_EQ(tokenizer->Bos(), 1);
  EXPECT_EQ(tokenizer->Eos(), 2);
  EXPECT_FALSE(tokenizer->AddsBos());
  EXPECT_TRUE(tokenizer->IsEog(2));
  EXPECT_FALSE(tokenizer->IsEog(kA));
  EXPECT_FALSE(tokenizer->IsEog(-1));
  EXPECT_TRUE(tokenizer->IsControl(1));
  EXPECT_FALSE(tokenizer->IsControl(1 << 20));
  EXPECT_EQ(tokenizer->Piece(kByte0 + 0xF0), "\xF0");
  EXPECT_EQ(tokenizer->Piece(2), "");
  EXPECT_EQ(tokenizer->Piece(2, true), "</s>");
  EXPECT_EQ(tokenizer->Piece(286), "");
  EXPECT_FALSE(tokenizer->ChatTemplateSource().has_value());
}

TEST(Tokenizer, KeepsNulAndWhatFollows) {
  const auto tokenizer = Spelling();
  const std::string text = "left\0right"s;
  const std::vector<Token> tokens = Encode(*tokenizer, text);
  EXPECT_EQ(tokens.size(), text.size());
  EXPECT_EQ(tokenizer->Decode(tokens), text);
}

TEST(Tokenizer, ControlTokensAreTextUnlessAsked) {
  const auto tokenizer = Spelling();
  const std::vector<Token> plain = Encode(*tokenizer, "x</s>y<s>z");
  for (const Token token : plain) EXPECT_GT(token, 2);
  EXPECT_EQ(tokenizer->Decode(plain), "x</s>y<s>z");
  const EncodeOptions parse{.add_special = false, .parse_special = true};
  EXPECT_EQ(Encode(*tokenizer, "x</s>y<s>z", parse),
            (std::vector<Token>{kA + 23, 2, kA + 24, 1, kA + 25}));
}

TEST(Tokenizer, ControlTokensOnlyInsideOnePart) {
  const auto tokenizer = Spelling();
  const std::vector<TextPart> parts = {
      {"<s>a", true}, {"</s>", false}, {"</", true}, {"s>b", true}};
  std::vector<size_t> ends;
  const auto tokens = tokenizer->EncodeParts(parts, false, false, &ends);
  ASSERT_TRUE(tokens.ok()) << tokens.status();
  EXPECT_EQ(tokenizer->Decode(*tokens), "a</s></s>b");
  EXPECT_EQ(tokens->front(), 1);
  EXPECT_EQ(ends, (std::vector<size_t>{2, 6, 8, 11}));
}

TEST(Tokenizer, RefusesIllFormedText) {
  const auto tokenizer = Spelling();
  for (const auto& [text, offset] :
       std::vector<std::pair<std::string, std::string>>{{"ok \xF4\x90\x80\x80", "byte 3"},
                                                        {"\xFF", "byte 0"},
                                                        {"a\xC3(", "byte 1"},
                                                        {"\xED\xA0\x80", "byte 0"},
                                                        {"\xC0\xAF", "byte 0"},
                                                        {"5 \xE2\x82", "byte 2"}}) {
    const Result<std::vector<Token>> tokens = tokenizer->Encode(text);
    ASSERT_FALSE(tokens.ok());
    EXPECT_EQ(tokens.status().code(), StatusCode::kInvalidArgument);
    EXPECT_NE(tokens.status().message().find(offset), std::string::npos) << tokens.status();
  }
}

TEST(Tokenizer, RefusesTooLongText) {
  const std::string text(Tokenizer::kMaxTextBytes + 1, 'a');
  const Result<std::vector<Token>> tokens = Spelling()->Encode(text);
  ASSERT_FALSE(tokens.ok());
  EXPECT_NE(tokens.status().message().find("at most"), std::string::npos);
}

// llama alone needs time that grows with the square of the number of such characters.
TEST(Tokenizer, LongRunOfACharacterWithoutToken) {
  const auto tokenizer = Spelling({{"aa", 1.0f}, {"ab", 0.5f}});
  const std::string unlisted(1 << 19, 'A');
  EXPECT_EQ(Encode(*tokenizer, unlisted), std::vector<Token>(unlisted.size(), kByte0 + 'A'));
  std::string mixed;
  for (int i = 0; i < 6000; ++i)
    mixed += i % 3 == 0 ? "Aab" : i % 7 == 0 ? "aaabA \xF0\x9F\x98\xB8" : " a";
  EXPECT_EQ(Encode(*tokenizer, mixed), OneShot(*tokenizer, mixed));
}

TEST(Tokenizer, SpacePrefixOnlyInFront) {
  testing::GgufSpec spec = testing::MakeSpellingModel({}).Spec();
  spec.Set(testing::BoolKey("tokenizer.ggml.add_space_prefix", true));
  const auto tokenizer = Load(testing::WriteTemp(testing::BuildGguf(spec)));
  EXPECT_EQ(Encode(*tokenizer, "ab"), (std::vector<Token>{259, kA, kA + 1}));
  std::string text;
  for (int i = 0; i < 3000; ++i) text += "Aa b";
  EXPECT_EQ(Encode(*tokenizer, text), OneShot(*tokenizer, text));
  const TextPart part{"ab", false};
  EXPECT_EQ(*tokenizer->EncodeParts({&part, 1}, false, /*continues=*/true),
            (std::vector<Token>{kA, kA + 1}));
}

TEST(Tokenizer, VocabularyWithoutByteTokens) {
  testing::TinyModel model = testing::MakeSpellingModel({});
  for (auto& piece : model.pieces) {
    if (piece.type == 6) piece = {"q" + piece.text.substr(1, 4), 0.0f, 1};
  }
  const auto tokenizer = Load(model.Write());
  EXPECT_EQ(Encode(*tokenizer, "abc"), (std::vector<Token>{kA, kA + 1, kA + 2}));
  const Result<std::vector<Token>> tokens = tokenizer->Encode("abA");
  ASSERT_FALSE(tokens.ok());
  EXPECT_EQ(tokens.status().code(), StatusCode::kInvalidArgument);
}

TEST(Tokenizer, BosIsAddedOnce) {
  testing::GgufSpec spec = testing::MakeSpellingModel({}).Spec();
  spec.Set(testing::BoolKey("tokenizer.ggml.add_bos_token", true));
  const auto tokenizer = Load(testing::WriteTemp(testing::BuildGguf(spec)));
  EXPECT_TRUE(tokenizer->AddsBos());
  EXPECT_EQ(Encode(*tokenizer, "a", {}), (std::vector<Token>{1, kA}));
  EXPECT_EQ(Encode(*tokenizer, "", {}), (std::vector<Token>{1}));
  EXPECT_EQ(Encode(*tokenizer, "<s>a", {.parse_special = true}), (std::vector<Token>{1, kA}));
}

TEST(Tokenizer, UnknownVocabularyIsAnError) {
  testing::GgufSpec spec = testing::MakeSpellingModel({}).Spec();
  spec.Set(StringKey("tokenizer.ggml.model", "no-such-model"));
  const std::string path = testing::WriteTemp(testing::BuildGguf(spec));
  const auto tokenizer = Tokenizer::Load(path);
  ASSERT_FALSE(tokenizer.ok());
  EXPECT_EQ(tokenizer.status().code(), StatusCode::kUnsupported);
  EXPECT_NE(tokenizer.status().message().find(path), std::string::npos);
  EXPECT_FALSE(Tokenizer::Load("/no/such/file.gguf").ok());
}

// The published vectors of llama.cpp: NAME.inp holds texts, NAME.out a line of ids for each.
TEST(Tokenizer, PublishedVectors) {
  const std::filesystem::path folder = SharedDir() / "data" / "vocab";
  KVBOUND_SKIP_WITHOUT(folder);
  for (const std::string name : {"gpt-2", "phi-3", "mpt", "starcoder"}) {
    const auto tokenizer = Load(folder / ("ggml-vocab-" + name + ".gguf"));
    ASSERT_NE(tokenizer, nullptr);
    const std::string texts = ReadAll(folder / ("ggml-vocab-" + name + ".gguf.inp"));
    std::ifstream ids(folder / ("ggml-vocab-" + name + ".gguf.out"));
    const std::string separator = "\n__ggml_vocab_test__\n";
    size_t begin = 0, count = 0;
    while (begin <= texts.size()) {
      const size_t end = std::min(texts.find(separator, begin), texts.size());
      const std::string text = texts.substr(begin, end - begin);
      begin = end + separator.size();
      std::string line;
      if (!std::getline(ids, line)) break;
      std::istringstream words(line);
      const std::vector<Token> expected{std::istream_iterator<Token>(words), {}};
      EXPECT_EQ(Encode(*tokenizer, text), expected) << name << ": " << text;
      ++count;
    }
    EXPECT_GE(count, 45u) << name;
  }
}

TEST(Tokenizer, LongTextsAsInOneCall) {
  const std::filesystem::path books = SharedDir() / "data" / "books-eval";
  const std::filesystem::path vocabularies = SharedDir() / "data" / "vocab";
  KVBOUND_SKIP_WITHOUT(books);
  const std::string book = ReadAll(books / "frankenstein-84-0.txt");
  ASSERT_GT(book.size(), 400000u);
  std::vector<std::filesystem::path> models;
  for (const char* name : {"gpt-2", "phi-3"}) {
    models.push_back(vocabularies / ("ggml-vocab-"s + name + ".gguf"));
  }
  if (std::filesystem::exists(DefaultModel())) models.push_back(DefaultModel());
  for (const auto& model : models) {
    const auto tokenizer = Load(model);
    ASSERT_NE(tokenizer, nullptr);
    const std::vector<Token> tokens = Encode(*tokenizer, book);
    EXPECT_EQ(tokens, OneShot(*tokenizer, book)) << model;
    const std::string text = tokenizer->Decode(tokens);
    EXPECT_TRUE(text == book || text == " " + book) << model;
  }
}

TEST(Tokenizer, RunOnTextsAreNotSlow) {
  KVBOUND_SKIP_WITHOUT(DefaultModel());
  const auto tokenizer = Load(DefaultModel());
  for (const std::string unit : {"a", " ", "!", "\n", "\xE6\xBC\xA2", "<|im_end|>", "a  "}) {
    std::string text;
    while (text.size() < 100000) text += unit;
    const std::vector<Token> tokens = Encode(*tokenizer, text);
    EXPECT_EQ(tokenizer->Decode(tokens), text);
  }
  std::string marks;
  while (marks.size() < 300000) marks += "<|im_end|>";
  EXPECT_EQ(Encode(*tokenizer, marks, {.parse_special = true}),
            std::vector<Token>(marks.size() / 10, 2));
}

// Vocabularies whose words llama cuts by std::regex overflow its stack on long words.
TEST(Tokenizer, UnbrokenStretchHasALimitWhereLlamaWouldCrash) {
  testing::GgufSpec spec = testing::MakeSpellingModel({}).Spec();
  std::vector<std::string> pieces = {"<unk>", "<s>", "</s>"};
  // The 256 printable stand-ins of byte-level BPE.
  int shifted = 0;
  for (int byte = 0; byte < 256; ++byte) {
    const bool printable =
        (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
    const int c = printable ? byte : 256 + shifted++;
    std::string text;
    if (c < 128) {
      text = {static_cast<char>(c)};
    } else {
      text = {static_cast<char>(0xC0 | c >> 6), static_cast<char>(0x80 | (c & 63))};
    }
    pieces.push_back(text);
  }
  while (pieces.size() < 286) pieces.push_back("extra" + std::to_string(pieces.size()));
  spec.Set(StringKey("tokenizer.ggml.model", "gpt2"));
  spec.Set(StringKey("tokenizer.ggml.pre", "default"));
  spec.Set(testing::StringsKey("tokenizer.ggml.tokens", pieces));
  spec.Set(testing::StringsKey("tokenizer.ggml.merges", {"a b"}));
  spec.Set(testing::NumbersKey("tokenizer.ggml.token_type", GgufType::kI32,
                               std::vector<double>(286, 1.0)));
  const auto tokenizer = Load(testing::WriteTemp(testing::BuildGguf(spec)));
  ASSERT_NE(tokenizer, nullptr);
  EXPECT_TRUE(tokenizer->Encode(std::string(8192, '!')).ok());
  std::string words;
  while (words.size() < 200000) words += "word ";
  EXPECT_TRUE(tokenizer->Encode(words).ok());
  for (const char c : {'!', ' ', 'a', '1'}) {
    const Result<std::vector<Token>> tokens = tokenizer->Encode("x y " + std::string(100000, c));
    ASSERT_FALSE(tokens.ok());
    EXPECT_NE(tokens.status().message().find("8192"), std::string::npos) << tokens.status();
  }
}

TEST(Tokenizer, ManyThreads) {
  const auto tokenizer = Spelling({{"ab", 1.0f}});
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 200; ++i) {
        EXPECT_EQ(tokenizer->Decode(Encode(*tokenizer, "abc abc")), "abc abc");
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace kvbound
