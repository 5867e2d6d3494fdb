#include "kv/key_rotation.h"

#include <cmath>
#include <cstring>
#include <utility>

#include "base/check.h"

namespace kvbound {

KeyTurner::KeyTurner(KeyRotation rotation, ggml_type type, int32_t head_dim)
    : rotation_(std::move(rotation)),
      type_(type),
      cosines_(head_dim / 2, 1.0f),
      sines_(head_dim / 2, 0.0f),
      values_(head_dim) {
  DCHECK(rotation_.frequencies.size() <= cosines_.size());
}

uint64_t KeyTurner::Bytes(int32_t head_dim) {
  return (2 * uint64_t(head_dim / 2) + head_dim) * sizeof(float);
}

uint64_t KeyTurner::allocated_bytes() const {
  return (cosines_.capacity() + sines_.capacity() + values_.capacity()) * sizeof(float);
}

void KeyTurner::SetDelta(int32_t delta) {
  if (delta == std::exchange(delta_, delta)) return;
  for (size_t j = 0; j < rotation_.frequencies.size(); ++j) {
    const double angle = delta * rotation_.frequencies[j];
    cosines_[j] = static_cast<float>(std::cos(angle));
    sines_[j] = static_cast<float>(std::sin(angle));
  }
}

void KeyTurner::Turn(void* row) {
  const int64_t n = static_cast<int64_t>(values_.size());
  if (type_ == GGML_TYPE_F32) {
    std::memcpy(values_.data(), row, n * sizeof(float));
  } else {
    ggml_get_type_traits(type_)->to_float(row, values_.data(), n);
  }
  const size_t n_pair = rotation_.frequencies.size();
  const size_t step = rotation_.neox ? 1 : 2;        // from pair to pair
  const size_t apart = rotation_.neox ? n_pair : 1;  // within a pair
  for (size_t j = 0; j < n_pair; ++j) {
    float& a = values_[j * step];
    float& b = values_[j * step + apart];
    const float turned = a * cosines_[j] - b * sines_[j];
    b = a * sines_[j] + b * cosines_[j];
    a = turned;
  }
  ggml_quantize_chunk(type_, values_.data(), row, 0, 1, n, nullptr);
}

}  // namespace kvbound
