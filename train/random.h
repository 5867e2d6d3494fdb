#ifndef KVBOUND_TRAIN_RANDOM_H_
#define KVBOUND_TRAIN_RANDOM_H_

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace kvbound::train {

// SplitMix64: the same numbers for a seed on every machine and with every standard library.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}

  // A generator of its own for item `index` of stream `stream`, whatever was drawn before.
  static Random ForItem(uint64_t seed, uint64_t stream, uint64_t index) {
    Random mixed(seed);
    mixed.state_ = mixed.Next() ^ (stream * 0xd1342543de82ef95);
    mixed.state_ = mixed.Next() ^ (index * 0x9e3779b97f4a7c15);
    return Random(mixed.Next());
  }

  uint64_t Next() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }

  // In [0, n). REQUIRES: n > 0.
  uint64_t Below(uint64_t n) { return Next() % n; }

  // In [min, max].
  int64_t Between(int64_t min, int64_t max) {
    return min + static_cast<int64_t>(Below(static_cast<uint64_t>(max - min) + 1));
  }

  // In [0, 1).
  double Unit() { return static_cast<double>(Next() >> 11) * 0x1p-53; }

  // One of `items`. REQUIRES: not empty.
  template <typename Items>
  const auto& Pick(const Items& items) {
    return items[Below(std::size(items))];
  }

  template <typename T>
  void Shuffle(std::vector<T>* items) {
    for (size_t i = items->size(); i > 1; --i) std::swap((*items)[i - 1], (*items)[Below(i)]);
  }

 private:
  uint64_t state_;
};

}  // namespace kvbound::train

#endif  // KVBOUND_TRAIN_RANDOM_H_
