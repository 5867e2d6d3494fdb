#include "testing/attention_case.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <span>
#include <thread>

#include "base/strings.h"

namespace kvbound::testing {
namespace {

float Gaussian(std::minstd_rand& random) {
  float sum = -6.0f;  // of twelve uniform ones; the standard's distribution differs by library
  for (int i = 0; i < 12; ++i) sum += static_cast<float>(random() % 65536) / 65536.0f;
  return sum;
}

// A half precision number near x, and the number that it is. Plain bits, so that neither side of
// a comparison uses the conversions of the other.
uint16_t HalfNear(float x, float* value) {
  const auto bits = std::bit_cast<uint32_t>(x);
  const uint32_t sign = bits >> 31, exponent = bits >> 23 & 0xff, fraction = bits >> 13 & 0x3ff;
  if (exponent < 113 || exponent > 142) {  // it would be subnormal or infinite
    *value = 0.0f;
    return 0;
  }
  *value = std::bit_cast<float>(bits & ~0x1fffu);
  return static_cast<uint16_t>(sign << 15 | (exponent - 112) << 10 | fraction);
}

size_t RowBytes(KvType type, int32_t n) {
  switch (type) {
    case KvType::kF32:
      return n * sizeof(float);
    case KvType::kF16:
    case KvType::kBF16:
      return n * sizeof(uint16_t);
    case KvType::kQ8_0:
      return n / 32 * (2 + 32);
    case KvType::kQ4_0:
      return n / 32 * (2 + 16);
  }
  return 0;
}

// Fills a row of n elements with random ones and says what they are.
void MakeRow(KvType type, int32_t n, float size, std::minstd_rand& random, std::byte* row,
             float* values) {
  const int32_t block = type == KvType::kQ8_0 || type == KvType::kQ4_0 ? 32 : 1;
  for (int32_t i = 0; i < n; i += block, values += block) {
    float x = size * Gaussian(random);
    uint16_t half = 0;
    switch (type) {
      case KvType::kF32:
        *values = x;
        std::memcpy(row + i * sizeof(float), &x, sizeof(float));
        break;
      case KvType::kF16:
        half = HalfNear(x, values);
        std::memcpy(row + i * sizeof(half), &half, sizeof(half));
        break;
      case KvType::kBF16:
        half = static_cast<uint16_t>(std::bit_cast<uint32_t>(x) >> 16);
        *values = std::bit_cast<float>(uint32_t{half} << 16);
        std::memcpy(row + i * sizeof(half), &half, sizeof(half));
        break;
      case KvType::kQ8_0:
        half = HalfNear(x / 64.0f, &x);
        std::memcpy(row, &half, sizeof(half));
        for (int32_t j = 0; j < 32; ++j) {
          const auto q = static_cast<int8_t>(static_cast<int32_t>(random() % 256) - 128);
          row[2 + j] = static_cast<std::byte>(q);
          values[j] = x * static_cast<float>(q);
        }
        row += 2 + 32;
        break;
      case KvType::kQ4_0:
        half = HalfNear(x / 4.0f, &x);
        std::memcpy(row, &half, sizeof(half));
        for (int32_t j = 0; j < 16; ++j) {
          const auto q = static_cast<uint8_t>(random() % 256);
          row[2 + j] = static_cast<std::byte>(q);
          values[j] = x * static_cast<float>((q & 15) - 8);
          values[16 + j] = x * static_cast<float>((q >> 4) - 8);
        }
        row += 2 + 16;
        break;
    }
  }
}

}  // namespace

AttentionCase::AttentionCase(const AttentionCaseOptions& options) : options_(options) {
  AttentionShape& shape = options_.shape;
  const int32_t n_unit = shape.n_seq * shape.n_kv_head;
  if (options_.n_slot.empty()) options_.n_slot.assign(n_unit, shape.max_slots);
  if (options_.first_slot.empty()) options_.first_slot.assign(n_unit, 0);
  if (options_.visible.empty()) {
    for (int32_t i = 0; i < shape.n_seq * shape.n_tok; ++i) {
      options_.visible.push_back({0, shape.n_tok - 1 - i % shape.n_tok});
    }
  }
  store_slots_ = shape.max_slots + *std::ranges::max_element(options_.first_slot) + 1;
  std::minstd_rand random(options_.seed);
  q_.resize(int64_t{1} * shape.n_seq * shape.n_tok * shape.n_head * shape.head_dim);
  for (float& x : q_) x = options_.size * Gaussian(random);
  k_ = MakeStore(options_.type_k, options_.size, options_.seed + 1);
  v_ = MakeStore(options_.type_v, 1.0f, options_.seed + 2);
  if (!options_.shuffled) return;
  // All heads of a sequence hold equally many slots where ranks are in use.
  ranks_.assign(int64_t{1} * shape.n_seq * shape.max_slots, std::numeric_limits<int32_t>::max());
  for (int32_t seq = 0; seq < shape.n_seq; ++seq) {
    const auto ranks = std::span(ranks_).subspan(int64_t{1} * seq * shape.max_slots,
                                                 options_.n_slot[seq * shape.n_kv_head]);
    std::iota(ranks.begin(), ranks.end(), 0);
    for (size_t i = ranks.size(); i > 1; --i) std::swap(ranks[i - 1], ranks[random() % i]);
  }
}

AttentionCase::Store AttentionCase::MakeStore(KvType type, float size, uint32_t seed) const {
  const AttentionShape& shape = options_.shape;
  const size_t row_bytes = RowBytes(type, shape.head_dim);
  const int64_t n_row = int64_t{1} * shape.n_seq * shape.n_kv_head * store_slots_;
  Store store;
  store.values.resize(n_row * shape.head_dim);
  store.bytes.resize(n_row * row_bytes);
  std::minstd_rand random(seed);
  for (int64_t i = 0; i < n_row; ++i) {
    MakeRow(type, shape.head_dim, size, random, store.bytes.data() + i * row_bytes,
            store.values.data() + i * shape.head_dim);
  }
  const size_t head_bytes = store_slots_ * row_bytes;
  store.rows = {type, nullptr, row_bytes, head_bytes, shape.n_kv_head * head_bytes};
  return store;
}

int64_t AttentionCase::StoreRow(int64_t unit, int32_t slot) const {
  return unit * store_slots_ + options_.first_slot[unit] + slot;
}

std::byte* AttentionCase::k_row(int32_t seq, int32_t kv_head, int32_t slot) {
  const int64_t unit = int64_t{seq} * options_.shape.n_kv_head + kv_head;
  return k_.bytes.data() + (unit * store_slots_ + slot) * k_.rows.slot_bytes;
}

AttentionCall AttentionCase::Call() const {
  AttentionCall call;
  call.shape = options_.shape;
  call.q = q_.data();
  call.scale = 1.0f / std::sqrt(static_cast<float>(call.shape.head_dim));
  call.k = k_.rows;
  call.k.data = k_.bytes.data();
  call.v = v_.rows;
  call.v.data = v_.bytes.data();
  call.n_slot = options_.n_slot.data();
  call.first_slot = options_.first_slot.data();
  call.ranks = options_.shuffled ? ranks_.data() : nullptr;
  call.visible = options_.visible.data();
  return call;
}

AttentionOutputs AttentionCase::Run(int n_thread) {
  const AttentionShape& shape = options_.shape;
  const size_t n_query = size_t{1} * shape.n_seq * shape.n_tok * shape.n_head;
  const size_t n_mass = size_t{1} * shape.n_seq * shape.n_kv_head * shape.max_slots;
  std::vector<float> out(n_query * shape.head_dim), lse(n_query), mass(n_mass), value_mass(n_mass);
  std::vector<float> workspace(AttentionWorkspace(shape), std::nanf(""));
  std::vector<std::atomic<int32_t>> counters(AttentionCounters(shape));
  AttentionCall call = Call();
  call.out = out.data();
  call.lse = lse.data();
  if (shape.mass) {
    call.mass = mass.data();
    call.value_mass = value_mass.data();
  }
  call.workspace = workspace.data();
  call.counters = counters.data();
  std::vector<std::thread> threads;
  for (int i = 1; i < n_thread; ++i) threads.emplace_back(Attend, std::cref(call), n_thread);
  Attend(call, n_thread);
  for (std::thread& thread : threads) thread.join();
  const bool zero = std::ranges::all_of(counters, [](const auto& c) { return c.load() == 0; });
  if (!zero) std::abort();
  return {{out.begin(), out.end()},
          {lse.begin(), lse.end()},
          {mass.begin(), mass.end()},
          {value_mass.begin(), value_mass.end()}};
}

AttentionOutputs AttentionCase::Oracle() const {
  const AttentionShape& shape = options_.shape;
  const int32_t d = shape.head_dim;
  const size_t n_query = size_t{1} * shape.n_seq * shape.n_tok * shape.n_head;
  const size_t n_mass = size_t{1} * shape.n_seq * shape.n_kv_head * shape.max_slots;
  AttentionOutputs outputs;
  outputs.out.resize(n_query * d);
  outputs.lse.resize(n_query, -std::numeric_limits<double>::infinity());
  outputs.mass.resize(n_mass);
  outputs.value_mass.resize(n_mass);
  for (size_t query = 0; query < n_query; ++query) {
    const size_t token = query / shape.n_head, seq = token / shape.n_tok;
    const size_t unit = seq * shape.n_kv_head + query % shape.n_head / shape.n_group();
    const Visible& visible = options_.visible[token];
    const int32_t n = options_.n_slot[unit];
    const auto sees = [&](int32_t slot) {
      const int32_t rank = options_.shuffled ? ranks_[seq * shape.max_slots + slot] : slot;
      return rank >= visible.begin && rank < n - visible.behind;
    };
    std::vector<double> logits(n);
    double max = -std::numeric_limits<double>::infinity(), sum = 0;
    for (int32_t slot = 0; slot < n; ++slot) {
      if (!sees(slot)) continue;
      const float* k = &k_.values[StoreRow(unit, slot) * d];
      for (int32_t i = 0; i < d; ++i) logits[slot] += double{q_[query * d + i]} * k[i];
      logits[slot] /= std::sqrt(static_cast<double>(d));
      max = std::max(max, logits[slot]);
    }
    for (int32_t slot = 0; slot < n; ++slot) {
      if (sees(slot)) sum += std::exp(logits[slot] - max);
    }
    if (sum > 0) outputs.lse[query] = max + std::log(sum);
    for (int32_t slot = 0; slot < n; ++slot) {
      if (!sees(slot)) continue;
      const double weight = std::exp(logits[slot] - max) / sum;
      const float* v = &v_.values[StoreRow(unit, slot) * d];
      double length = 0;
      for (int32_t i = 0; i < d; ++i) {
        outputs.out[query * d + i] += weight * v[i];
        length += double{v[i]} * v[i];
      }
      outputs.mass[unit * shape.max_slots + slot] += weight;
      outputs.value_mass[unit * shape.max_slots + slot] += weight * std::sqrt(length);
    }
  }
  return outputs;
}

AttentionTolerance ToleranceOf(const AttentionCaseOptions& options) {
  const double n_row = options.shape.n_row();
  const double logit = options.type_k == KvType::kQ8_0
                           ? 2e-4 * std::max(1.0, double{options.size} * options.size)
                           : 1e-5;
  const double value = options.type_v == KvType::kQ8_0 ? 1e-3 : 1e-5;
  return {std::max(logit, value), logit, logit / 10 * n_row, logit * n_row};
}

std::string Describe(const AttentionCaseOptions& options) {
  const AttentionShape& s = options.shape;
  std::string lengths;
  for (int32_t n : options.n_slot) lengths += StrCat(" ", n);
  return StrCat(s.n_seq, " sequences x ", s.n_tok, " tokens x ", s.n_head, " heads, ", s.n_kv_head,
                " KV heads of ", s.head_dim, ", ", KvTypeName(options.type_k), "/",
                KvTypeName(options.type_v), ", at most ", s.max_slots, " slots, held", lengths,
                options.shuffled ? ", shuffled" : "", ", seed ", options.seed);
}

}  // namespace kvbound::testing
