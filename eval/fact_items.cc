#include "eval/fact_items.h"

#include <algorithm>
#include <iterator>
#include <random>
#include <utility>

#include "src/base/strings.h"

namespace kvbound::eval {
namespace {

using Random = std::mt19937_64;

// The standard's distributions differ from library to library.
int64_t Below(Random& random, int64_t n) {
  return static_cast<int64_t>(random() % static_cast<uint64_t>(n));
}

template <typename Items>
auto Pick(Random& random, const Items& items) {
  return items[Below(random, std::ssize(items))];
}

enum class Value { kNumber, kName, kColour, kBeast };

// {p} stands for a person, {t} for a place, {v} for the value. The answer begins in a paragraph of
// its own and in the needle's words: then even a weak model says what it holds.
struct Frame {
  Value value;
  const char* needle;
  const char* question;
};

constexpr Frame kInventedFrames[] = {
    {Value::kNumber, "The toll that {p} demanded for crossing the river {t} was {v} silver marks.",
     "What toll did {p} demand for crossing the river {t}?\n\n"
     "The toll that {p} demanded for crossing the river {t} was"},
    {Value::kNumber, "The dragon of {t} slept for {v} years until {p} woke it.",
     "How long did the dragon of {t} sleep?\n\nThe dragon of {t} slept for"},
    {Value::kName, "The true name of the wizard of {t} was {v}, and only {p} ever spoke it.",
     "What was the true name of the wizard of {t}?\n\nThe true name of the wizard of {t} was"},
    {Value::kName, "The comet that {p} saw burning over {t} all winter was {v}.",
     "Which comet did {p} see over {t}?\n\nThe comet that {p} saw burning over {t} all winter was"},
    {Value::kColour, "The banner under which {p} conquered {t} was {v}.",
     "What colour was the banner under which {p} conquered {t}?\n\n"
     "The banner under which {p} conquered {t} was"},
    {Value::kBeast, "The beast on the shield of {p}, heir of {t}, was a {v}.",
     "Which beast was on the shield of {p}, heir of {t}?\n\n"
     "The beast on the shield of {p}, heir of {t}, was a"},
};

constexpr const char* kColours[] = {"crimson", "saffron", "indigo", "scarlet",
                                    "amber",   "lilac",   "silver", "emerald"};
constexpr const char* kBeasts[] = {"griffin",   "leopard", "crocodile", "wolverine", "pelican",
                                   "porcupine", "lobster", "elephant",  "vulture",   "camel"};
constexpr const char* kOnsets[] = {"B", "D", "F", "G", "K",  "L",  "M",  "N",  "R",
                                   "S", "T", "V", "Z", "Br", "Dr", "Gr", "Kl", "Tr"};
constexpr const char* kNuclei[] = {"a", "e", "i", "o", "u", "ae", "ia", "or", "el", "an"};
constexpr const char* kMiddles[] = {"l", "m", "n", "r", "v", "z", "rd", "sk", "lm", "nd"};
constexpr const char* kPersonEnds[] = {"ik", "ous", "eth", "ara", "im", "ena", "ulf", "is"};
constexpr const char* kPlaceEnds[] = {"mere", "holm", "gard", "avar", "esk", "oth", "undia"};
constexpr const char* kNameEnds[] = {"ax", "umir", "ozan", "ivel", "ohar", "eska"};

template <typename Ends>
std::string Invent(Random& random, const Ends& ends) {
  std::string name = Pick(random, kOnsets);
  name += Pick(random, kNuclei);
  name += Pick(random, kMiddles);
  name += Pick(random, ends);
  return name;
}

std::string MakeValue(Random& random, Value value) {
  switch (value) {
    case Value::kNumber:
      return std::to_string(100 + Below(random, 900));
    case Value::kName:
      return Invent(random, kNameEnds);
    case Value::kColour:
      return Pick(random, kColours);
    case Value::kBeast:
      return Pick(random, kBeasts);
  }
  return {};
}

std::string Fill(std::string text, std::string_view mark, const std::string& with) {
  for (size_t at; (at = text.find(mark)) != std::string::npos;) text.replace(at, mark.size(), with);
  return text;
}

void SayPassKey(Random& random, FactItem* item) {
  item->answer = std::to_string(10000 + Below(random, 90000));
  item->needle =
      Fill("The pass key is {v}. Remember it. {v} is the pass key.", "{v}", item->answer);
  item->question = "What is the pass key?\n\nThe pass key is";
}

void SayInvented(Random& random, const Frame& frame, FactItem* item) {
  const std::string person = Invent(random, kPersonEnds);
  const std::string place = Invent(random, kPlaceEnds);
  item->answer = MakeValue(random, frame.value);
  const auto fill = [&](const char* text) {
    return Fill(Fill(Fill(text, "{p}", person), "{t}", place), "{v}", item->answer);
  };
  item->needle = fill(frame.needle);
  item->question = fill(frame.question);
}

// The tokens of `text` as it stands inside a longer text.
Result<std::vector<Token>> EncodeInside(const Tokenizer& tokenizer, const std::string& text) {
  const TextPart part{text};
  return tokenizer.EncodeParts({&part, 1}, /*add_special=*/false, /*continues=*/true);
}

// A place in [begin, end]: the end of a sentence near a random place, or that place if there is
// none.
int32_t ChoosePlace(const Tokenizer& tokenizer, std::span<const Token> text, int32_t begin,
                    int32_t end, Random& random) {
  const int32_t chosen = begin + static_cast<int32_t>(Below(random, end - begin + 1));
  const auto ends_sentence = [&](int32_t place) {
    return tokenizer.Piece(text[place - 1]).ends_with('.');
  };
  for (int32_t place = chosen; place <= end; ++place) {
    if (ends_sentence(place)) return place;
  }
  for (int32_t place = chosen - 1; place >= begin; --place) {
    if (ends_sentence(place)) return place;
  }
  return chosen;
}

// Puts needle and question into the window's text.
Status Assemble(const Tokenizer& tokenizer, const TextWindow& window, Random& random,
                FactItem* item) {
  KVBOUND_ASSIGN_OR_RETURN(const std::vector<Token> needle,
                           EncodeInside(tokenizer, "\n\n" + item->needle + "\n\n"));
  KVBOUND_ASSIGN_OR_RETURN(const std::vector<Token> question,
                           EncodeInside(tokenizer, "\n\n" + item->question));
  const int32_t length = static_cast<int32_t>(window.tokens.size());
  const int32_t n_needle = static_cast<int32_t>(needle.size());
  const int32_t n_text = length - n_needle - static_cast<int32_t>(question.size());
  const int32_t last_place = length - kFactDistance - n_needle;
  if (last_place < kFactMargin) {
    return InvalidArgument(StrCat("fact items: expected a length of at least ",
                                  kFactMargin + n_needle + kFactDistance, " tokens, found ",
                                  length));
  }
  const int32_t place = ChoosePlace(tokenizer, window.tokens, kFactMargin, last_place, random);
  item->file = window.file;
  item->needle_begin = place;
  item->needle_end = place + n_needle;
  item->tokens.assign(window.tokens.begin(), window.tokens.begin() + place);
  std::ranges::copy(needle, std::back_inserter(item->tokens));
  item->tokens.insert(item->tokens.end(), window.tokens.begin() + place,
                      window.tokens.begin() + n_text);
  std::ranges::copy(question, std::back_inserter(item->tokens));
  return Status::Ok();
}

}  // namespace

std::string_view FactProbeName(FactProbe probe) {
  return probe == FactProbe::kPassKey ? "pass key" : "invented names";
}

Result<std::vector<FactItem>> MakeFactItems(const Tokenizer& tokenizer,
                                            const std::vector<std::string>& files, FactProbe probe,
                                            const FactItemOptions& options) {
  KVBOUND_ASSIGN_OR_RETURN(const std::vector<TextWindow> windows,
                           CutWindows(tokenizer, files, options.n_item, options.length));
  Random random(options.seed * 2 + (probe == FactProbe::kPassKey ? 0 : 1));
  std::vector<FactItem> items;
  for (size_t i = 0; i < windows.size(); ++i) {
    FactItem& item = items.emplace_back();
    if (probe == FactProbe::kPassKey) {
      SayPassKey(random, &item);
    } else {
      SayInvented(random, kInventedFrames[i % std::size(kInventedFrames)], &item);
    }
    KVBOUND_RETURN_IF_ERROR(Assemble(tokenizer, windows[i], random, &item));
  }
  return items;
}

}  // namespace kvbound::eval
