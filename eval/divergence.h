#ifndef KVBOUND_EVAL_DIVERGENCE_H_
#define KVBOUND_EVAL_DIVERGENCE_H_

#include <cstdint>
#include <span>

namespace kvbound::eval {

// A row of logits, summed up.
struct LogitRow {
  int32_t top = 0;     // the most probable token; the lowest of equal ones
  double log_sum = 0;  // log sum exp: log p(v) = logits[v] - log_sum; NaN if a logit is
  float largest = 0;   // logit of `top`; NaN if a logit is
};

// Exponentials in float (relative error below 1e-6), their sum in double.
LogitRow SumUp(std::span<const float> logits);

// The same; also fills weights [n_vocab] with exp(logit - largest logit), proportional to p.
LogitRow SumUp(std::span<const float> logits, std::span<float> weights);

// KL(p || q) in nats, for p and q given by logits; exactly 0 for equal rows. `p_weights` and
// `p_row` are what SumUp made of `p`.
double Divergence(std::span<const float> p, std::span<const float> p_weights, const LogitRow& p_row,
                  std::span<const float> q, const LogitRow& q_row);

}  // namespace kvbound::eval

#endif  // KVBOUND_EVAL_DIVERGENCE_H_
