// log beta of every token, as the engine's graphs compute it, against plain loops.

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include "model/gate_op.h"
#include "testing/random_gates.h"
#include "testing/tiny_engine.h"
#include "testing/tiny_reference.h"

namespace kvbound::testing {
namespace {

constexpr int32_t kTokens = 21;

double Activate(GateActivation activation, double x) {
  switch (activation) {
    case GateActivation::kSilu:
      return x / (1 + std::exp(-x));
    case GateActivation::kGelu:
      return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0)));
    case GateActivation::kRelu:
      return std::max(x, 0.0);
  }
  return x;
}

std::vector<double> Apply(const GateLinear& linear, const std::vector<double>& x) {
  const std::vector<float> w = linear.weight.ToFloats();
  std::vector<double> y(linear.bias.begin(), linear.bias.end());
  for (size_t o = 0; o < y.size(); ++o) {
    for (size_t i = 0; i < x.size(); ++i) y[o] += double{w[o * x.size() + i]} * x[i];
  }
  return y;
}

// What the first layer's gate reads, from the token alone.
std::vector<double> FirstInput(const TinyModel& tiny, Token token) {
  std::vector<double> x = ReferencePass(tiny).Embedding(token);
  double sum = 0;
  for (double value : x) sum += value * value;
  const double scale = 1 / std::sqrt(sum / x.size() + tiny.rms_eps);
  const std::vector<float>& gain = tiny.Values("blk.0.attn_norm.weight");
  for (size_t i = 0; i < x.size(); ++i) x[i] *= scale * gain[i];
  return x;
}

std::vector<double> FirstLogBeta(const TinyModel& tiny, const Gates& gates, Token token) {
  const GateLayer& layer = gates.parts().layers[0];
  std::vector<double> x = FirstInput(tiny, token);
  for (const GateLinear& hidden : layer.hidden) {
    x = Apply(hidden, x);
    for (double& value : x) value = Activate(gates.parts().activation, value);
  }
  x = Apply(layer.output, x);
  for (double& value : x) value = -std::log1p(std::exp(-value));
  return x;
}

// log beta of the first layer at a cut: [n_kv_head][position], from a session that was fed and
// stepped; NaN for positions that had been evicted.
std::vector<std::vector<double>> CutLogBeta(Engine& engine, Session& session,
                                            const std::vector<Token>& tokens) {
  std::vector<std::vector<double>> rows;
  session.SetCutObserver([&](const CutEvent& event) {
    rows.assign(event.n_kv_head, std::vector<double>(tokens.size(), std::nan("")));
    for (int32_t head = 0; head < event.n_kv_head; ++head) {
      const size_t base = size_t(head) * event.n_before;
      for (int32_t slot = 0; slot < event.n_before; ++slot) {
        const Position p =
            event.positions[(event.granularity == Granularity::kPerHead ? base : 0) + slot];
        rows[head][p.value] = event.log_beta[base + slot];
      }
    }
  });
  EXPECT_TRUE(session.Feed(std::span(tokens).first(tokens.size() - 4)).ok());
  for (size_t i = tokens.size() - 4; i < tokens.size(); ++i) {
    EXPECT_TRUE(StepOne(engine, session, tokens[i]).ok());
  }
  return rows;
}

struct Case {
  RandomGatesOptions gates;
  Granularity granularity = Granularity::kPerHead;
  double tolerance = 1e-5;
  int32_t chunk = 3;
  int32_t last_cut = 11;  // slots that it finds: budget + chunk, or what the last pass leaves
};

void ExpectReference(const Case& c) {
  const TinyModel tiny = MakeTinyModel();
  const auto model = LoadTiny(tiny);
  const auto gates = MakeRandomGates(*model, c.gates);
  EngineOptions options = ExactEngine("retention", 8, c.chunk);
  options.gates = gates;
  options.policy.granularity = c.granularity;
  const auto engine = MakeEngine(model, options);
  const auto session = MakeSession(*engine);
  const std::vector<Token> tokens = TestTokens(kTokens);
  const auto rows = CutLogBeta(*engine, *session, tokens);
  ASSERT_EQ(rows.size(), 2u);
  int n_seen = 0;
  for (size_t i = 0; i < tokens.size(); ++i) {
    const std::vector<double> expected = FirstLogBeta(tiny, *gates, tokens[i]);
    for (size_t head = 0; head < rows.size(); ++head) {
      if (std::isnan(rows[head][i])) continue;
      EXPECT_NEAR(rows[head][i], expected[head], c.tolerance) << "head " << head << ", token " << i;
      EXPECT_LT(rows[head][i], 0);
      ++n_seen;
    }
  }
  EXPECT_EQ(n_seen, 2 * c.last_cut);
}

TEST(LogBetaTest, EqualsPlainLoopsBehindCutsForEveryGranularity) {
  for (Granularity g : {Granularity::kShared, Granularity::kPerLayer, Granularity::kPerHead}) {
    ExpectReference({{}, g});
  }
}

TEST(LogBetaTest, EqualsPlainLoopsForEveryShapeActivationAndType) {
  for (GateActivation a : {GateActivation::kSilu, GateActivation::kGelu, GateActivation::kRelu}) {
    ExpectReference({{.activation = a}});
    ExpectReference({{.hidden = {64, 32}, .activation = a}});
  }
  ExpectReference({{.hidden = {40}, .tied_output = true}});
  ExpectReference({{.type = GateType::kF16}, Granularity::kPerHead, 2e-2});
  ExpectReference({{.type = GateType::kQ8_0}, Granularity::kPerHead, 1e-1});
}

// Few tokens take one operator in parts of hidden units, many take products of whole matrices.
TEST(LogBetaTest, IsTheSameForFewTokensAndForMany) {
  for (int32_t chunk : {1, int32_t{kGateOpTokens}}) {
    ExpectReference({.gates = {.hidden = {64}}, .chunk = chunk, .last_cut = 9});
    ExpectReference({.gates = {.hidden = {40}}, .chunk = chunk, .last_cut = 9});
    ExpectReference(
        {.gates = {.type = GateType::kQ8_0}, .tolerance = 1e-1, .chunk = chunk, .last_cut = 9});
  }
}

// Beta itself would round to 1.
TEST(LogBetaTest, ASaturatedGateStillForgets) {
  const auto model = LoadTiny(MakeTinyModel());
  RandomGatesOptions saturated;
  saturated.output_bias = 40.0f;
  EngineOptions options = ExactEngine("retention", 8, 3);
  options.gates = MakeRandomGates(*model, saturated);
  const auto engine = MakeEngine(model, options);
  const auto session = MakeSession(*engine);
  for (const auto& row : CutLogBeta(*engine, *session, TestTokens(kTokens))) {
    for (double value : row) {
      EXPECT_TRUE(std::isnan(value) || (-1e-14 < value && value < 0)) << value;
    }
  }
}

TEST(LogBetaTest, ABatchGivesEachSequenceItsOwn) {
  const auto model = LoadTiny(MakeTinyModel());
  EngineOptions options = ExactEngine("retention", 8, 3);
  options.n_seq = 3;
  const auto engine = MakeEngine(model, options);
  std::vector<std::unique_ptr<Session>> sessions;
  std::vector<Session*> batch;
  for (int i = 0; i < 3; ++i) {
    sessions.push_back(MakeSession(*engine));
    ASSERT_TRUE(sessions[i]->Feed(TestTokens(9, i + 1)).ok());
    batch.push_back(sessions[i].get());
  }
  std::vector<std::vector<std::vector<int32_t>>> kept(3);
  for (int step = 0; step < 12; ++step) {
    std::vector<Token> tokens;
    for (int i = 0; i < 3; ++i) tokens.push_back(TestTokens(12, 10 + i)[step]);
    ASSERT_TRUE(engine->Step(batch, tokens).ok());
  }
  for (int i = 0; i < 3; ++i) {
    EngineOptions alone_options = ExactEngine("retention", 8, 3);
    const auto alone_engine = MakeEngine(model, alone_options);
    const auto alone = MakeSession(*alone_engine);
    ASSERT_TRUE(alone->Feed(TestTokens(9, i + 1)).ok());
    for (Token token : TestTokens(12, 10 + i)) {
      ASSERT_TRUE(StepOne(*alone_engine, *alone, token).ok());
    }
    for (int32_t set = 0; set < alone->n_set(); ++set) {
      EXPECT_EQ(SortedPositions(*sessions[i], set), SortedPositions(*alone, set))
          << i << " " << set;
    }
  }
}

}  // namespace
}  // namespace kvbound::testing
