#include "changes_common.h"

#include <algorithm>
#include <cstring>
#include <iterator>

namespace kvbound::fuzz {
namespace {

using testing::GgufBytes;

// Reads an input from front to back; zeros after its end.
class Input {
 public:
  Input(const uint8_t* data, size_t size) : data_(data), size_(size) {}
  bool Empty() const { return at_ >= size_; }
  uint64_t Number(int n_bytes) {
    uint64_t value = 0;
    for (int i = 0; i < n_bytes; ++i) {
      value |= static_cast<uint64_t>(at_ < size_ ? data_[at_++] : 0) << (8 * i);
    }
    return value;
  }

 private:
  const uint8_t* data_;
  size_t size_;
  size_t at_ = 0;
};

void Overwrite(GgufBytes* bytes, size_t at, uint64_t value, size_t n_bytes) {
  if (at + n_bytes <= bytes->size()) std::memcpy(bytes->data() + at, &value, n_bytes);
}

// One change: a byte, a 32- or 64-bit number, an odd number, a hole, an insertion, an end.
void Change(Input* input, GgufBytes* bytes) {
  static constexpr uint64_t kOdd[] = {0,          1,          7,          0x7FFFFFFF, 0x80000000,
                                      ~0ull,      1ull << 32, 1ull << 61, 1ull << 62, 1ull << 63,
                                      0x7FC00000, 0x7F800000, 0xBF800000};
  const uint64_t kind = input->Number(1);
  const size_t at = input->Number(2);
  if (at > bytes->size()) return;
  const auto place = bytes->begin() + static_cast<std::ptrdiff_t>(at);
  const size_t n = std::min<size_t>(input->Number(1), bytes->size() - at);
  switch (kind % 7) {
    case 0:
      return Overwrite(bytes, at, input->Number(1), 1);
    case 1:
      return Overwrite(bytes, at, input->Number(4), 4);
    case 2:
      return Overwrite(bytes, at, input->Number(8), 8);
    case 3:
      return Overwrite(bytes, at, kOdd[n % std::size(kOdd)], (kind & 128) != 0 ? 8 : 4);
    case 4:
      bytes->erase(place, place + static_cast<std::ptrdiff_t>(n));
      return;
    case 5:
      bytes->insert(place, n, static_cast<uint8_t>(input->Number(1)));
      return;
    default:
      if (n < 16) bytes->resize(at);
  }
}

}  // namespace

GgufBytes MakeBytes(const uint8_t* data, size_t size, const std::vector<GgufBytes>& bases) {
  if (size >= 4 && std::memcmp(data, "GGUF", 4) == 0) return GgufBytes(data, data + size);
  Input input(data, size);
  GgufBytes bytes = bases[input.Number(1) % bases.size()];
  while (!input.Empty()) Change(&input, &bytes);
  bytes.shrink_to_fit();
  return bytes;
}

}  // namespace kvbound::fuzz
