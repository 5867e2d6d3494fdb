// What every policy of the registry must do, at every granularity, chunk size and KV type.

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "base/strings.h"
#include "kvbound/session.h"
#include "testing/tiny_engine.h"
#include "testing/tiny_reference.h"

namespace kvbound::testing {
namespace {

constexpr int32_t kBudget = 13;
constexpr int32_t kSinks = 2;
constexpr int32_t kRecent = 3;
constexpr int32_t kPrompt = 47;  // no multiple of a chunk
constexpr int32_t kDecoded = 20;

struct Case {
  PolicyOptions policy;
  int32_t chunk = 8;
  KvType type_k = KvType::kF32;
  KvType type_v = KvType::kF32;
  AttentionPath attention = AttentionPath::kFused;
};

constexpr KvType kTypes[] = {KvType::kF32, KvType::kF16, KvType::kBF16, KvType::kQ8_0,
                             KvType::kQ4_0};
constexpr int32_t kChunks[] = {1, 3, 8, 32};

bool TakesGranularity(const std::string& policy) {
  return policy == "random" || policy == "retention" || policy == "h2o";
}

// Every policy, at every granularity if it can choose.
std::vector<PolicyOptions> Policies() {
  std::vector<PolicyOptions> policies;
  for (const PolicyInfo& info : ListPolicies()) {
    PolicyOptions options;
    options.name = info.name;
    if (!TakesGranularity(info.name)) {
      policies.push_back(options);
      continue;
    }
    for (Granularity g : {Granularity::kShared, Granularity::kPerLayer, Granularity::kPerHead}) {
      options.granularity = g;
      policies.push_back(options);
    }
  }
  return policies;
}

std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (const PolicyOptions& policy : Policies()) {
    for (int32_t chunk : kChunks) {
      for (KvType type : kTypes) cases.push_back({policy, chunk, type, type});
    }
    if (policy.name != "counter-causal-fast" && !TakesGranularity(policy.name)) continue;
    for (KvType k : kTypes) {
      for (KvType v : kTypes) {
        if (k != v) cases.push_back({policy, 8, k, v});
      }
    }
  }
  // The same with ggml's operators.
  for (size_t i = 0, n = cases.size(); i < n; ++i) {
    if (cases[i].policy.name == "h2o") continue;  // they compute no attention mass
    cases.push_back(cases[i]);
    const KvType v = cases[i].type_v;
    const bool block = v == KvType::kQ8_0 || v == KvType::kQ4_0;
    cases.back().attention = block ? AttentionPath::kFlash : AttentionPath::kStock;
  }
  return cases;
}

std::vector<Case> CasesThat(bool (*holds)(const Case&)) {
  std::vector<Case> cases = Cases();
  std::erase_if(cases, [holds](const Case& c) { return !holds(c); });
  return cases;
}

bool Evicts(const Case& c) { return c.policy.name != "none"; }
bool IsExact(const Case& c) { return c.type_k == KvType::kF32 && c.type_v == KvType::kF32; }

std::string ToString(const Case& c) {
  std::string name = c.policy.name;
  if (c.policy.granularity) name += StrCat("_", GranularityName(*c.policy.granularity));
  name += StrCat("_h", c.chunk, "_", KvTypeName(c.type_k), "_", KvTypeName(c.type_v), "_",
                 AttentionPathName(c.attention));
  std::erase_if(name, [](char x) { return x != '_' && !std::isalnum(x); });
  return name;
}

std::string NameOf(const ::testing::TestParamInfo<Case>& info) { return ToString(info.param); }
void PrintTo(const Case& c, std::ostream* out) { *out << ToString(c); }

TinyModel OneOrTwoLayers(int n_layer) {
  TinyModelOptions options;
  options.n_layer = n_layer;
  options.head_dim = 32;  // a block of q8_0 and q4_0
  options.n_embd = 64;
  return MakeTinyModel(options);
}

const std::shared_ptr<const Model>& TwoLayers() {
  static const auto model = LoadTiny(OneOrTwoLayers(2));
  return model;
}

struct OneLayer {
  TinyModel tiny = OneOrTwoLayers(1);
  std::shared_ptr<const Model> model = LoadTiny(tiny);
};

class ConformanceTest : public ::testing::TestWithParam<Case> {
 protected:
  EngineOptions Options(int32_t budget) const {
    EngineOptions options = ExactEngine(GetParam().policy.name, budget, GetParam().chunk);
    options.policy = GetParam().policy;
    options.type_k = GetParam().type_k;
    options.type_v = GetParam().type_v;
    options.attention = GetParam().attention;
    return options;
  }
  bool evicts() const { return Evicts(GetParam()); }
};

class CuttingPolicyTest : public ConformanceTest {};
class ExactCacheTest : public ConformanceTest {};

INSTANTIATE_TEST_SUITE_P(Registry, ConformanceTest, ::testing::ValuesIn(Cases()), NameOf);
INSTANTIATE_TEST_SUITE_P(Registry, CuttingPolicyTest, ::testing::ValuesIn(CasesThat(Evicts)),
                         NameOf);
INSTANTIATE_TEST_SUITE_P(Registry, ExactCacheTest, ::testing::ValuesIn(CasesThat(IsExact)), NameOf);

// Logits after the prompt and after each decoded token.
std::vector<float> AllLogits(Engine& engine, Session& session, const std::vector<Token>& tokens) {
  std::vector<float> all;
  const auto add = [&] {
    const std::vector<float> row = CopyLogits(session);
    all.insert(all.end(), row.begin(), row.end());
  };
  EXPECT_TRUE(session.Feed(std::span(tokens).first(kPrompt)).ok());
  add();
  for (size_t i = kPrompt; i < tokens.size(); ++i) {
    const Status status = StepOne(engine, session, tokens[i]);
    EXPECT_TRUE(status.ok()) << status;
    add();
  }
  return all;
}

TEST_P(ConformanceTest, ABudgetThatHoldsAllEqualsAnUncutRunBitForBit) {
  const std::vector<Token> tokens = TestTokens(kPrompt + 6);
  EngineOptions uncut_options = Options(4 * kPrompt);
  uncut_options.policy = {};
  uncut_options.policy.name = "none";
  const auto uncut_engine = MakeEngine(TwoLayers(), uncut_options);
  const auto uncut = MakeSession(*uncut_engine);
  const auto engine = MakeEngine(TwoLayers(), Options(kPrompt + 6));
  const auto session = MakeSession(*engine);
  EXPECT_TRUE(
      SameBits(AllLogits(*engine, *session, tokens), AllLogits(*uncut_engine, *uncut, tokens)));
  EXPECT_EQ(session->stats().cuts, 0);
  EXPECT_EQ(session->stats().peak_slots, kPrompt + 6);
}

TEST_P(CuttingPolicyTest, NeverAboveBudgetPlusChunkAndExactlyTheBudgetAfterACut) {
  const int32_t chunk = GetParam().chunk;
  const std::vector<Token> tokens = TestTokens(kPrompt + kDecoded);
  const auto engine = MakeEngine(TwoLayers(), Options(kBudget));
  const auto session = MakeSession(*engine, Protected(kSinks, kRecent));
  CutLog log(*session);
  ASSERT_TRUE(session->Feed(std::span(tokens).first(kBudget - 1)).ok());
  ASSERT_TRUE(session->Pin({Position{5}, Position{7}}).ok());
  ASSERT_TRUE(session->Feed(std::span(tokens).subspan(kBudget - 1, kPrompt - kBudget + 1)).ok());
  for (int32_t i = kPrompt; i < kPrompt + kDecoded; ++i) {
    ASSERT_TRUE(StepOne(*engine, *session, tokens[i]).ok());
    const int32_t seen = i + 1;
    ASSERT_LE(session->stats().tokens_kept, kBudget + chunk);
    for (int32_t set = 0; set < session->n_set(); ++set) {
      const std::vector<int32_t> positions = SortedPositions(*session, set);
      ASSERT_EQ(positions.size(), session->positions(0).size());
      if (seen % chunk == 0) {
        ASSERT_EQ(positions.size(), size_t{kBudget});
      }
      for (int32_t p : {0, 1, 5, 6, seen - 3, seen - 2, seen - 1}) {
        ASSERT_TRUE(std::ranges::binary_search(positions, p)) << p << " of " << seen;
      }
      ASSERT_TRUE(std::ranges::adjacent_find(positions) == positions.end());
      for (size_t slot = 0; slot < positions.size(); ++slot) {
        ASSERT_EQ(session->tokens(set)[slot], tokens[session->positions(set)[slot].value]);
      }
    }
  }
  ASSERT_FALSE(log.entries().empty());
  for (const CutLog::Entry& cut : log.entries()) {
    EXPECT_TRUE(cut.tokens_seen % chunk == 0 || cut.tokens_seen == kPrompt) << cut.tokens_seen;
    EXPECT_LE(cut.n_before, kBudget + chunk);
    for (const auto& kept : cut.kept) EXPECT_EQ(kept.size(), size_t{kBudget});
  }
  EXPECT_EQ(session->stats().cuts, static_cast<int64_t>(log.entries().size()));
  EXPECT_EQ(session->stats().tokens_evicted + session->stats().tokens_kept, kPrompt + kDecoded);
  if (chunk < kBudget) {
    EXPECT_EQ(session->stats().peak_slots, kBudget + chunk);
  }
}

// The same again: by another engine, in a session after a Reset, and fed in pieces that end at
// chunks. (The end of a piece is a cut, so pieces that end elsewhere are another run.)
TEST_P(ConformanceTest, ARunIsReproducible) {
  const int32_t chunk = GetParam().chunk;
  const std::vector<Token> tokens = TestTokens(evicts() ? kPrompt + kDecoded : kPrompt);
  const EngineOptions options = Options(evicts() ? kBudget : kPrompt);
  const auto engine = MakeEngine(TwoLayers(), options);
  const auto session = MakeSession(*engine, Protected(kSinks, kRecent));
  CutLog log(*session);
  const std::vector<float> logits = AllLogits(*engine, *session, tokens);

  const auto twin_engine = MakeEngine(TwoLayers(), options);
  const auto twin = MakeSession(*twin_engine, Protected(kSinks, kRecent));
  ASSERT_TRUE(twin->Feed(TestTokens(30 - 30 % chunk + chunk, 9)).ok() || !evicts());
  ASSERT_TRUE(twin->Reset().ok());
  CutLog twin_log(*twin);
  EXPECT_TRUE(SameBits(AllLogits(*twin_engine, *twin, tokens), logits));
  EXPECT_EQ(twin_log.entries(), log.entries());

  ASSERT_TRUE(twin->Reset().ok());
  CutLog pieces_log(*twin);
  const int32_t first = std::min(chunk, kPrompt);
  ASSERT_TRUE(twin->Feed(std::span(tokens).first(first)).ok());
  if (first < kPrompt) {
    ASSERT_TRUE(twin->Feed(std::span(tokens).subspan(first, kPrompt - first)).ok());
  }
  EXPECT_TRUE(SameBits(CopyLogits(*twin), {logits.begin(), logits.begin() + 286}));
  ASSERT_LE(pieces_log.entries().size(), log.entries().size());
  for (size_t i = 0; i < pieces_log.entries().size(); ++i) {
    EXPECT_EQ(pieces_log.entries()[i], log.entries()[i]);
  }
}

// With one layer a key and a value depend on their own token alone, so the logits depend on the
// kept positions alone: this checks rotation, mask, slots and keep sets at once.
TEST_P(ExactCacheTest, OneLayerGivesTheLogitsOfTheKeptPositions) {
  static const OneLayer one;
  const std::vector<Token> tokens = TestTokens(kPrompt + kDecoded);
  const int32_t n_all = static_cast<int32_t>(tokens.size());
  const auto engine = MakeEngine(one.model, Options(evicts() ? kBudget : n_all));
  const auto session = MakeSession(*engine, Protected(kSinks, 0));
  CutLog log(*session);
  ASSERT_TRUE(session->Feed(std::span(tokens).first(kPrompt)).ok());
  std::vector<std::vector<float>> rows = {CopyLogits(*session)};
  for (int32_t i = kPrompt; i < n_all; ++i) {
    ASSERT_TRUE(StepOne(*engine, *session, tokens[i]).ok());
    rows.push_back(CopyLogits(*session));
  }
  const int32_t n_set = session->n_set();
  const ReferenceResult reference =
      ReferenceForward(one.tiny, tokens, {}, [&](int layer, int kv_head, int query, int key) {
        return log.Saw(n_set == 1 ? layer : kv_head, query, key);  // the layer is 0
      });
  for (size_t i = 0; i < rows.size(); ++i) {
    EXPECT_LT(LargestDifference(rows[i], reference.logits[kPrompt - 1 + i]), 1e-3)
        << "after token " << kPrompt - 1 + i;
  }
}

TEST_P(ConformanceTest, AFailedStepLeavesTheSessionAsItWas) {
  const int32_t budget = evicts() ? kBudget : kPrompt + 6;
  const std::vector<Token> tokens = TestTokens(kPrompt + 6);
  const auto engine = MakeEngine(TwoLayers(), Options(budget));
  const auto session = MakeSession(*engine, Protected(kSinks, kRecent));
  const std::vector<float> logits = AllLogits(*engine, *session, tokens);
  ASSERT_TRUE(session->Reset().ok());

  const auto expect_refused = [](const Status& status, StatusCode code) {
    EXPECT_EQ(status.code(), code) << status;
  };
  const std::vector<Token> bad = {tokens[0], 286};
  expect_refused(session->Feed(bad), StatusCode::kInvalidArgument);
  expect_refused(session->Feed({}), StatusCode::kInvalidArgument);
  EXPECT_TRUE(session->logits().empty());
  if (!evicts()) {
    expect_refused(session->Feed(TestTokens(budget + 1)), StatusCode::kOutOfBudget);
  }
  ASSERT_TRUE(session->Feed(std::span(tokens).first(kPrompt)).ok());
  expect_refused(session->Feed(bad), StatusCode::kInvalidArgument);
  expect_refused(StepOne(*engine, *session, -1), StatusCode::kInvalidArgument);
  EXPECT_EQ(session->stats().tokens_seen, kPrompt);
  std::vector<float> again = CopyLogits(*session);
  for (size_t i = kPrompt; i < tokens.size(); ++i) {
    expect_refused(StepOne(*engine, *session, 286), StatusCode::kInvalidArgument);
    ASSERT_TRUE(StepOne(*engine, *session, tokens[i]).ok());
    const std::vector<float> row = CopyLogits(*session);
    again.insert(again.end(), row.begin(), row.end());
  }
  EXPECT_TRUE(SameBits(again, logits));
  if (!evicts()) expect_refused(StepOne(*engine, *session, 1), StatusCode::kOutOfBudget);
}

}  // namespace
}  // namespace kvbound::testing
