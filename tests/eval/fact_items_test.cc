#include "eval/fact_items.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <set>

#include "testing/tiny_engine.h"

namespace kvbound::eval {
namespace {

using testing::LoadTiny;
using testing::MakeTinyModel;

constexpr FactProbe kProbes[] = {FactProbe::kPassKey, FactProbe::kInvented};

const Tokenizer& Tiny() {
  static const std::shared_ptr<const Model> model = LoadTiny(MakeTinyModel());
  return model->tokenizer();
}

std::string Book() {
  static const std::string path = [] {
    const std::string file = ::testing::TempDir() + "fact_items_book.txt";
    std::ofstream out(file, std::ios::binary);
    for (int i = 0; i < 1500; ++i) out << "The sea was calm " << i << " times. ";
    return file;
  }();
  return path;
}

Result<std::vector<FactItem>> Make(FactProbe probe, FactItemOptions options) {
  return MakeFactItems(Tiny(), {Book()}, probe, options);
}

FactItemOptions Options(int32_t n_item = 12, int32_t length = 900, uint64_t seed = 1) {
  return {n_item, length, seed};
}

size_t CountOf(const std::string& text, const std::string& part) {
  size_t n = 0;
  for (size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++n;
  return n;
}

TEST(FactItems, StateTheFactOnceAndAskAtTheEnd) {
  for (const FactProbe probe : kProbes) {
    const auto items = Make(probe, Options());
    ASSERT_TRUE(items.ok()) << items.status();
    ASSERT_EQ(items->size(), 12u);
    for (const FactItem& item : *items) {
      SCOPED_TRACE(item.needle);
      EXPECT_EQ(item.tokens.size(), 900u);
      const std::string text = Tiny().Decode(item.tokens);
      EXPECT_EQ(CountOf(text, item.needle), 1u);
      EXPECT_TRUE(text.ends_with("\n\n" + item.question)) << text.substr(text.size() - 200);
      EXPECT_EQ(CountOf(text, item.answer), CountOf(item.needle, item.answer));
      EXPECT_EQ(CountOf(item.needle, item.answer), probe == FactProbe::kPassKey ? 2u : 1u);
      EXPECT_EQ(item.needle.find('{'), std::string::npos);
      EXPECT_EQ(item.question.find('{'), std::string::npos);
    }
  }
}

TEST(FactItems, NeedleStandsWhereTheItemSays) {
  for (const FactProbe probe : kProbes) {
    const auto items = Make(probe, Options());
    ASSERT_TRUE(items.ok());
    std::set<int32_t> places;
    for (const FactItem& item : *items) {
      const std::span<const Token> needle =
          std::span(item.tokens).subspan(item.needle_begin, item.needle_end - item.needle_begin);
      EXPECT_EQ(Tiny().Decode(needle), "\n\n" + item.needle + "\n\n");
      EXPECT_GE(item.needle_begin, kFactMargin);
      EXPECT_LE(item.needle_end, 900 - kFactDistance);
      EXPECT_EQ(Tiny().Piece(item.tokens[item.needle_begin - 1]), ".");
      places.insert(item.needle_begin);
    }
    EXPECT_GT(places.size(), 6u);
  }
}

TEST(FactItems, DependOnTheSeedAlone) {
  for (const FactProbe probe : kProbes) {
    const auto first = Make(probe, Options()), again = Make(probe, Options());
    const auto other = Make(probe, Options(12, 900, 2));
    ASSERT_TRUE(first.ok() && again.ok() && other.ok());
    for (size_t i = 0; i < first->size(); ++i) {
      EXPECT_EQ((*first)[i].tokens, (*again)[i].tokens);
      EXPECT_EQ((*first)[i].answer, (*again)[i].answer);
      EXPECT_NE((*first)[i].needle, (*other)[i].needle);
    }
  }
}

TEST(FactItems, AnswersDiffer) {
  const auto keys = Make(FactProbe::kPassKey, Options());
  std::set<std::string> answers;
  for (const FactItem& item : *keys) {
    EXPECT_EQ(item.answer.size(), 5u);
    EXPECT_TRUE(std::ranges::all_of(item.answer, [](char c) { return c >= '0' && c <= '9'; }));
    answers.insert(item.answer);
  }
  EXPECT_EQ(answers.size(), keys->size());
  std::set<std::string> questions;
  const auto invented = Make(FactProbe::kInvented, Options());
  for (const FactItem& item : *invented) {
    questions.insert(item.question);
  }
  EXPECT_EQ(questions.size(), keys->size());
}

TEST(FactItems, RefuseBadInput) {
  const auto too_short = Make(FactProbe::kPassKey, Options(2, 380));
  ASSERT_FALSE(too_short.ok());
  EXPECT_EQ(too_short.status().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(too_short.status().message().find("expected a length of at least "), std::string::npos);
  EXPECT_FALSE(Make(FactProbe::kPassKey, Options(0)).ok());
  EXPECT_EQ(Make(FactProbe::kPassKey, Options(1000)).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(MakeFactItems(Tiny(), {"/no/such.txt"}, FactProbe::kPassKey, Options()).status().code(),
            StatusCode::kNotFound);
}

}  // namespace
}  // namespace kvbound::eval
