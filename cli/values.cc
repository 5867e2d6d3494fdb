#include "cli/values.h"

#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <limits>
#include <optional>

#include "src/base/strings.h"

namespace kvbound::cli {
namespace {

template <typename T>
std::optional<T> Number(std::string_view text) {
  T value{};
  const char* end = text.data() + text.size();
  const auto [stopped_at, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stopped_at != end) return std::nullopt;
  return value;
}

struct Unit {
  const char* name;
  double bytes;
};

constexpr std::array<Unit, 10> kUnits = {{{"", 1},
                                          {"B", 1},
                                          {"KiB", 1024.0},
                                          {"MiB", 1048576.0},
                                          {"GiB", 1073741824.0},
                                          {"TiB", 1099511627776.0},
                                          {"kB", 1e3},
                                          {"MB", 1e6},
                                          {"GB", 1e9},
                                          {"TB", 1e12}}};

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

Status Expected(std::string_view expected, std::string_view found) {
  return InvalidArgument(StrCat("expected ", expected, ", found '", Printable(found), "'"));
}

Result<int64_t> ParseInt(std::string_view text, std::string_view what, int64_t min, int64_t max) {
  const auto value = Number<int64_t>(text);
  if (value && *value >= min && *value <= max) return *value;
  const bool open = max >= std::numeric_limits<int32_t>::max() && (!value || *value < min);
  return Expected(open ? StrCat(what, " >= ", min) : StrCat(what, " from ", min, " to ", max),
                  text);
}

Result<float> ParseFloat(std::string_view text, std::string_view what, float min, float max) {
  const auto value = Number<float>(text);
  if (value && std::isfinite(*value) && *value >= min && *value <= max) return *value;
  constexpr float kMost = std::numeric_limits<float>::max();
  if (max < kMost) return Expected(StrCat(what, " from ", min, " to ", max), text);
  return Expected(min > -kMost ? StrCat(what, " >= ", min) : std::string(what), text);
}

Result<uint64_t> ParseSize(std::string_view text) {
  const size_t digits = text.find_first_not_of("0123456789.");
  const std::string_view unit = digits == std::string_view::npos ? "" : text.substr(digits);
  const auto value = Number<double>(text.substr(0, digits));
  for (const Unit& known : kUnits) {
    if (!value || unit != known.name) continue;
    const double bytes = *value * known.bytes;
    if (bytes >= 1 && bytes < 0x1p62) return static_cast<uint64_t>(bytes);
  }
  return Expected("a size such as 64MiB, 1.5GiB or 67108864", text);
}

Result<std::pair<Token, float>> ParseLogitBias(std::string_view text) {
  const size_t sign = text.find_first_of("+-");
  if (sign != std::string_view::npos) {
    const auto token = Number<Token>(text.substr(0, sign));
    const std::string_view number = text.substr(sign + 1);
    const auto bias =
        number == "inf" ? std::numeric_limits<float>::infinity() : Number<float>(number);
    const bool digits = !number.empty() && number[0] != '-';
    if (token && *token >= 0 && bias && digits && !std::isnan(*bias)) {
      return std::pair(*token, text[sign] == '-' ? -*bias : *bias);
    }
  }
  return Expected("TOKEN_ID+BIAS or TOKEN_ID-BIAS", text);
}

Result<std::vector<Token>> ParseTokens(std::string_view text) {
  std::vector<Token> tokens;
  for (std::string_view rest = text;;) {
    const size_t comma = rest.find(',');
    std::string_view item = rest.substr(0, comma);
    while (!item.empty() && item.front() == ' ') item.remove_prefix(1);
    const auto token = Number<Token>(item);
    if (!token || *token < 0) return Expected("token ids such as 1,2,3", text);
    tokens.push_back(*token);
    if (comma == std::string_view::npos) return tokens;
    rest.remove_prefix(comma + 1);
  }
}

std::string Unescape(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\' || i + 1 == text.size()) {
      out += text[i];
      continue;
    }
    constexpr std::string_view kNames = "ntr\\\"'";
    constexpr std::string_view kMeanings = "\n\t\r\\\"'";
    const char name = text[i + 1];
    if (const size_t known = kNames.find(name); known != std::string_view::npos) {
      out += kMeanings[known];
      ++i;
    } else if (name == 'x' && i + 3 < text.size() && HexDigit(text[i + 2]) >= 0 &&
               HexDigit(text[i + 3]) >= 0) {
      out += static_cast<char>(HexDigit(text[i + 2]) * 16 + HexDigit(text[i + 3]));
      i += 3;
    } else {
      out += '\\';
    }
  }
  return out;
}

std::string HumanBytes(uint64_t bytes) {
  constexpr std::array<const char*, 5> kNames = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < kNames.size()) {
    value /= 1024;
    ++unit;
  }
  char text[32];
  std::snprintf(text, sizeof(text), unit == 0 ? "%.0f %s" : "%.2f %s", value, kNames[unit]);
  return text;
}

std::string Grouped(int64_t number) {
  std::string digits = std::to_string(number);
  const int64_t first = number < 0 ? 1 : 0;
  for (int64_t at = static_cast<int64_t>(digits.size()) - 3; at > first; at -= 3) {
    digits.insert(static_cast<size_t>(at), 1, ',');
  }
  return digits;
}

}  // namespace kvbound::cli
