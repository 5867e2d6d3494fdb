#ifndef KVBOUND_CLI_VALUES_H_
#define KVBOUND_CLI_VALUES_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kvbound/status.h"
#include "kvbound/types.h"

// How the values of options are written. Every parser takes the whole text or fails with
// "expected ..., found '...'".
namespace kvbound::cli {

// A whole number in [min, max]; `what` says what it counts ("a number of slots").
Result<int64_t> ParseInt(std::string_view text, std::string_view what, int64_t min, int64_t max);

// A finite number in [min, max].
Result<float> ParseFloat(std::string_view text, std::string_view what, float min, float max);

// Bytes: 64MiB, 1.5GiB, 500MB, 67108864. Units are B, KiB, MiB, GiB, TiB and kB, MB, GB, TB.
Result<uint64_t> ParseSize(std::string_view text);

// TOKEN_ID(+/-)BIAS as llama.cpp writes it: 15043+1, 15043-0.5, 15043-inf (never that token).
Result<std::pair<Token, float>> ParseLogitBias(std::string_view text);

// "1,2,3".
Result<std::vector<Token>> ParseTokens(std::string_view text);

// \n, \t, \r, \\, \", \' and \xHH become the characters they name; other backslashes stay.
std::string Unescape(std::string_view text);

// "94.2 MiB".
std::string HumanBytes(uint64_t bytes);

// "1,234,567".
std::string Grouped(int64_t number);

// The message part of a failure to parse.
Status Expected(std::string_view expected, std::string_view found);

}  // namespace kvbound::cli

#endif  // KVBOUND_CLI_VALUES_H_
