#ifndef KVBOUND_KV_KEY_ROTATION_H_
#define KVBOUND_KV_KEY_ROTATION_H_

#include <cstdint>
#include <span>
#include <vector>

#include "ggml.h"

namespace kvbound {

// How RoPE turns a key: pair j by frequencies[j] radians for each position.
struct KeyRotation {
  bool neox = false;                // pairs (j, j + n_rot / 2); else (2 j, 2 j + 1)
  std::vector<double> frequencies;  // [n_rot / 2]; empty: keys are not rotated
};

// Turns stored keys on by whole positions, in place. Rotations add up, so a key that is turned by
// a difference stands where RoPE would have put it, but for one more rounding to its type.
// Allocates in its constructor only.
class KeyTurner {
 public:
  // Rows of `head_dim` values of a type that KvType has. REQUIRES: 2 * frequencies.size() <=
  // head_dim.
  KeyTurner(KeyRotation rotation, ggml_type type, int32_t head_dim);
  static uint64_t Bytes(int32_t head_dim);  // what the constructor allocates
  uint64_t allocated_bytes() const;

  // By how many positions the next rows are turned.
  void SetDelta(int32_t delta);
  void Turn(void* row);

 private:
  KeyRotation rotation_;
  ggml_type type_;
  int32_t delta_ = 0;
  std::vector<float> cosines_, sines_;  // [head_dim / 2], of delta_
  std::vector<float> values_;           // [head_dim], of one row
};

}  // namespace kvbound

#endif  // KVBOUND_KV_KEY_ROTATION_H_
