#ifndef KVBOUND_EVAL_BOOTSTRAP_H_
#define KVBOUND_EVAL_BOOTSTRAP_H_

#include <cstdint>
#include <span>

#include "kvbound/status.h"

namespace kvbound::eval {

struct Interval {
  double low = 0;
  double high = 0;
};

struct BootstrapOptions {
  int32_t n_resample = 10000;
  uint64_t seed = 1;
};

// Two methods measured on the same texts.
struct PairedComparison {
  double ratio = 1;  // mean(a) / mean(b); 1 where both are 0
  Interval ratio_95;
  double difference = 0;  // mean(a) - mean(b)
  Interval difference_95;
};

// Paired percentile bootstrap over texts (Efron and Tibshirani, 1993): each resample draws texts
// with replacement and takes both methods' values of them. Intervals hold 95 %; linear between the
// two nearest resamples. The same on every machine for equal input. InvalidArgument: no values,
// or not as many in `a` as in `b`, or no resamples.
Result<PairedComparison> ComparePaired(std::span<const double> a, std::span<const double> b,
                                       const BootstrapOptions& options = {});

// 95 % interval of a share of which n_yes of n were counted (Wilson, 1927). REQUIRES:
// 0 <= n_yes <= n, n > 0.
Interval WilsonInterval(int64_t n_yes, int64_t n);

}  // namespace kvbound::eval

#endif  // KVBOUND_EVAL_BOOTSTRAP_H_
