#include "kvbound/text_stream.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "text/utf8.h"

namespace kvbound {
namespace {

using namespace std::string_literals;

const std::string kCat = "\xF0\x9F\x98\xB8";
const std::string kMark = "\xEF\xBF\xBD";

struct Output {
  std::vector<std::string> chunks;  // without empty ones
  std::string text;
  bool stopped = false;
};

Output Play(TextStream stream, const std::vector<std::string>& pieces) {
  Output output;
  const auto take = [&](std::string_view chunk) {
    EXPECT_EQ(FindInvalidUtf8(chunk), std::string::npos) << chunk;
    if (!chunk.empty()) output.chunks.emplace_back(chunk);
    output.text += chunk;
  };
  for (const std::string& piece : pieces) {
    take(stream.Push(piece));
    if (stream.stopped()) break;
  }
  take(stream.Finish());
  EXPECT_FALSE(stream.holds_text());
  EXPECT_EQ(stream.Finish(), "");
  output.stopped = stream.stopped();
  return output;
}

TextStream Make(std::vector<std::string> stops = {}) {
  Result<TextStream> stream = TextStream::Create(std::move(stops));
  EXPECT_TRUE(stream.ok()) << stream.status();
  return *std::move(stream);
}

// What the spelling models say after 'a': single letters, the cat byte by byte, a newline, again.
std::vector<std::string> Spelled(size_t n, const std::string& model = "spell") {
  std::vector<std::string> cycle;
  for (char c = 'b'; c <= 'z'; ++c) cycle.push_back({c});
  if (model == "spell-st") {
    cycle.erase(cycle.begin() + ('s' - 'b'), cycle.begin() + ('u' - 'b'));
    cycle.insert(cycle.begin() + ('s' - 'b'), "st");
  } else {
    for (const char byte : kCat) cycle.push_back({byte});
    cycle.push_back("\n");
  }
  cycle.push_back("a");
  if (model == "spell-eos") cycle.resize('n' - 'b');
  std::vector<std::string> pieces;
  while (pieces.size() < n && (model != "spell-eos" || pieces.size() < cycle.size())) {
    pieces.push_back(cycle[pieces.size() % cycle.size()]);
  }
  return pieces;
}

const std::string kAlphabet = "bcdefghijklmnopqrstuvwxyz";

TEST(TextStream, CharactersOverTokens) {
  EXPECT_EQ(Play(Make(), Spelled(25)).text, kAlphabet);
  EXPECT_EQ(Play(Make(), Spelled(26)).text, kAlphabet + kMark);
  EXPECT_EQ(Play(Make(), Spelled(28)).text, kAlphabet + kMark);
  const Output whole = Play(Make(), Spelled(29));
  EXPECT_EQ(whole.text, kAlphabet + kCat);
  EXPECT_EQ(whole.chunks.size(), 26u);
  EXPECT_EQ(whole.chunks.back(), kCat);
  EXPECT_EQ(Play(Make(), Spelled(30)).text, kAlphabet + kCat + "\n");
}

TEST(TextStream, IllFormedBytesBecomeOneMarkPerStretch) {
  EXPECT_EQ(Play(Make(), {"a\xFF", "b"}).text, "a" + kMark + "b");
  EXPECT_EQ(Play(Make(), {"\xF0", "\x9F", "x"}).text, kMark + "x");
  EXPECT_EQ(Play(Make(), {"\x80\x80"}).text, kMark + kMark);
  EXPECT_EQ(Play(Make(), {"\xED", "\xA0", "\x80", "."}).text, kMark + kMark + kMark + ".");
  EXPECT_EQ(Play(Make(), {"a\0b"s}).text, "a\0b"s);
}

struct StopCase {
  std::string model;
  size_t n;
  std::vector<std::string> stops;
  std::string output;
};

TEST(TextStream, StopStringsOverTokenBorders) {
  const std::vector<StopCase> cases = {
      {"spell", 40, {"hij"}, "bcdefg"},
      {"spell", 40, {"g"}, "bcdef"},
      {"spell", 40, {"hix"}, kAlphabet + kCat + "\nabcdefghij"},
      {"spell", 8, {"hijk"}, "bcdefghi"},
      {"spell", 40, {"klm", "jkl"}, "bcdefghi"},
      {"spell", 40, {"xyz", "yz" + kCat}, "bcdefghijklmnopqrstuvw"},
      {"spell", 40, {kCat}, kAlphabet},
      {"spell", 40, {"z" + kCat + "\na"}, "bcdefghijklmnopqrstuvwxy"},
      {"spell-st", 27, {"tu"}, "bcdefghijklmnopqrs"},
      {"spell-st", 27, {"t"}, "bcdefghijklmnopqrs"},
      {"spell-eos", 40, {"xyz"}, "bcdefghijklm"},
      {"spell-eos", 40, {"lmn"}, "bcdefghijklm"},
      {"spell", 0, {"b"}, ""},
  };
  for (const StopCase& c : cases) {
    const std::vector<std::string> pieces = Spelled(c.n, c.model);
    const Output streamed = Play(Make(c.stops), pieces);
    EXPECT_EQ(streamed.text, c.output) << c.model << " " << c.stops[0];
    std::string joined;
    for (const std::string& piece : pieces) joined += piece;
    EXPECT_EQ(Play(Make(c.stops), {joined}).text, c.output) << c.model << " " << c.stops[0];
  }
}

TEST(TextStream, ReportsWhichStopAndIgnoresWhatFollows) {
  TextStream stream = Make({"zz", "yes", "no"});
  EXPECT_EQ(stream.Push("say n"), "say ");
  EXPECT_TRUE(stream.holds_text());
  EXPECT_EQ(stream.Push("o yes"), "");
  EXPECT_TRUE(stream.stopped());
  EXPECT_EQ(stream.stop_index(), 2u);
  EXPECT_EQ(stream.Push("more"), "");
  EXPECT_EQ(stream.Finish(), "");
}

TEST(TextStream, HoldsBackNoMoreThanNeeded) {
  TextStream stream = Make({"aab"});
  EXPECT_EQ(stream.Push("a"), "");
  EXPECT_EQ(stream.Push("a"), "");
  EXPECT_EQ(stream.Push("a"), "a");
  EXPECT_EQ(stream.Push("c"), "aac");
  EXPECT_EQ(stream.Push("aa"), "");
  EXPECT_EQ(stream.Finish(), "aa");
}

TEST(TextStream, IncompleteCharacterBeforeAStop) {
  EXPECT_EQ(Play(Make({"STOP"}), {"a\xE2", "\x82", "STOP"}).text, "a" + kMark);
}

TEST(TextStream, RefusesBadStops) {
  for (const std::vector<std::string>& stops : {std::vector<std::string>{""},
                                                {"a", ""},
                                                {"\xC3"},
                                                {std::string(1025, 'x')},
                                                std::vector<std::string>(65, "x")}) {
    const Result<TextStream> stream = TextStream::Create(stops);
    ASSERT_FALSE(stream.ok());
    EXPECT_EQ(stream.status().code(), StatusCode::kInvalidArgument);
    EXPECT_NE(stream.status().message().find("stop string"), std::string::npos);
  }
}

}  // namespace
}  // namespace kvbound
