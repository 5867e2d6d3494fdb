#ifndef KVBOUND_TRAIN_FACT_FRAMES_H_
#define KVBOUND_TRAIN_FACT_FRAMES_H_

#include <span>

namespace kvbound::train {

// What a frame's answer is made of.
enum class FactValue {
  kDigits,  // 3 to 7 digits
  kCode,    // letters and digits: "RT-4081", "7K2M"
  kWord,    // a common noun
  kWords,   // two of them: "copper lantern"
  kDate,    // "14 March 1927", "March 14", "the 3rd of June"
  kPlace,   // a town
  kColour,  // "dark green"
  kTime,    // "6:45", "a quarter past nine"
  kAmount,  // "348 dollars", "27 kilograms"
  kPerson,  // first and last name
};

// In the texts, {p} stands for a person, {t} for a town, {o} for an object, {w} for a workplace and
// {v} for the value.
struct FactFrame {
  FactValue value;
  const char* statements[2];
  const char* question;
};

std::span<const FactFrame> FactFrames();

struct FactWords {
  std::span<const char*const> first_names, last_names, towns, objects, workplaces, nouns,
      adjectives, colours, shades, months, units;
};
const FactWords& Words();

}  // namespace kvbound::train

#endif  // KVBOUND_TRAIN_FACT_FRAMES_H_
