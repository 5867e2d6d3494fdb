#ifndef KVBOUND_TRAIN_FACTS_H_
#define KVBOUND_TRAIN_FACTS_H_

#include <string>
#include <vector>

#include "train/random.h"

namespace kvbound::train {

// Something stated once in a text and asked at its end.
struct Fact {
  std::string statement;  // a sentence, a note or a list that gives the answer
  std::string question;   // which no other fact of the same set answers
  std::string answer;     // a few words, spelled as in the statement
};

// `count` facts about different things: people, places, objects, codes, dates, ... in many frames.
// The wording shares nothing with the probes of eval/.
std::vector<Fact> MakeFacts(Random* random, int count);

// How the questions are put: plain, as a form, as a dialogue. `answers[i]` follows `questions[i]`.
struct FactQuiz {
  struct Item {
    std::string question;  // with the words in front of it
    std::string answer;    // with what ends it
  };
  std::string heading;
  std::vector<Item> items;
};

// All facts asked, in an order of their own.
FactQuiz MakeQuiz(Random* random, const std::vector<Fact>& facts);

}  // namespace kvbound::train

#endif  // KVBOUND_TRAIN_FACTS_H_
