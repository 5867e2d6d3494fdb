#include "eval/bootstrap.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "src/base/strings.h"

namespace kvbound::eval {
namespace {

double Ratio(double a, double b) { return a == 0 && b == 0 ? 1 : a / b; }

double Quantile(const std::vector<double>& sorted, double q) {
  const double at = q * static_cast<double>(sorted.size() - 1);
  const size_t below = static_cast<size_t>(at);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  if (sorted[below] == sorted[above]) return sorted[below];  // both may be infinite
  return sorted[below] + (at - static_cast<double>(below)) * (sorted[above] - sorted[below]);
}

Interval Middle95(std::vector<double>& values) {
  std::ranges::sort(values);
  return {Quantile(values, 0.025), Quantile(values, 0.975)};
}

double Mean(std::span<const double> values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

}  // namespace

Result<PairedComparison> ComparePaired(std::span<const double> a, std::span<const double> b,
                                       const BootstrapOptions& options) {
  if (a.empty() || a.size() != b.size() || options.n_resample < 1) {
    return InvalidArgument(
        StrCat("bootstrap: expected two equal numbers of values and at least one "
               "resample, found ",
               a.size(), ", ", b.size(), " and ", options.n_resample));
  }
  std::mt19937_64 random(options.seed);
  std::vector<double> ratios, differences;
  for (int32_t resample = 0; resample < options.n_resample; ++resample) {
    double sum_a = 0, sum_b = 0;
    for (size_t draw = 0; draw < a.size(); ++draw) {
      const size_t i = random() % a.size();  // the standard's distributions differ by library
      sum_a += a[i];
      sum_b += b[i];
    }
    ratios.push_back(Ratio(sum_a, sum_b));
    differences.push_back((sum_a - sum_b) / static_cast<double>(a.size()));
  }
  PairedComparison comparison;
  comparison.ratio = Ratio(Mean(a), Mean(b));
  comparison.difference = Mean(a) - Mean(b);
  comparison.ratio_95 = Middle95(ratios);
  comparison.difference_95 = Middle95(differences);
  return comparison;
}

Interval WilsonInterval(int64_t n_yes, int64_t n) {
  constexpr double kZ = 1.959963984540054;  // of 95 %
  const double count = static_cast<double>(n);
  const double share = static_cast<double>(n_yes) / count;
  const double scale = 1 + kZ * kZ / count;
  const double centre = (share + kZ * kZ / (2 * count)) / scale;
  const double half =
      kZ / scale * std::sqrt(share * (1 - share) / count + kZ * kZ / (4 * count * count));
  return {std::max(0.0, centre - half), std::min(1.0, centre + half)};
}

}  // namespace kvbound::eval
