#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <set>
#include <string>

#include "train/fact_frames.h"
#include "train/facts.h"

namespace kvbound::train {
namespace {

TEST(FactsTest, StatementsGiveTheirAnswers) {
  Random random(1);
  std::set<std::string> questions;
  for (int i = 0; i < 500; ++i) {
    const auto facts = MakeFacts(&random, 1 + i % 4);
    ASSERT_EQ(facts.size(), static_cast<size_t>(1 + i % 4));
    std::set<std::string> asked;
    for (const Fact& fact : facts) {
      std::string lower = fact.answer;
      std::string statement = fact.statement;
      for (std::string* text : {&lower, &statement}) {
        for (char& c : *text) c = static_cast<char>(std::tolower(c));
      }
      EXPECT_NE(statement.find(lower), std::string::npos) << fact.statement;
      EXPECT_EQ(fact.question.find('{'), std::string::npos) << fact.question;
      EXPECT_EQ(fact.statement.find('{'), std::string::npos) << fact.statement;
      asked.insert(fact.question);
      questions.insert(fact.question);
    }
    EXPECT_EQ(asked.size(), facts.size());
  }
  EXPECT_GT(questions.size(), 1000u);
}

TEST(FactsTest, ManyFramesOfEveryKind) {
  EXPECT_GE(FactFrames().size(), 40u);
  std::set<FactValue> kinds;
  for (const FactFrame& frame : FactFrames()) {
    kinds.insert(frame.value);
    for (const char* statement : frame.statements) {
      EXPECT_NE(std::string(statement).find("{v}"), std::string::npos) << statement;
    }
    EXPECT_EQ(std::string(frame.question).find("{v}"), std::string::npos) << frame.question;
  }
  EXPECT_EQ(kinds.size(), 10u);
}

TEST(FactsTest, WordsOfTheProbesDoNotOccur) {
  Random random(2);
  std::string all;
  for (int i = 0; i < 1000; ++i) {
    const auto facts = MakeFacts(&random, 4);
    const FactQuiz quiz = MakeQuiz(&random, facts);
    all += quiz.heading;
    for (const auto& item : quiz.items) all += item.question + item.answer;
    for (const Fact& fact : facts) all += fact.statement + "\n";
  }
  std::transform(all.begin(), all.end(), all.begin(), [](char c) { return std::tolower(c); });
  for (const char* words : {"pass key", "passkey", "magic number", "remember it", "grass is"}) {
    EXPECT_EQ(all.find(words), std::string::npos) << words;
  }
}

TEST(FactsTest, QuizAsksAllOnceInSomeOrder) {
  Random random(3);
  const auto facts = MakeFacts(&random, 4);
  const FactQuiz quiz = MakeQuiz(&random, facts);
  ASSERT_EQ(quiz.items.size(), 4u);
  for (const Fact& fact : facts) {
    const auto asks = [&](const FactQuiz::Item& item) {
      return item.question.find(fact.question) != std::string::npos &&
             item.answer.find(fact.answer) != std::string::npos;
    };
    EXPECT_EQ(std::count_if(quiz.items.begin(), quiz.items.end(), asks), 1);
  }
}

TEST(FactsTest, SeedDecides) {
  Random a(7), b(7), c(8);
  const auto first = MakeFacts(&a, 3), same = MakeFacts(&b, 3), other = MakeFacts(&c, 3);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(first[i].statement, same[i].statement);
  EXPECT_NE(first[0].statement, other[0].statement);
}

}  // namespace
}  // namespace kvbound::train
