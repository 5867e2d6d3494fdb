#include "kv/store.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <numeric>
#include <random>

#include "base/strings.h"
#include "testing/alloc_counter.h"

namespace kvbound {
namespace {

ggml_backend_buffer_type_t CpuBufferType() {
  return ggml_backend_dev_buffer_type(ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU));
}

std::unique_ptr<KvStore> MakeStore(const KvLayout& layout) {
  Result<std::unique_ptr<KvStore>> store = KvStore::Create(layout, CpuBufferType());
  EXPECT_TRUE(store.ok()) << store.status();
  return *std::move(store);
}

KvLayout TinyLayout() {
  KvLayout layout;
  layout.n_layer = 2;
  layout.n_kv_head = 3;
  layout.head_dim = 32;
  layout.budget = 20;
  layout.chunk = 9;
  layout.n_seq = 3;
  layout.type_k = layout.type_v = KvType::kF32;
  layout.v_transposed = false;
  return layout;
}

// What a forward pass writes: rows that tell kind, sequence, layer, head and position.
enum Kind { kKey, kValue, kHidden };

std::vector<float> Row(Kind kind, int32_t seq, int32_t head, Position position, int64_t n) {
  std::vector<float> row(n);
  const uint32_t seed = ((kind * 7 + seq) * 101 + head) * 10007 + position.value;
  std::minstd_rand rng(seed + 1);
  for (float& value : row) value = static_cast<float>(rng() % 2001) / 1000.0f - 1.0f;
  return row;
}

std::vector<uint8_t> Encode(ggml_type type, const std::vector<float>& row) {
  std::vector<uint8_t> bytes(ggml_row_size(type, row.size()));
  ggml_quantize_chunk(type, row.data(), bytes.data(), 0, 1, row.size(), nullptr);
  return bytes;
}

std::vector<float> Decode(ggml_type type, const std::vector<uint8_t>& bytes, int64_t n) {
  std::vector<float> row(n);
  if (type == GGML_TYPE_F32) {
    std::memcpy(row.data(), bytes.data(), n * sizeof(float));
  } else {
    ggml_get_type_traits(type)->to_float(bytes.data(), row.data(), n);
  }
  return row;
}

float LogBeta(int32_t seq, int32_t head, Position position) {
  return -static_cast<float>((seq * 101 + head) * 10007 + position.value);
}

void WriteLogBeta(KvStore& store, int32_t seq, int32_t t) {
  const KvLayout& l = store.layout();
  const int32_t heads_per_set = l.n_layer * l.n_kv_head / store.n_set(seq);
  for (int32_t layer = 0; layer < l.n_layer; ++layer) {
    std::vector<float> values;
    for (int32_t slot = store.n(seq) - t; slot < store.n(seq); ++slot) {
      for (int32_t kv_head = 0; kv_head < l.n_kv_head; ++kv_head) {
        const int32_t head = layer * l.n_kv_head + kv_head;
        const Position position = store.positions(seq, head / heads_per_set)[slot];
        values.push_back(LogBeta(seq, head, position));
      }
    }
    store.WriteLogBeta(seq, layer, values);
  }
}

// What one pass adds to the attention mass of a slot: whole numbers, whose sums are exact.
float Mass(int32_t head, Position position) {
  return static_cast<float>(head * 1000 + position.value + 1);
}

void AddMass(KvStore& store, int32_t seq) {
  const KvLayout& l = store.layout();
  const int32_t heads_per_set = l.n_layer * l.n_kv_head / store.n_set(seq);
  const size_t stride = l.n_slot() + 3;
  for (int32_t layer = 0; layer < l.n_layer; ++layer) {
    std::vector<float> values(l.n_kv_head * stride, std::nanf(""));
    for (int32_t kv_head = 0; kv_head < l.n_kv_head; ++kv_head) {
      const int32_t head = layer * l.n_kv_head + kv_head;
      const auto positions = store.positions(seq, head / heads_per_set);
      for (size_t slot = 0; slot < positions.size(); ++slot) {
        values[kv_head * stride + slot] = Mass(head, positions[slot]);
      }
    }
    store.AddAttentionMass(seq, layer, values, stride);
  }
}

// Writes the rows of slots [n - t, n), as a forward pass does after Append.
void WriteRows(const KvStore& store, int32_t seq, int32_t t) {
  const KvLayout& l = store.layout();
  const int32_t heads_per_set = l.n_layer * l.n_kv_head / store.n_set(seq);
  for (int32_t slot = store.n(seq) - t; slot < store.n(seq); ++slot) {
    for (int32_t head = 0; head < l.n_layer * l.n_kv_head; ++head) {
      const Position position = store.positions(seq, head / heads_per_set)[slot];
      ggml_tensor* k = store.k(head / l.n_kv_head);
      ggml_tensor* v = store.v(head / l.n_kv_head);
      const int32_t kv_head = head % l.n_kv_head;
      const auto key = Encode(k->type, Row(kKey, seq, head, position, l.head_dim));
      ggml_backend_tensor_set(k, key.data(), seq * k->nb[3] + kv_head * k->nb[2] + slot * k->nb[1],
                              key.size());
      const auto value = Encode(v->type, Row(kValue, seq, head, position, l.head_dim));
      const size_t base = seq * v->nb[3] + kv_head * v->nb[2];
      if (!l.v_transposed) {
        ggml_backend_tensor_set(v, value.data(), base + slot * v->nb[1], value.size());
        continue;
      }
      for (int32_t d = 0; d < l.head_dim; ++d) {
        ggml_backend_tensor_set(v, &value[d * v->nb[0]], base + d * v->nb[1] + slot * v->nb[0],
                                v->nb[0]);
      }
    }
    if (ggml_tensor* h = store.hidden(); h != nullptr) {
      const auto row =
          Encode(h->type, Row(kHidden, seq, 0, store.positions(seq, 0)[slot], h->ne[0]));
      ggml_backend_tensor_set(h, row.data(), seq * h->nb[2] + slot * h->nb[1], row.size());
    }
  }
}

// The store's content as a map from position to token, per sequence and set.
struct Model {
  struct Sequence {
    std::vector<std::map<Position, Token>> sets;
    Position next{0};
    int32_t n_pass = 0;
    std::vector<int32_t> first_pass;  // of each position
  };
  std::vector<Sequence> seqs;
};

void ExpectEqual(const KvStore& store, const Model& model) {
  const KvLayout& l = store.layout();
  for (int32_t seq = 0; seq < l.n_seq; ++seq) {
    const int32_t n = store.n(seq);
    const int32_t n_set = store.n_set(seq);
    ASSERT_EQ(model.seqs[seq].sets.size(), static_cast<size_t>(n_set));
    for (int32_t set = 0; set < n_set; ++set) {
      std::map<Position, Token> found;
      for (int32_t slot = 0; slot < n; ++slot) {
        found[store.positions(seq, set)[slot]] = store.tokens(seq, set)[slot];
      }
      ASSERT_EQ(found.size(), static_cast<size_t>(n));  // no position twice
      ASSERT_EQ(found, model.seqs[seq].sets[set]);
    }
    const int32_t n_head = l.n_layer * l.n_kv_head;
    std::vector<float> keys(n * l.head_dim), values(n * l.head_dim);
    for (int32_t head = 0; head < n_head; ++head) {
      const int32_t layer = head / l.n_kv_head, kv_head = head % l.n_kv_head;
      ASSERT_TRUE(store.ReadKeys(seq, layer, kv_head, keys).ok());
      ASSERT_TRUE(store.ReadValues(seq, layer, kv_head, values).ok());
      const auto positions = store.positions(seq, head * n_set / n_head);
      const auto log_beta = store.log_beta(seq, layer, kv_head);
      const auto mass = store.attention_mass(seq, layer, kv_head);
      for (int32_t slot = 0; slot < n; ++slot) {
        ASSERT_EQ(log_beta[slot], LogBeta(seq, head, positions[slot]));
        const int32_t n_pass =
            model.seqs[seq].n_pass - model.seqs[seq].first_pass[positions[slot].value];
        ASSERT_EQ(mass[slot], static_cast<float>(n_pass) * Mass(head, positions[slot]));
        const auto expect_row = [&](Kind kind, ggml_type type, const std::vector<float>& rows) {
          const auto row = Row(kind, seq, head, positions[slot], l.head_dim);
          const auto decoded = Decode(type, Encode(type, row), l.head_dim);
          return std::equal(decoded.begin(), decoded.end(), rows.begin() + slot * l.head_dim);
        };
        ASSERT_TRUE(expect_row(kKey, store.k(layer)->type, keys));
        ASSERT_TRUE(expect_row(kValue, store.v(layer)->type, values));
      }
    }
    if (ggml_tensor* h = store.hidden(); h != nullptr) {
      for (int32_t slot = 0; slot < n; ++slot) {
        const auto expected =
            Encode(h->type, Row(kHidden, seq, 0, store.positions(seq, 0)[slot], h->ne[0]));
        std::vector<uint8_t> bytes(expected.size());
        ggml_backend_tensor_get(h, bytes.data(), seq * h->nb[2] + slot * h->nb[1], bytes.size());
        ASSERT_EQ(bytes, expected);
      }
    }
  }
}

struct StoreCase {
  KvType type_k;
  KvType type_v;
  bool v_transposed;
  Granularity granularity;
  int32_t n_hidden;
};

std::string CaseName(const ::testing::TestParamInfo<StoreCase>& info) {
  const StoreCase& c = info.param;
  return StrCat(KvTypeName(c.type_k), "_", KvTypeName(c.type_v), c.v_transposed ? "_t_" : "_",
                GranularityName(c.granularity), c.n_hidden > 0 ? "_hidden" : "");
}

std::vector<StoreCase> AllCases() {
  constexpr KvType kTypes[] = {KvType::kF32, KvType::kF16, KvType::kBF16, KvType::kQ8_0,
                               KvType::kQ4_0};
  std::vector<StoreCase> cases;
  for (const KvType k : kTypes) {
    for (const KvType v : kTypes) {
      for (const bool transposed : {false, true}) {
        if (transposed && (v == KvType::kQ8_0 || v == KvType::kQ4_0)) continue;
        cases.push_back({k, v, transposed, Granularity::kShared, 40});
        cases.push_back({k, v, transposed, Granularity::kPerLayer, 0});
        cases.push_back({k, v, transposed, Granularity::kPerHead, 0});
      }
    }
  }
  return cases;
}

class StoreModelTest : public ::testing::TestWithParam<StoreCase> {
 protected:
  // A random keep set of `kept` slots per set; removes the others from the model.
  std::vector<uint8_t> RandomKeep(const KvStore& store, int32_t seq, int32_t kept, Model& model) {
    const int32_t n = store.n(seq);
    std::vector<uint8_t> keep(store.n_set(seq) * n, 0);
    for (int32_t set = 0; set < store.n_set(seq); ++set) {
      std::vector<int32_t> slots(n);
      std::iota(slots.begin(), slots.end(), 0);
      std::shuffle(slots.begin(), slots.end(), rng_);
      for (int32_t i = 0; i < n; ++i) {
        if (i < kept) {
          keep[set * n + slots[i]] = 1;
        } else {
          model.seqs[seq].sets[set].erase(store.positions(seq, set)[slots[i]]);
        }
      }
    }
    return keep;
  }

  std::mt19937 rng_{12345};
};

TEST_P(StoreModelTest, RandomAppendsAndCutsMatchAMap) {
  KvLayout layout = TinyLayout();
  layout.type_k = GetParam().type_k;
  layout.type_v = GetParam().type_v;
  layout.v_transposed = GetParam().v_transposed;
  layout.granularity = GetParam().granularity;
  layout.n_hidden = GetParam().n_hidden;
  layout.type_hidden = KvType::kF16;
  layout.log_beta = layout.attention_mass = true;
  const auto store = MakeStore(layout);
  Model model;
  model.seqs.resize(layout.n_seq);
  for (auto& sequence : model.seqs) sequence.sets.resize(layout.n_set());

  for (int step = 0; step < 40; ++step) {
    const auto seq = static_cast<int32_t>(rng_() % layout.n_seq);
    auto& sequence = model.seqs[seq];
    const int32_t room = layout.max_slots() - store->n(seq);
    const auto t = static_cast<int32_t>(rng_() % (layout.chunk + 1));
    std::vector<Token> tokens(t);
    for (Token& token : tokens) token = static_cast<Token>(rng_() % 1000);
    const Status appended = store->Append(seq, tokens, sequence.next);
    ASSERT_EQ(appended.ok(), t <= room) << appended;
    if (appended.ok()) {
      for (int32_t i = 0; i < t; ++i) {
        for (auto& set : sequence.sets) set[{sequence.next.value + i}] = tokens[i];
      }
      sequence.next.value += t;
      WriteRows(*store, seq, t);
      WriteLogBeta(*store, seq, t);
      sequence.first_pass.resize(sequence.next.value, sequence.n_pass);
      AddMass(*store, seq);
      ++sequence.n_pass;
    }
    if (store->n(seq) > layout.budget || step % 7 == 0) {
      const int32_t most = std::min(store->n(seq), layout.budget);
      const int32_t kept = step % 5 == 0 ? static_cast<int32_t>(rng_() % (most + 1)) : most;
      ASSERT_TRUE(store->Keep(seq, RandomKeep(*store, seq, kept, model)).ok());
      ASSERT_EQ(store->n(seq), kept);
    }
    ASSERT_NO_FATAL_FAILURE(ExpectEqual(*store, model));
  }
}

INSTANTIATE_TEST_SUITE_P(All, StoreModelTest, ::testing::ValuesIn(AllCases()), CaseName);

TEST(KvStoreTest, AllocatesThePlanToTheByte) {
  for (const StoreCase& c : AllCases()) {
    for (const int32_t n_seq : {1, 5}) {
      for (const int32_t head_dim : {32, 64, 96}) {
        KvLayout layout = TinyLayout();
        layout.type_k = c.type_k;
        layout.type_v = c.type_v;
        layout.v_transposed = c.v_transposed;
        layout.granularity = c.granularity;
        layout.n_hidden = c.n_hidden;
        layout.n_seq = n_seq;
        layout.head_dim = head_dim;
        layout.log_beta = n_seq == 5;
        layout.attention_mass = head_dim == 96;
        const auto store = MakeStore(layout);
        EXPECT_EQ(store->allocated_k_bytes(), layout.k_bytes());
        EXPECT_EQ(store->allocated_v_bytes(), layout.v_bytes());
        EXPECT_EQ(store->allocated_hidden_bytes(), layout.hidden_bytes());
        EXPECT_EQ(store->allocated_log_beta_bytes(), layout.log_beta_bytes());
        EXPECT_EQ(store->allocated_attention_mass_bytes(), layout.attention_mass_bytes());
        EXPECT_EQ(store->allocated_host_bytes(), layout.host_bytes());
      }
    }
  }
}

TEST(KvStoreTest, TensorsHaveTheStatedShapeAndStartZeroed) {
  KvLayout layout = TinyLayout();
  layout.v_transposed = true;
  layout.n_hidden = 10;
  const auto store = MakeStore(layout);
  const ggml_tensor* k = store->k(1);
  const ggml_tensor* v = store->v(1);
  const ggml_tensor* h = store->hidden();
  EXPECT_EQ(std::vector<int64_t>(k->ne, k->ne + 4), (std::vector<int64_t>{32, 32, 3, 3}));
  EXPECT_EQ(std::vector<int64_t>(v->ne, v->ne + 4), (std::vector<int64_t>{32, 32, 3, 3}));
  EXPECT_EQ(std::vector<int64_t>(h->ne, h->ne + 4), (std::vector<int64_t>{10, 32, 3, 1}));
  for (const ggml_tensor* t : {k, v, h}) {
    const auto* bytes = static_cast<const uint8_t*>(t->data);
    EXPECT_TRUE(std::all_of(bytes, bytes + ggml_nbytes(t), [](uint8_t b) { return b == 0; }));
  }
}

TEST(KvStoreTest, AppendRefusesWhatDoesNotFitAndChangesNothing) {
  const auto store = MakeStore(TinyLayout());
  const std::vector<Token> tokens(25, 7);
  ASSERT_TRUE(store->Append(1, tokens, {0}).ok());
  const Status status = store->Append(1, std::span(tokens).first(5), {25});
  EXPECT_EQ(status.code(), StatusCode::kOutOfBudget);
  for (const char* word : {"20", "9", "25", "5"}) {
    EXPECT_NE(status.message().find(word), std::string::npos) << status;
  }
  EXPECT_EQ(store->n(1), 25);
  EXPECT_TRUE(store->Append(1, std::span(tokens).first(4), {25}).ok());
  EXPECT_EQ(store->Append(0, std::span(tokens).first(2), {2147483646}).code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(store->n(0), 0);
}

TEST(KvStoreTest, RollbackTakesBackTheLastSlots) {
  const auto store = MakeStore(TinyLayout());
  const std::vector<Token> tokens = {5, 6, 7, 8};
  ASSERT_TRUE(store->Append(2, tokens, {0}).ok());
  store->Rollback(2, 3);
  EXPECT_EQ(store->n(2), 1);
  ASSERT_TRUE(store->Append(2, std::vector<Token>{9}, {1}).ok());
  EXPECT_EQ(store->tokens(2, 0)[0], 5);
  EXPECT_EQ(store->tokens(2, 0)[1], 9);
  EXPECT_EQ(store->positions(2, 0)[1], Position{1});
}

TEST(KvStoreTest, RelabelChangesTheTokenWhereverItsPositionSits) {
  KvLayout layout = TinyLayout();
  layout.granularity = Granularity::kPerLayer;
  const auto store = MakeStore(layout);
  ASSERT_TRUE(store->Append(0, std::vector<Token>{5, 6, 7}, {0}).ok());
  ASSERT_TRUE(store->Keep(0, std::vector<uint8_t>{0, 1, 1, 1, 0, 1}).ok());
  store->Relabel(0, {2}, 70);
  EXPECT_EQ(store->tokens(0, 0)[0], 70);  // moved into the hole at slot 0
  EXPECT_EQ(store->tokens(0, 0)[1], 6);
  EXPECT_EQ(store->tokens(0, 1)[1], 70);
  store->Relabel(0, {1}, 60);  // the second set no longer holds it
  EXPECT_EQ(store->tokens(0, 0)[1], 60);
  EXPECT_EQ(store->tokens(0, 1)[0], 5);
}

TEST(KvStoreTest, KeepRefusesABadSetAndChangesNothing) {
  KvLayout layout = TinyLayout();
  layout.granularity = Granularity::kPerLayer;
  const auto store = MakeStore(layout);
  std::vector<Token> tokens(25);
  std::iota(tokens.begin(), tokens.end(), 100);
  ASSERT_TRUE(store->Append(0, tokens, {0}).ok());
  WriteRows(*store, 0, 25);
  const auto expect_refused = [&](const std::vector<uint8_t>& keep, const char* word) {
    const Status status = store->Keep(0, keep);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_NE(status.message().find(word), std::string::npos) << status;
    ASSERT_EQ(store->n(0), 25);
    for (int32_t slot = 0; slot < 25; ++slot) {
      EXPECT_EQ(store->positions(0, 1)[slot], Position{slot});
    }
  };
  expect_refused(std::vector<uint8_t>(50, 1), "budget");  // 25 kept, 20 allowed
  expect_refused(std::vector<uint8_t>(49, 0), "entries");
  expect_refused(std::vector<uint8_t>(25, 0), "entries");
  std::vector<uint8_t> unequal(50, 0);
  for (int i = 0; i < 10; ++i) unequal[i] = unequal[25 + i] = 1;
  unequal[40] = 1;
  expect_refused(unequal, "set 1");
}

TEST(KvStoreTest, SurvivorsBelowTheBudgetStayWhereTheyAre) {
  const auto store = MakeStore(TinyLayout());
  std::vector<Token> tokens(10, 1);
  ASSERT_TRUE(store->Append(0, tokens, {0}).ok());
  ASSERT_TRUE(store->Keep(0, std::vector<uint8_t>{1, 0, 1, 1, 0, 1, 0, 1, 1, 0}).ok());
  std::vector<int32_t> found;
  for (const Position position : store->positions(0, 0)) found.push_back(position.value);
  EXPECT_EQ(found, (std::vector<int32_t>{0, 7, 2, 3, 8, 5}));
}

TEST(KvStoreTest, ClearEmptiesASequenceAndChangesItsSets) {
  KvLayout layout = TinyLayout();
  layout.granularity = Granularity::kPerHead;
  const auto store = MakeStore(layout);
  EXPECT_EQ(store->n_set(0), 6);
  ASSERT_TRUE(store->Append(0, std::vector<Token>{1, 2}, {0}).ok());
  ASSERT_TRUE(store->Append(1, std::vector<Token>{3}, {0}).ok());
  store->Clear(0, Granularity::kShared);
  EXPECT_EQ(store->n(0), 0);
  EXPECT_EQ(store->n_set(0), 1);
  EXPECT_EQ(store->n(1), 1);
  EXPECT_EQ(store->n_set(1), 6);
}

TEST(KvStoreTest, ReadsRefuseAnOutputOfAnotherSize) {
  const auto store = MakeStore(TinyLayout());
  ASSERT_TRUE(store->Append(0, std::vector<Token>{1, 2}, {0}).ok());
  std::vector<float> out(32);
  EXPECT_EQ(store->ReadKeys(0, 0, 0, out).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(store->ReadValues(0, 0, 0, out).code(), StatusCode::kInvalidArgument);
}

TEST(KvStoreTest, CreateRefusesAnInvalidLayout) {
  KvLayout layout = TinyLayout();
  layout.budget = 0;
  EXPECT_EQ(KvStore::Create(layout, CpuBufferType()).status().code(), StatusCode::kOutOfBudget);
}

TEST(KvStoreTest, ACycleAllocatesNothing) {
  if (!testing::AllocationCounterWorks()) GTEST_SKIP() << "skipped: a sanitizer counts instead";
  for (const Granularity granularity :
       {Granularity::kShared, Granularity::kPerLayer, Granularity::kPerHead}) {
    KvLayout layout = TinyLayout();
    layout.granularity = granularity;
    const auto store = MakeStore(layout);
    const std::vector<Token> tokens(9, 3);
    const int64_t before = testing::AllocationCount();
    bool ok = true;
    for (int32_t i = 0; i < 10; ++i) {
      ok &= store->Append(0, tokens, {9 * i}).ok();
      const std::span<uint8_t> keep = store->keep_scratch(0);
      const std::span<float> scores = store->score_scratch(0);
      const std::span<int32_t> order = store->order_scratch(0);
      ok &= keep.size() == scores.size() && order.size() == static_cast<size_t>(store->n(0));
      std::fill(keep.begin(), keep.end(), 0);
      const int32_t n = store->n(0);
      for (int32_t set = 0; set < store->n_set(0); ++set) {
        for (int32_t j = 0; j < std::min(n, layout.budget); ++j) keep[set * n + (j * 7) % n] = 1;
      }
      ok &= store->Keep(0, keep).ok();
    }
    EXPECT_EQ(testing::AllocationCount(), before);
    EXPECT_TRUE(ok);
  }
}

}  // namespace
}  // namespace kvbound
