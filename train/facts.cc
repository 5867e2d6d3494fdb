#include "train/facts.h"

#include <algorithm>
#include <cstdio>
#include <set>
#include <string_view>
#include <utility>

#include "base/strings.h"
#include "train/fact_frames.h"

namespace kvbound::train {
namespace {

std::string Digits(Random* random, int64_t n) {
  std::string digits(1, static_cast<char>('1' + random->Below(9)));
  while (static_cast<int64_t>(digits.size()) < n) {
    digits += static_cast<char>('0' + random->Below(10));
  }
  return digits;
}

char Letter(Random* random) { return static_cast<char>('A' + random->Below(26)); }

std::string Code(Random* random) {
  switch (random->Below(4)) {
    case 0:
      return StrCat(Letter(random), Letter(random), "-", Digits(random, random->Between(3, 4)));
    case 1:
      return StrCat(Letter(random), Letter(random), " ", Digits(random, random->Between(3, 4)));
    case 2:
      return StrCat(Digits(random, 2), Letter(random), Digits(random, 2), Letter(random));
    default:
      return StrCat(Digits(random, 3), "-", Letter(random), Letter(random), Letter(random));
  }
}

std::string Ordinal(int64_t day) {
  const char* ending = day % 10 == 1 && day != 11   ? "st"
                       : day % 10 == 2 && day != 12 ? "nd"
                       : day % 10 == 3 && day != 13 ? "rd"
                                                    : "th";
  return StrCat(day, ending);
}

std::string Date(Random* random) {
  const int64_t day = random->Between(1, 28);
  const char* month = random->Pick(Words().months);
  switch (random->Below(3)) {
    case 0:
      return StrCat(day, " ", month, " ", random->Between(1840, 2020));
    case 1:
      return StrCat(month, " ", day);
    default:
      return StrCat("the ", Ordinal(day), " of ", month);
  }
}

std::string Time(Random* random) {
  static constexpr const char* kHours[] = {"one",   "two",   "three", "four", "five",   "six",
                                           "seven", "eight", "nine",  "ten",  "eleven", "twelve"};
  static constexpr const char* kParts[] = {"a quarter past", "half past", "a quarter to"};
  if (random->Below(3) == 0) return StrCat(random->Pick(kParts), " ", random->Pick(kHours));
  char clock[16];
  std::snprintf(clock, sizeof(clock), "%d:%02d", static_cast<int>(random->Between(1, 23)),
                static_cast<int>(random->Below(12) * 5));
  return clock;
}

std::string Person(Random* random) {
  return StrCat(random->Pick(Words().first_names), " ", random->Pick(Words().last_names));
}

std::string Value(Random* random, FactValue kind) {
  const FactWords& words = Words();
  switch (kind) {
    case FactValue::kDigits:
      return Digits(random, random->Between(3, 7));
    case FactValue::kCode:
      return Code(random);
    case FactValue::kWord:
      return random->Pick(words.nouns);
    case FactValue::kWords:
      return StrCat(random->Pick(words.adjectives), " ", random->Pick(words.nouns));
    case FactValue::kDate:
      return Date(random);
    case FactValue::kPlace:
      return random->Pick(words.towns);
    case FactValue::kColour:
      return random->Below(2) == 0
                 ? std::string(random->Pick(words.colours))
                 : StrCat(random->Pick(words.shades), " ", random->Pick(words.colours));
    case FactValue::kTime:
      return Time(random);
    case FactValue::kAmount:
      return StrCat(Digits(random, random->Between(2, 4)), " ", random->Pick(words.units));
    case FactValue::kPerson:
      return Person(random);
  }
  return "";
}

// The values of the marks of one frame.
struct Filling {
  std::string person, town, object, workplace, value;

  std::string Apply(std::string_view pattern) const {
    std::string text;
    while (!pattern.empty()) {
      const size_t mark = std::min(pattern.find('{'), pattern.size());
      text += pattern.substr(0, mark);
      pattern.remove_prefix(mark);
      if (pattern.empty()) break;
      text += Of(pattern[1]);
      pattern.remove_prefix(3);
    }
    return text;
  }

 private:
  const std::string& Of(char mark) const {
    switch (mark) {
      case 'p':
        return person;
      case 't':
        return town;
      case 'o':
        return object;
      case 'w':
        return workplace;
      default:
        return value;
    }
  }
};

std::string Capital(std::string text) {
  if (!text.empty() && text[0] >= 'a' && text[0] <= 'z') text[0] = static_cast<char>(text[0] - 32);
  return text;
}

// A list that names the fact's thing once: "Notes\n- ...".
std::string Dressed(Random* random, const std::string& sentence) {
  static constexpr const char* kHeads[] = {
      "Note: ", "By the way: ",         "From the diary: ", "For the record: ", "Notice. ", "P.S. ",
      "(",      "Someone had written: "};
  static constexpr const char* kFillers[] = {"Bring an umbrella.", "Buy bread and milk.",
                                             "Water the plants.",  "Answer the mail.",
                                             "Sweep the yard.",    "Call the plumber."};
  switch (random->Below(6)) {
    case 0: {
      const std::string head = random->Pick(kHeads);
      return StrCat(head, sentence, head == "(" ? ")" : "");
    }
    case 1:
      return StrCat("Things to note:\n- ", random->Pick(kFillers), "\n- ", sentence, "\n- ",
                    random->Pick(kFillers));
    case 2:
      return StrCat("1. ", random->Pick(kFillers), "\n2. ", sentence);
    default:
      return sentence;
  }
}

Fact MakeFact(Random* random, const FactFrame& frame) {
  const FactWords& words = Words();
  Filling filling;
  filling.person = Person(random);
  filling.town = random->Pick(words.towns);
  filling.object = random->Pick(words.objects);
  filling.workplace = random->Pick(words.workplaces);
  do {
    filling.value = Value(random, frame.value);
  } while (filling.value == filling.town || filling.value == filling.person);
  const std::string sentence = Capital(filling.Apply(random->Pick(frame.statements)));
  return {Dressed(random, sentence), filling.Apply(frame.question), filling.value};
}

}  // namespace

std::vector<Fact> MakeFacts(Random* random, int count) {
  std::vector<Fact> facts;
  std::set<const FactFrame*> used;
  while (static_cast<int>(facts.size()) < count) {
    const FactFrame& frame = random->Pick(FactFrames());
    // Now and then two facts share a frame: then only the names tell them apart.
    if (!used.insert(&frame).second && random->Below(4) != 0) continue;
    Fact fact = MakeFact(random, frame);
    const bool asked = std::any_of(facts.begin(), facts.end(), [&](const Fact& other) {
      return other.question == fact.question;
    });
    if (!asked) facts.push_back(std::move(fact));
  }
  return facts;
}

FactQuiz MakeQuiz(Random* random, const std::vector<Fact>& facts) {
  struct Form {
    const char *heading, *before, *between, *after;
  };
  static constexpr Form kForms[] = {
      {"\n\n", "Question: ", "\nAnswer: ", "\n"},
      {"\n\n", "Q: ", "\nA: ", "\n\n"},
      {"\n\nQuestions about the text\n\n", "", " ", "\n"},
      {"\n\nAnswer from the text above.\n", "- ", " -> ", "\n"},
      {"\n\n", "USER: ", "\nSYSTEM: ", "\n"},
      {"\n\n", "Reader: ", "\nAuthor: It is ", ".\n"},
      {"\n\nTest\n", "", "\nThe answer is ", ".\n"},
      {"\n\n", "\"", "\" - \"", "\"\n"},
  };
  std::vector<const Fact*> order;
  for (const Fact& fact : facts) order.push_back(&fact);
  random->Shuffle(&order);
  const Form& form = random->Pick(kForms);
  FactQuiz quiz;
  quiz.heading = form.heading;
  for (const Fact* fact : order) {
    // The space goes with the answer, as tokenizers have it.
    std::string between = form.between;
    std::string answer = fact->answer;
    if (between.ends_with(' ')) {
      between.pop_back();
      answer = " " + answer;
    }
    quiz.items.push_back(
        {StrCat(form.before, fact->question, between), StrCat(answer, form.after)});
  }
  return quiz;
}

}  // namespace kvbound::train
