#include "eval/divergence.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>

namespace kvbound::eval {
namespace {

// Sums run in this many lanes, which a compiler turns into vectors without being allowed to
// reorder a float sum; a block's lanes are then added in double.
constexpr size_t kLanes = 16;
constexpr size_t kBlock = 512;
using Lanes = std::array<float, kLanes>;

double Total(const Lanes& lanes) {
  double total = 0;
  for (const float lane : lanes) total += lane;
  return total;
}

// Sum of term(i) over [0, n).
template <typename Term>
double Sum(size_t n, const Term& term) {
  double sum = 0;
  size_t i = 0;
  while (i + kLanes <= n) {
    const size_t end = std::min(i + kBlock, n);
    Lanes lanes = {};
    for (; i + kLanes <= end; i += kLanes) {
      for (size_t lane = 0; lane < kLanes; ++lane) lanes[lane] += term(i + lane);
    }
    sum += Total(lanes);
  }
  for (; i < n; ++i) sum += term(i);
  return sum;
}

// e^x for x <= 0, without a branch: the polynomial of Cephes' expf. Below -87 as at -87.
inline float Exp(float x) {
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it rounds to a whole number
  x = x < -87.0f ? -87.0f : x;
  const float shifted = x * 1.44269504088896341f + kRound;
  const float n = shifted - kRound;
  const float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
  float y = 1.9875691500e-4f;
  y = y * r + 1.3981999507e-3f;
  y = y * r + 8.3334519073e-3f;
  y = y * r + 4.1665795894e-2f;
  y = y * r + 1.6666665459e-1f;
  y = y * r + 5.0000001201e-1f;
  y = y * r * r + r + 1.0f;
  const int32_t exponent = (std::bit_cast<int32_t>(shifted) - 0x4b400000 + 127) << 23;
  return y * std::bit_cast<float>(exponent);
}

float Largest(std::span<const float> values) {
  Lanes lanes;
  lanes.fill(values[0]);
  size_t i = 0;
  for (; i + kLanes <= values.size(); i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      lanes[lane] = values[i + lane] > lanes[lane] ? values[i + lane] : lanes[lane];
    }
  }
  float largest = *std::max_element(lanes.begin(), lanes.end());
  for (; i < values.size(); ++i) largest = std::max(largest, values[i]);
  return largest;
}

LogitRow MakeRow(std::span<const float> logits, float largest, double sum) {
  LogitRow row;
  row.top = static_cast<int32_t>(std::find(logits.begin(), logits.end(), largest) - logits.begin());
  row.largest = largest;
  row.log_sum = largest + std::log(sum);
  return row;
}

}  // namespace

LogitRow SumUp(std::span<const float> logits) {
  const float largest = Largest(logits);
  const float* z = logits.data();
  return MakeRow(logits, largest,
                 Sum(logits.size(), [=](size_t i) { return Exp(z[i] - largest); }));
}

LogitRow SumUp(std::span<const float> logits, std::span<float> weights) {
  const float largest = Largest(logits);
  for (size_t i = 0; i < logits.size(); ++i) weights[i] = Exp(logits[i] - largest);
  const float* w = weights.data();
  return MakeRow(logits, largest, Sum(logits.size(), [=](size_t i) { return w[i]; }));
}

double Divergence(std::span<const float> p, std::span<const float> p_weights, const LogitRow& p_row,
                  std::span<const float> q, const LogitRow& q_row) {
  const float *a = p.data(), *b = q.data(), *w = p_weights.data();
  const double difference = Sum(p.size(), [=](size_t i) { return w[i] * (a[i] - b[i]); });
  // The weights sum to exp(log_sum - largest).
  return difference * std::exp(p_row.largest - p_row.log_sum) - p_row.log_sum + q_row.log_sum;
}

}  // namespace kvbound::eval
