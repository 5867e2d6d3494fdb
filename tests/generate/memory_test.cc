// Memory is arithmetic: what is planned is what is allocated, and a cycle allocates nothing.

#include "kvbound/memory.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "base/strings.h"
#include "testing/alloc_counter.h"
#include "testing/expect_refused.h"
#include "testing/malloc_counter.h"
#include "testing/random_gates.h"
#include "testing/tiny_engine.h"

namespace kvbound::testing {
namespace {

constexpr KvType kTypes[] = {KvType::kF32, KvType::kF16, KvType::kBF16, KvType::kQ8_0,
                             KvType::kQ4_0};

TinyModel WideHeads() {
  TinyModelOptions options;
  options.head_dim = 32;
  options.n_embd = 64;
  options.n_ff = 64;
  return MakeTinyModel(options);
}

struct Loaded {
  std::string path = WideHeads().Write();
  std::shared_ptr<const Model> model = *Model::Load(path, {});
};

const Loaded& Wide() {
  static const Loaded loaded;
  return loaded;
}

EngineOptions WideEngine(const std::string& policy, int32_t budget, int32_t chunk) {
  static const std::shared_ptr<const Gates> gates = MakeRandomGates(*Wide().model);
  EngineOptions options = ExactEngine(policy, budget, chunk);
  options.gates = gates;
  return options;
}

void ExpectSamePlans(const MemoryPlan& planned, const MemoryPlan& found, const std::string& what) {
  ASSERT_EQ(planned.parts.size(), found.parts.size());
  for (size_t i = 0; i < planned.parts.size(); ++i) {
    EXPECT_EQ(planned.parts[i].name, found.parts[i].name);
    EXPECT_EQ(planned.parts[i].bytes, found.parts[i].bytes)
        << what << ": " << planned.parts[i].name;
    EXPECT_FALSE(planned.parts[i].formula.empty()) << planned.parts[i].name;
  }
}

// Planned from the file's header, planned by the engine, allocated before and after use.
void ExpectPlanHolds(const EngineOptions& options, const std::string& what) {
  const auto planned = PlanMemory(Wide().path, {}, options);
  ASSERT_TRUE(planned.ok()) << what << ": " << planned.status();
  const auto engine = MakeEngine(Wide().model, options);
  ExpectSamePlans(*planned, engine->plan(), what + ", engine");
  ExpectSamePlans(*planned, engine->Allocated(), what + ", allocated");
  std::vector<std::unique_ptr<Session>> sessions;
  for (int32_t i = 0; i < options.n_seq; ++i) {
    sessions.push_back(MakeSession(*engine));
    const bool cuts = sessions[i]->policy().evicts;
    const Status fed = sessions[i]->Feed(TestTokens(cuts ? 2 * options.budget + 3 : 2, i + 1));
    ASSERT_TRUE(fed.ok()) << what << ": " << fed;
  }
  std::vector<Session*> batch;
  for (const auto& session : sessions) batch.push_back(session.get());
  const std::vector<Token> tokens = TestTokens(options.n_seq);
  for (int i = 0; i < 3; ++i) {
    if (!sessions[0]->policy().evicts && options.budget < 5) break;
    const Status step = engine->Step(batch, tokens);
    ASSERT_TRUE(step.ok()) << what << ": " << step;
  }
  ExpectSamePlans(*planned, engine->Allocated(), what + ", after use");
}

std::string Describe(const EngineOptions& o) {
  return StrCat(o.policy.name, " ", KvTypeName(o.type_k), "/", KvTypeName(o.type_v),
                " J=", o.budget, " h=", o.chunk, " n_seq=", o.n_seq);
}

TEST(MemoryTest, PlanIsAllocatedForEveryPolicyAndTypePair) {
  for (const PolicyInfo& policy : ListPolicies()) {
    for (const KvType k : kTypes) {
      for (const KvType v : kTypes) {
        EngineOptions options = WideEngine(policy.name, 24, 7);
        options.type_k = k;
        options.type_v = v;
        ExpectPlanHolds(options, Describe(options));
      }
    }
  }
}

TEST(MemoryTest, PlanIsAllocatedForManyShapes) {
  for (const char* policy : {"none", "random", "counter-causal", "counter-causal-fast"}) {
    for (const int32_t budget : {2, 40, 97}) {
      for (const int32_t chunk : {1, 33}) {
        for (const int32_t n_seq : {1, 5}) {
          EngineOptions options = WideEngine(policy, budget, chunk);
          options.type_k = options.type_v = KvType::kF16;
          options.n_seq = n_seq;
          options.max_logit_rows = chunk / 2;
          ExpectPlanHolds(options, Describe(options));
        }
      }
    }
  }
}

TEST(MemoryTest, PlanIsAllocatedForEveryAttentionPathAndWeights) {
  for (const AttentionPath path :
       {AttentionPath::kFused, AttentionPath::kStock, AttentionPath::kFlash}) {
    for (const bool f32 : {false, true}) {
      for (const bool mmap : {false, true}) {
        ModelOptions weights;
        weights.dequantize_f32 = f32;
        weights.mmap = mmap;
        EngineOptions options = WideEngine("counter-causal-fast", 30, 10);
        options.attention = path;
        const auto planned = PlanMemory(Wide().path, weights, options);
        ASSERT_TRUE(planned.ok()) << planned.status();
        const auto model = Model::Load(Wide().path, weights);
        ASSERT_TRUE(model.ok()) << model.status();
        const auto engine = MakeEngine(*model, options);
        ExpectSamePlans(*planned, engine->Allocated(), "weights");
        EXPECT_EQ(planned->part_bytes("weights"), (*model)->info().weight_bytes);
      }
    }
  }
}

TEST(MemoryTest, TotalsAreSums) {
  const auto plan = PlanMemory(Wide().path, {}, WideEngine("random", 64, 16));
  ASSERT_TRUE(plan.ok());
  uint64_t sum = 0;
  for (const MemoryPart& part : plan->parts) sum += part.bytes;
  EXPECT_EQ(plan->total_bytes(), sum);
  EXPECT_EQ(plan->total_without_weights_bytes(), sum - plan->part_bytes("weights"));
  EXPECT_EQ(plan->part_bytes("log beta") + plan->part_bytes("gates"), 0u);
  EXPECT_EQ(plan->part_bytes("no such part"), 0u);
  // 2 layers, 2 kv_heads, 80 slots up to the next group of 32, 32 values of f32.
  EXPECT_EQ(plan->part_bytes("K"), 2u * 2 * 96 * 32 * 4);
  EXPECT_EQ(plan->part_bytes("V"), plan->part_bytes("K"));
}

TEST(MemoryTest, GatesAddTheirWeightsAndAColumn) {
  const auto plan = PlanMemory(Wide().path, {}, WideEngine("retention", 64, 16));
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->part_bytes("log beta"), 2u * 2 * 96 * 4);
  EXPECT_GE(plan->part_bytes("gates"), WideEngine("retention", 64, 16).gates->weight_bytes() / 2);
  EXPECT_EQ(plan->total_without_weights_bytes(),
            plan->total_bytes() - plan->part_bytes("weights") - plan->part_bytes("gates"));
}

TEST(MemoryTest, APolicyThatNeedsGatesIsRefusedWithoutOrWithThoseOfAnotherModel) {
  EngineOptions options = ExactEngine("retention", 16, 4);
  ExpectRefused(PlanMemory(Wide().path, {}, options).status(), {"retention", "gates"});
  ExpectRefused(Engine::Create(Wide().model, options).status(), {"retention", "gates"});
  options.gates = MakeRandomGates(*LoadTiny(MakeTinyModel()));
  ExpectRefused(PlanMemory(Wide().path, {}, options).status(), {"width", "64", "32"});
  ExpectRefused(Engine::Create(Wide().model, options).status(), {"64", "32"});
  TinyModelOptions twin;
  twin.head_dim = 32;
  twin.n_embd = 64;
  twin.n_ff = 64;
  twin.seed = 2;
  options.gates = MakeRandomGates(*LoadTiny(MakeTinyModel(twin)));
  ExpectRefused(Engine::Create(Wide().model, options).status(), {"norm"});
}

TEST(MemoryTest, FitBudgetGivesTheLargestBudget) {
  for (const char* policy : {"window", "random", "counter-causal-fast"}) {
    for (const bool fixed_chunk : {false, true}) {
      const EngineOptions options = WideEngine(policy, 512, 16);
      for (const uint64_t bytes : {uint64_t{1} << 20, uint64_t{3000000}}) {
        const auto fit = FitBudget(Wide().path, {}, options, bytes, fixed_chunk);
        ASSERT_TRUE(fit.ok()) << fit.status();
        EXPECT_EQ(fit->chunk, fixed_chunk ? 16 : std::max(1, fit->budget / 4));
        EngineOptions more = *fit;
        const auto bytes_of = [&](const EngineOptions& o) {
          return PlanMemory(Wide().path, {}, o)->total_without_weights_bytes();
        };
        EXPECT_LE(bytes_of(*fit), bytes);
        more.budget += 1;
        if (!fixed_chunk) more.chunk = std::max(1, more.budget / 4);
        EXPECT_GT(bytes_of(more), bytes) << policy << " " << fit->budget;
      }
    }
  }
}

TEST(MemoryTest, FitBudgetLeavesRoomForTheLogitRows) {
  EngineOptions options = WideEngine("window", 512, 16);
  options.max_logit_rows = 10;
  const auto fit = FitBudget(Wide().path, {}, options, 4000000, false);
  ASSERT_TRUE(fit.ok()) << fit.status();
  EXPECT_GE(fit->chunk, 10);
}

TEST(MemoryTest, FitBudgetNamesTheLeastBytes) {
  const auto fit = FitBudget(Wide().path, {}, WideEngine("window", 512, 16), 1000, false);
  EXPECT_EQ(fit.status().code(), StatusCode::kOutOfBudget);
  ExpectRefused(fit.status(), {"1000", "at least"});
}

// One engine after the other, each refused before anything runs, and by PlanMemory alike.
TEST(MemoryTest, TooSmallABudgetIsRefused) {
  const auto expect_refused = [](const EngineOptions& options,
                                 const std::vector<std::string>& words) {
    ExpectRefused(Engine::Create(Wide().model, options).status(), words);
    ExpectRefused(PlanMemory(Wide().path, {}, options).status(), words);
  };
  expect_refused(WideEngine("window", 1, 4), {"budget", "at least 2", "1"});
  expect_refused(WideEngine("window", -5, 4), {"budget", "-5"});
  expect_refused(WideEngine("window", 8, 0), {"chunk", "at least 1", "0"});
  expect_refused(WideEngine("window", 2000000000, 2000000000), {"budget", "chunk"});
  expect_refused(WideEngine("no-such-policy", 8, 4), {"no-such-policy", "counter-causal"});
  EngineOptions options = WideEngine("window", 8, 4);
  options.n_seq = 0;
  expect_refused(options, {"n_seq"});
  options.n_seq = 1;
  options.max_logit_rows = 5;
  expect_refused(options, {"max_logit_rows", "5"});
  options.max_logit_rows = 0;
  options.n_threads = -1;
  expect_refused(options, {"n_threads", "-1"});
}

TEST(MemoryTest, ProtectionThatFillsTheBudgetIsRefused) {
  for (const char* policy : {"window", "streaming", "random", "counter-causal"}) {
    const auto engine = MakeEngine(Wide().model, WideEngine(policy, 8, 4));
    ExpectRefused(engine->NewSession(Protected(4, 4)).status(), {"protected", "8", "sinks 4"});
    ExpectRefused(engine->NewSession(Protected(-1, 0)).status(), {"sinks", "-1"});
    const auto session = MakeSession(*engine, Protected(4, 1));
    ASSERT_TRUE(session->Feed(TestTokens(7)).ok());
    ExpectRefused(session->Pin({Position{4}, Position{7}}), {"budget", "8"});
    ExpectRefused(session->Pin({Position{6}, Position{8}}), {"7"});
    EXPECT_TRUE(session->Pin({Position{4}, Position{6}}).ok());
  }
  // The gap forces slots to stay.
  EngineOptions options = WideEngine("counter-causal", 8, 4);
  options.policy.counter_causal.emplace().min_gap = 7;
  const auto engine = MakeEngine(Wide().model, options);
  ExpectRefused(engine->NewSession(Protected(0, 0)).status(), {"protected", "8"});
}

TEST(MemoryTest, TypePairsThatDoNotFitAreRefusedByName) {
  const std::string narrow = MakeTinyModel().Write();  // head size 8
  const std::shared_ptr<const Gates> narrow_gates = MakeRandomGates(**Model::Load(narrow, {}));
  for (const PolicyInfo& policy : ListPolicies()) {
    for (const KvType k : kTypes) {
      for (const KvType v : kTypes) {
        EngineOptions options = ExactEngine(policy.name, 16, 4);
        options.gates = narrow_gates;
        options.type_k = k;
        options.type_v = v;
        const bool k_block = k == KvType::kQ8_0 || k == KvType::kQ4_0;
        const bool v_block = v == KvType::kQ8_0 || v == KvType::kQ4_0;
        const Status status = PlanMemory(narrow, {}, options).status();
        EXPECT_EQ(status.ok(), !k_block && !v_block) << Describe(options) << ": " << status;
        if (status.ok()) continue;
        EXPECT_EQ(status.code(), StatusCode::kUnsupported);
        ExpectRefused(status,
                      {std::string(KvTypeName(k_block ? k : v)), k_block ? "K" : "V", "8", "32"});
      }
    }
  }
  EngineOptions options = WideEngine("window", 16, 4);
  options.type_v = KvType::kQ8_0;
  options.attention = AttentionPath::kStock;
  ExpectRefused(Engine::Create(Wide().model, options).status(), {"stock", "q8_0"});
}

TEST(MemoryTest, ASessionThatNeedsMoreThanItsEngineIsRefused) {
  SessionOptions options;
  options.policy.emplace().name = "random";
  const auto engine = MakeEngine(Wide().model, WideEngine("window", 8, 4));
  ExpectRefused(engine->NewSession(options).status(), {"random", "window"});
  options.policy->name = "counter-causal-fast";
  ExpectRefused(engine->NewSession(options).status(), {"counter-causal-fast", "window"});
  const auto session = MakeSession(*engine);
  const auto second = engine->NewSession({});
  EXPECT_EQ(second.status().code(), StatusCode::kOutOfBudget);
}

// ggml_graph_compute itself makes and frees an empty context: two small pieces of the heap a pass.
constexpr int64_t kMallocsPerPass = 2;

// Once the graphs of a cycle exist, nothing is allocated: two whole cycles, decoded and fed.
TEST(MemoryTest, ACycleAllocatesNothing) {
  if (!AllocationCounterWorks()) GTEST_SKIP() << "sanitizers have their own operator new";
  constexpr int32_t kChunk = 8;
  for (const PolicyInfo& info : ListPolicies()) {
    EngineOptions options = WideEngine(info.name, 60, kChunk);  // a cycle crosses a slot group
    options.n_threads = 2;
    if (info.evicts) options.position_limit = 60 + kChunk;  // each cut rebases
    if (!info.evicts) options.budget = 400;
    const auto engine = MakeEngine(Wide().model, options);
    const auto session = MakeSession(*engine);
    const std::vector<Token> prompt = TestTokens(8 * kChunk), cycle = TestTokens(kChunk, 2);
    ASSERT_TRUE(session->Feed(prompt).ok());
    const auto run = [&](int n_cycle) {
      bool ok = true;
      for (int c = 0; c < n_cycle; ++c) {
        for (const Token token : cycle) ok = ok && StepOne(*engine, *session, token).ok();
      }
      for (int c = 0; c < n_cycle; ++c) ok = ok && session->Feed(cycle).ok();
      return ok;
    };
    ASSERT_TRUE(run(info.evicts ? 2 : 4)) << info.name;
    const int64_t n_new = AllocationCount(), n_malloc = MallocCount();
    ASSERT_TRUE(run(2)) << info.name;
    EXPECT_EQ(AllocationCount(), n_new) << info.name;
    if (!info.evicts) continue;  // each group of slots that it reaches needs a graph
    const int64_t n_scoring = info.model_score == ModelScore::kNone ? 0 : 4;  // one a cut
    EXPECT_LE(MallocCount() - n_malloc, kMallocsPerPass * (2 * kChunk + 2 + n_scoring))
        << info.name;
  }
}

TEST(MemoryTest, ABatchAllocatesNothing) {
  if (!AllocationCounterWorks()) GTEST_SKIP() << "sanitizers have their own operator new";
  EngineOptions options = WideEngine("counter-causal-fast", 20, 4);
  options.n_seq = 4;
  options.n_threads = 2;
  const auto engine = MakeEngine(Wide().model, options);
  std::vector<std::unique_ptr<Session>> sessions;
  std::vector<Session*> batch;
  for (int i = 0; i < 4; ++i) {
    sessions.push_back(MakeSession(*engine));
    ASSERT_TRUE(sessions[i]->Feed(TestTokens(25 + i)).ok());
    if (i != 2) batch.push_back(sessions[i].get());
  }
  const std::vector<Token> tokens = {5, 6, 7};
  for (int i = 0; i < 8; ++i) ASSERT_TRUE(engine->Step(batch, tokens).ok());
  const int64_t n_new = AllocationCount(), n_malloc = MallocCount();
  bool ok = true;
  for (int i = 0; i < 8; ++i) ok = ok && engine->Step(batch, tokens).ok();
  EXPECT_TRUE(ok);
  EXPECT_EQ(AllocationCount(), n_new);
  EXPECT_LE(MallocCount() - n_malloc, kMallocsPerPass * (8 + 2 * 3));  // two cuts of three
}

}  // namespace
}  // namespace kvbound::testing
