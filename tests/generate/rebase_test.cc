// Texts that go past the position limit: every policy, granularity, KV type and attention.

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "base/strings.h"
#include "kvbound/session.h"
#include "testing/expect_refused.h"
#include "testing/rope_log.h"
#include "testing/tiny_engine.h"
#include "testing/tiny_reference.h"

namespace kvbound::testing {
namespace {

constexpr int32_t kPrompt = 61;  // no multiple of a chunk
constexpr int32_t kDecoded = 30;
constexpr int32_t kNoLimit = 1 << 20;

struct Case {
  PolicyOptions policy;
  int32_t budget = 8;
  KvType type = KvType::kF32;
  AttentionPath attention = AttentionPath::kFused;

  int32_t chunk() const { return budget / 2 + 1; }
  int32_t limit() const { return 2 * budget + 3; }  // every second or third cut rebases
};

std::string ToString(const Case& c) {
  std::string name = c.policy.name;
  if (c.policy.granularity) name += StrCat("_", GranularityName(*c.policy.granularity));
  name += StrCat("_J", c.budget, "_", KvTypeName(c.type), "_", AttentionPathName(c.attention));
  std::ranges::replace(name, '-', '_');
  return name;
}
void PrintTo(const Case& c, std::ostream* out) { *out << ToString(c); }
std::string NameOf(const ::testing::TestParamInfo<Case>& info) { return ToString(info.param); }

std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (const PolicyInfo& info : ListPolicies()) {
    if (!info.evicts) continue;
    std::vector<std::optional<Granularity>> granularities = {std::nullopt};
    if (info.name == "random" || info.name == "retention" || info.name == "h2o") {
      granularities = {Granularity::kShared, Granularity::kPerLayer, Granularity::kPerHead};
    }
    for (const auto& granularity : granularities) {
      for (const int32_t budget : {8, 16}) {
        for (const KvType type :
             {KvType::kF32, KvType::kF16, KvType::kBF16, KvType::kQ8_0, KvType::kQ4_0}) {
          Case c{{}, budget, type, AttentionPath::kFused};
          c.policy.name = info.name;
          c.policy.granularity = granularity;
          cases.push_back(c);
          if (info.needs_attention_mass) continue;
          const bool block = type == KvType::kQ8_0 || type == KvType::kQ4_0;
          c.attention = block ? AttentionPath::kFlash : AttentionPath::kStock;
          cases.push_back(c);
        }
      }
    }
  }
  return cases;
}

TinyModelOptions ModelOptionsOf(Arch arch) {
  TinyModelOptions options;
  options.arch = arch;
  options.head_dim = 32;  // a block of q8_0 and q4_0
  options.n_embd = 64;
  options.n_rot = arch == Arch::kQwen3 ? 20 : 0;
  return options;
}

struct TwoLayers {
  TinyModel tiny = MakeTinyModel(ModelOptionsOf(Arch::kLlama));
  std::shared_ptr<const Model> model = LoadTiny(tiny);
};

class RebaseTest : public ::testing::TestWithParam<Case> {
 protected:
  EngineOptions Options(int32_t limit) const {
    EngineOptions options =
        ExactEngine(GetParam().policy.name, GetParam().budget, GetParam().chunk());
    options.policy = GetParam().policy;
    options.type_k = options.type_v = GetParam().type;
    options.attention = GetParam().attention;
    options.position_limit = limit;
    return options;
  }
};

INSTANTIATE_TEST_SUITE_P(Registry, RebaseTest, ::testing::ValuesIn(Cases()), NameOf);

// A run and its rows of logits: after the prompt and after each decoded token.
struct Ran {
  std::unique_ptr<Engine> engine;
  std::unique_ptr<Session> session;
  std::unique_ptr<CutLog> log;
  std::vector<std::vector<float>> rows;
};

Ran RunText(std::shared_ptr<const Model> model, const EngineOptions& options,
            const std::vector<Token>& tokens, const SessionOptions& protection) {
  Ran run;
  run.engine = MakeEngine(std::move(model), options);
  run.session = MakeSession(*run.engine, protection);
  run.log = std::make_unique<CutLog>(*run.session);
  EXPECT_TRUE(run.session->Feed(std::span(tokens).first(kPrompt)).ok());
  run.rows.push_back(CopyLogits(*run.session));
  for (size_t i = kPrompt; i < tokens.size(); ++i) {
    const Status status = StepOne(*run.engine, *run.session, tokens[i]);
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_LE(run.session->next_rope_position().value, options.position_limit);
    run.rows.push_back(CopyLogits(*run.session));
  }
  return run;
}

// Largest difference of a run's logits from plain loops over what it kept, where it kept it.
double OracleError(const TinyModel& tiny, const Ran& run, const std::vector<Token>& tokens,
                   int32_t limit) {
  const int32_t n_set = run.session->n_set(), n_kv_head = tiny.options.n_kv_head;
  const RopeLog rope(*run.log, n_set, run.engine->options().chunk, limit);
  EXPECT_EQ(run.session->stats().rebases, rope.n_rebase());
  const auto set_of = [&](int layer, int kv_head) {
    return n_set == 1 ? 0 : n_set == tiny.options.n_layer ? layer : layer * n_kv_head + kv_head;
  };
  const ReferenceResult reference = ReferenceForward(
      tiny, tokens, {},
      [&](int layer, int kv_head, int query, int key) {
        return run.log->Saw(set_of(layer, kv_head), query, key);
      },
      [&](int layer, int kv_head, int query, int key) {
        return query - rope.Distance(set_of(layer, kv_head), query, key);
      });
  double worst = 0;
  for (size_t i = 0; i < run.rows.size(); ++i) {
    worst = std::max(worst, LargestDifference(run.rows[i], reference.logits[kPrompt - 1 + i]));
  }
  return worst;
}

TEST_P(RebaseTest, LogitsAreThoseOfTheOracle) {
  static const TwoLayers model;
  const std::vector<Token> tokens = TestTokens(kPrompt + kDecoded);
  const Case& c = GetParam();
  const Ran run = RunText(model.model, Options(c.limit()), tokens, Protected(2, 2));
  EXPECT_GE(run.session->stats().rebases, 4);
  const double error = OracleError(model.tiny, run, tokens, c.limit());
  if (c.type == KvType::kF32) {
    EXPECT_LT(error, 1e-3);
    return;
  }
  // Other types round keys and values; each turn of a key rounds once more.
  const Ran still = RunText(model.model, Options(kNoLimit), tokens, Protected(2, 2));
  EXPECT_EQ(still.session->stats().rebases, 0);
  EXPECT_LT(error, 4 * OracleError(model.tiny, still, tokens, kNoLimit));
}

TEST_P(RebaseTest, SlotsSayWhereTheirKeysAre) {
  static const TwoLayers model;
  const std::vector<Token> tokens = TestTokens(kPrompt + kDecoded);
  const Ran run = RunText(model.model, Options(GetParam().limit()), tokens, Protected(2, 2));
  const Session& session = *run.session;
  const RopeLog rope(*run.log, session.n_set(), GetParam().chunk(), GetParam().limit());
  const auto n_token = static_cast<int32_t>(tokens.size());
  for (int32_t set = 0; set < session.n_set(); ++set) {
    for (size_t slot = 0; slot < session.positions(set).size(); ++slot) {
      EXPECT_EQ(session.rope_positions(set)[slot].value,
                rope.Seen(set, n_token, session.positions(set)[slot].value));
    }
  }
  EXPECT_EQ(session.next_rope_position().value, rope.Fed(n_token));
}

TEST_P(RebaseTest, BelowTheLimitNothingChanges) {
  static const TwoLayers model;
  const std::vector<Token> tokens = TestTokens(kPrompt + kDecoded);
  EngineOptions original = Options(0);
  original.positions = PositionMode::kOriginal;
  // At the limit exactly, and with the context of the model (128).
  const int32_t chunk = GetParam().chunk();
  const int32_t last_chunk_end = (kPrompt + kDecoded + chunk - 1) / chunk * chunk + chunk;
  for (const int32_t limit : {last_chunk_end, 0}) {
    const Ran a = RunText(model.model, Options(limit == 0 ? 128 : limit), tokens, Protected(2, 2));
    original.position_limit = 0;
    const auto engine = MakeEngine(model.model, original);
    const auto session = MakeSession(*engine, Protected(2, 2));
    ASSERT_TRUE(session->Feed(std::span(tokens).first(kPrompt)).ok());
    EXPECT_TRUE(SameBits(CopyLogits(*session), a.rows[0]));
    for (int32_t i = 0; i < kDecoded; ++i) {
      ASSERT_TRUE(StepOne(*engine, *session, tokens[kPrompt + i]).ok());
      EXPECT_TRUE(SameBits(CopyLogits(*session), a.rows[1 + i])) << i;
    }
    EXPECT_EQ(a.session->stats().rebases, 0);
    EXPECT_EQ(session->next_rope_position().value, kPrompt + kDecoded);
  }
}

// RoPE knows distances alone. Where a window slides, a rebase moves all keys by one constant, so
// logits must stay, whatever pairing, factors and scaling the model has.
void ExpectWindowStays(const std::shared_ptr<const Model>& model, AttentionPath attention) {
  EngineOptions options = ExactEngine("window", 12, 5);
  options.attention = attention;
  options.position_limit = 23;
  const std::vector<Token> tokens = TestTokens(kPrompt + kDecoded);
  const Ran moved = RunText(model, options, tokens, {});
  EXPECT_GE(moved.session->stats().rebases, 8);
  options.position_limit = kNoLimit;
  const Ran still = RunText(model, options, tokens, {});
  EXPECT_EQ(still.session->stats().rebases, 0);
  for (size_t i = 0; i < moved.rows.size(); ++i) {
    EXPECT_LT(LargestDifference(moved.rows[i], still.rows[i]), 1e-4) << i;
  }
}

TEST(RebaseWindowTest, MovingAllKeysByAConstantChangesNothing) {
  for (const AttentionPath attention :
       {AttentionPath::kFused, AttentionPath::kStock, AttentionPath::kFlash}) {
    for (const Arch arch : {Arch::kLlama, Arch::kQwen2, Arch::kQwen3}) {
      ExpectWindowStays(LoadTiny(MakeTinyModel(ModelOptionsOf(arch))), attention);
    }
    TinyModelOptions scaled = ModelOptionsOf(Arch::kLlama);
    scaled.rope_scale = 4.0f;
    ExpectWindowStays(LoadTiny(MakeTinyModel(scaled)), attention);
    TinyModelOptions factors = ModelOptionsOf(Arch::kQwen2);
    for (int pair = 0; pair < 16; ++pair) factors.rope_factors.push_back(1.0f + pair / 4.0f);
    ExpectWindowStays(LoadTiny(MakeTinyModel(factors)), attention);
    GgufSpec yarn = MakeTinyModel(ModelOptionsOf(Arch::kLlama)).Spec();
    yarn.Set(StringKey("llama.rope.scaling.type", "yarn"))
        .Set(F32Key("llama.rope.scaling.factor", 4.0f))
        .Set(U32Key("llama.rope.scaling.original_context_length", 32));
    Result<std::shared_ptr<const Model>> model =
        Model::Load(WriteTemp(BuildGguf(yarn), "yarn.gguf"), {});
    ASSERT_TRUE(model.ok()) << model.status();
    ExpectWindowStays(*model, attention);
  }
}

TEST(RebaseSessionTest, SequencesOfABatchRebaseEachInItsOwnTime) {
  static const TwoLayers model;
  EngineOptions options = ExactEngine("h2o", 9, 4);
  options.position_limit = 21;
  options.n_seq = 3;
  const auto engine = MakeEngine(model.model, options);
  options.n_seq = 1;
  struct Twin {
    std::unique_ptr<Session> batched;
    std::unique_ptr<Engine> engine;
    std::unique_ptr<Session> alone;
  };
  std::vector<Twin> twins(3);
  for (int i = 0; i < 3; ++i) {
    const std::vector<Token> prompt = TestTokens(5 + 9 * i, i + 1);
    twins[i] = {MakeSession(*engine), MakeEngine(model.model, options), nullptr};
    twins[i].alone = MakeSession(*twins[i].engine);
    ASSERT_TRUE(twins[i].batched->Feed(prompt).ok());
    ASSERT_TRUE(twins[i].alone->Feed(prompt).ok());
  }
  for (int step = 0; step < 60; ++step) {
    const std::vector<Token> tokens = TestTokens(3, 100 + step);
    std::vector<Session*> batch;
    for (Twin& twin : twins) batch.push_back(twin.batched.get());
    ASSERT_TRUE(engine->Step(batch, tokens).ok());
    for (int i = 0; i < 3; ++i) {
      ASSERT_TRUE(StepOne(*twins[i].engine, *twins[i].alone, tokens[i]).ok());
      ASSERT_LT(LargestDifference(CopyLogits(*twins[i].batched), CopyLogits(*twins[i].alone)), 1e-4)
          << "sequence " << i << ", step " << step;
      ASSERT_EQ(twins[i].batched->next_rope_position(), twins[i].alone->next_rope_position());
    }
  }
  for (const Twin& twin : twins) EXPECT_GE(twin.batched->stats().rebases, 4);
}

TEST(RebaseSessionTest, ResultsDoNotDependOnThreads) {
  static const TwoLayers model;
  EngineOptions options = ExactEngine("counter-causal-fast", 16, 5);
  options.type_k = options.type_v = KvType::kF16;
  options.position_limit = 31;
  const std::vector<Token> tokens = TestTokens(kPrompt + kDecoded);
  const Ran one = RunText(model.model, options, tokens, Protected(2, 2));
  options.n_threads = 3;
  EXPECT_EQ(RunText(model.model, options, tokens, Protected(2, 2)).rows, one.rows);
}

TEST(RebaseSessionTest, PinnedSlotsGoDownToTheFirstPositions) {
  static const TwoLayers model;
  EngineOptions options = ExactEngine("random", 12, 4);
  options.position_limit = 24;
  const auto engine = MakeEngine(model.model, options);
  const auto session = MakeSession(*engine, Protected(0, 0));
  ASSERT_TRUE(session->Feed(TestTokens(8)).ok());
  ASSERT_TRUE(session->Pin({Position{3}, Position{7}}).ok());
  ASSERT_TRUE(session->Feed(TestTokens(400, 2)).ok());
  EXPECT_GT(session->stats().rebases, 20);
  for (int32_t set = 0; set < session->n_set(); ++set) {
    for (size_t slot = 0; slot < session->positions(set).size(); ++slot) {
      const int32_t position = session->positions(set)[slot].value;
      if (position < 3 || position >= 7) continue;
      EXPECT_EQ(session->rope_positions(set)[slot].value, position - 3);
    }
  }
}

TEST(RebaseSessionTest, CutEventsTellOfRebases) {
  static const TwoLayers model;
  EngineOptions options = ExactEngine("streaming", 12, 4);
  options.position_limit = 24;
  const auto engine = MakeEngine(model.model, options);
  const auto session = MakeSession(*engine);
  std::vector<int64_t> at;
  session->SetCutObserver([&](const CutEvent& event) {
    if (event.rebases) at.push_back(event.tokens_seen);
  });
  ASSERT_TRUE(session->Feed(TestTokens(60)).ok());
  // 24 positions hold 12 that are kept and three chunks.
  EXPECT_EQ(at, (std::vector<int64_t>{24, 36, 48, 60}));
  EXPECT_EQ(session->stats().rebases, 4);
  ASSERT_TRUE(session->Reset().ok());
  EXPECT_EQ(session->stats().rebases, 0);
  EXPECT_EQ(session->next_rope_position().value, 0);
}

TEST(RebaseOptionsTest, TheLimitIsTheTrainedContextOrWhatTheSlotsNeed) {
  static const TwoLayers model;
  const auto limit_of = [&](int32_t budget, int32_t chunk, int32_t limit) {
    EngineOptions options = ExactEngine("streaming", budget, chunk);
    options.position_limit = limit;
    const auto engine = MakeEngine(model.model, options);
    EXPECT_EQ(engine->plan().position_limit, engine->options().position_limit);
    return engine->options().position_limit;
  };
  EXPECT_EQ(limit_of(16, 8, 0), 128);
  EXPECT_EQ(limit_of(124, 30, 0), 154);
  EXPECT_EQ(limit_of(16, 8, 24), 24);
  EXPECT_EQ(limit_of(16, 8, 5000), 5000);
}

TEST(RebaseOptionsTest, LimitsThatCannotBeKeptAreRefused) {
  static const TwoLayers model;
  EngineOptions options = ExactEngine("streaming", 16, 8);
  options.position_limit = 23;
  ExpectRefused(Engine::Create(model.model, options).status(),
                {"position_limit", "at least budget + chunk = 24", "found 23"});
  options.position_limit = -1;
  ExpectRefused(Engine::Create(model.model, options).status(), {"position_limit", "found -1"});
  options.position_limit = 100;
  options.positions = PositionMode::kOriginal;
  ExpectRefused(Engine::Create(model.model, options).status(),
                {"position_limit", "positions original", "found 100"});
}

}  // namespace
}  // namespace kvbound::testing
