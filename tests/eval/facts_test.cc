#include "eval/facts.h"

#include <gtest/gtest.h>

#include "testing/tiny_engine.h"

namespace kvbound::eval {
namespace {

using testing::LoadTiny;
using testing::MakeSpellingModel;

// Answers with the letters that follow the prompt's last one, whatever was evicted.
std::shared_ptr<const Model> Speller() {
  static const std::shared_ptr<const Model> model = LoadTiny(MakeSpellingModel());
  return model;
}

FactItem Item(const std::string& prompt, const std::string& answer) {
  FactItem item;
  item.answer = answer;
  item.tokens = *Speller()->tokenizer().Encode(prompt);
  return item;
}

FidelityPolicy Policy(const std::string& name, int32_t budget) {
  FidelityPolicy policy;
  policy.label = name;
  policy.policy.name = name;
  policy.protection = {.sinks = 1, .recent = 0, .pin_prompt = false};
  policy.budget = budget;
  return policy;
}

FactOptions Options() {
  FactOptions options;
  options.chunk = 4;
  options.n_predict = 3;
  options.n_threads = 1;
  return options;
}

TEST(Facts, AsksTheUncutCacheAndEveryPolicy) {
  const std::vector<FactItem> items = {Item("abc", "def"), Item("abcdefghijklmnop", "qrs"),
                                       Item("xa", "cde")};
  const auto results =
      MeasureFacts(Speller(), items, {Policy("window", 8), Policy("random", 6)}, Options());
  ASSERT_TRUE(results.ok()) << results.status();
  ASSERT_EQ(results->size(), 3u);
  EXPECT_EQ((*results)[0].label, "uncut");
  EXPECT_EQ((*results)[2].label, "random");
  for (const FactResult& result : *results) {
    EXPECT_EQ(result.texts, (std::vector<std::string>{"def", "qrs", "bcd"}));
    EXPECT_EQ(result.right, (std::vector<uint8_t>{1, 1, 0}));
    EXPECT_EQ(result.n_right(), 2);
  }
}

TEST(Facts, AnEndTokenEndsTheAnswer) {
  testing::SpellingOptions options;
  options.name = "ending";
  options.eos_after = 262;  // 'c'
  const auto model = LoadTiny(MakeSpellingModel(options));
  const auto results = MeasureFacts(model, {Item("xa", "bc")}, {}, Options());
  ASSERT_TRUE(results.ok()) << results.status();
  EXPECT_EQ((*results)[0].texts[0], "bc");
  EXPECT_EQ((*results)[0].n_right(), 1);
}

TEST(Facts, StopsAndRefuses) {
  const std::vector<FactItem> items = {Item("abc", "def"), Item("b", "c")};
  int64_t last = 0;
  ASSERT_TRUE(MeasureFacts(Speller(), items, {Policy("window", 8)}, Options(),
                           [&](int64_t done, int64_t total) {
                             EXPECT_EQ(done, ++last);
                             EXPECT_EQ(total, 4);
                             return true;
                           })
                  .ok());
  EXPECT_EQ(last, 4);
  const auto stopped =
      MeasureFacts(Speller(), items, {}, Options(), [](int64_t, int64_t) { return false; });
  EXPECT_EQ(stopped.status().code(), StatusCode::kCancelled);
  EXPECT_EQ(MeasureFacts(Speller(), {}, {}, Options()).status().code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(MeasureFacts(Speller(), items, {Policy("nothing", 8)}, Options()).status().code(),
            StatusCode::kNotFound);
}

TEST(HoldsAnswer, WantsTheWholeWord) {
  EXPECT_TRUE(HoldsAnswer(" 48213. Remember", "48213"));
  EXPECT_TRUE(HoldsAnswer("48213", "48213"));
  EXPECT_TRUE(HoldsAnswer("it was \"BRAMEL\"", "Bramel"));
  EXPECT_TRUE(HoldsAnswer("148213, 48213", "48213"));
  EXPECT_FALSE(HoldsAnswer("148213", "48213"));
  EXPECT_FALSE(HoldsAnswer("482137", "48213"));
  EXPECT_FALSE(HoldsAnswer("Bramelt", "bramel"));
  EXPECT_FALSE(HoldsAnswer("bramel\xc3\xa9", "bramel"));
  EXPECT_FALSE(HoldsAnswer("", "a"));
}

}  // namespace
}  // namespace kvbound::eval
