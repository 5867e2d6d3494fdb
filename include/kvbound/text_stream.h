#ifndef KVBOUND_TEXT_STREAM_H_
#define KVBOUND_TEXT_STREAM_H_

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kvbound/status.h"

namespace kvbound {

// Turns the pieces of one sequence into text that can be shown at once: every chunk handed out is
// valid UTF-8 by itself, characters that are split over tokens arrive whole, and nothing that may
// still become a stop string is shown too early.
//
// Bytes that are no UTF-8 become one U+FFFD for each maximal ill-formed stretch (the rule of the
// Unicode standard and of web browsers). A character that is incomplete when the text ends is
// such a stretch: it is written once, as a single U+FFFD.
//
// Not thread-safe: one per sequence. Copyable.
class TextStream {
 public:
  // Longest stop string, in bytes, and how many there may be.
  static constexpr size_t kMaxStopBytes = 1024;
  static constexpr size_t kMaxStops = 64;

  // kInvalidArgument for an empty stop string, one that is not valid UTF-8 or beyond the limits.
  static Result<TextStream> Create(std::vector<std::string> stops = {});

  // Appends the bytes of one token. Returns the text that may be shown now, often empty; the view
  // is valid until the next call. Stop strings are looked for after each piece, over token
  // borders; of several, the one that starts first wins, and neither it nor anything behind it is
  // ever shown. After a stop, pieces are ignored.
  std::string_view Push(std::string_view piece);

  // The generation is over (end token, length, cancelled): returns what was held back. Later
  // calls return nothing.
  std::string_view Finish();

  // Whether a stop string was found, and which one (its index in `stops`).
  bool stopped() const { return stopped_; }
  size_t stop_index() const { return stop_index_; }

  // Whether text is held back that Finish() would hand out.
  bool holds_text() const { return !held_.empty() || !partial_.empty(); }

 private:
  explicit TextStream(std::vector<std::string> stops) : stops_(std::move(stops)) {}
  void Emit(std::string_view bytes);

  std::vector<std::string> stops_;
  std::string held_;     // bytes that may be the start of a stop string
  std::string partial_;  // the first bytes of an incomplete character, before held_
  std::string chunk_;    // what the last call returned
  bool stopped_ = false;
  bool finished_ = false;
  size_t stop_index_ = 0;
};

}  // namespace kvbound

#endif  // KVBOUND_TEXT_STREAM_H_
