#include "testing/golden_case_writer.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <limits>
#include <map>
#include <stdexcept>
#include <utility>

#include "base/strings.h"
#include "testing/tiny_reference.h"

namespace kvbound::testing {
namespace {

using nlohmann::json;
using Ids = std::vector<int32_t>;
using Row = std::vector<double>;

constexpr int32_t kBos = 1;
constexpr int kTop = 5;
const double kNan = std::numeric_limits<double>::quiet_NaN();

double LogSumExp(const Row& logits) { return ReferenceNll(logits, 0) + logits[0]; }

// Ids from the highest logit down, the lower id first on ties.
Ids Ranked(const Row& logits) {
  Ids order(logits.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int32_t>(i);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return logits[static_cast<size_t>(a)] > logits[static_cast<size_t>(b)];
  });
  return order;
}

double GapOf(const Row& logits, const Ids& ranked) {
  return logits[static_cast<size_t>(ranked[0])] - logits[static_cast<size_t>(ranked[1])];
}

// The query of a flipped pass for one slot: which token starts it, where it sits, and which
// slots it reads: those from index `first` on.
struct FlipQuery {
  int32_t id = 0;
  int32_t position = 0;
  int first = 0;
};

// One row of logits per query over the cached `ids` at `positions`: the queries are tokens behind
// the cached ones that nobody reads.
std::vector<Row> FlippedPass(const TinyModel& model, const Ids& ids, const Ids& positions,
                             const std::vector<FlipQuery>& queries) {
  Ids all_ids = ids;
  Ids all_positions = positions;
  for (const FlipQuery& query : queries) {
    all_ids.push_back(query.id);
    all_positions.push_back(query.position);
  }
  const auto n = static_cast<int>(ids.size());
  const auto visible = [&](int, int, int query, int key) {
    if (query < n) return key <= query;
    return key < n && key >= queries[static_cast<size_t>(query - n)].first;
  };
  const ReferenceResult result = ReferenceForward(model, all_ids, all_positions, visible);
  return {result.logits.begin() + n, result.logits.end()};
}

TinyModel WithoutFfn(TinyModel model) {
  for (TinyTensor& tensor : model.tensors) {
    if (tensor.name != "blk.0.ffn_down.weight") continue;
    std::fill(tensor.values.begin(), tensor.values.end(), 0.0f);
  }
  return model;
}

// The kept indices and the margin of a cut that keeps the `budget` lowest scores; NaN scores, the
// last slot, the first `sinks` and the last `recent` stay.
struct Choice {
  Ids kept;
  double margin = 0;
};

Choice KeepLowest(const Row& scores, int budget, int sinks, int recent) {
  const auto n = static_cast<int>(scores.size());
  Choice choice;
  std::vector<std::pair<double, int32_t>> ranked;
  for (int32_t i = 0; i < n; ++i) {
    const double score = scores[static_cast<size_t>(i)];
    if (i < sinks || i >= n - std::max(recent, 1) || std::isnan(score)) {
      choice.kept.push_back(i);
    } else {
      ranked.emplace_back(score, i);
    }
  }
  std::sort(ranked.begin(), ranked.end());
  const size_t n_ranked = static_cast<size_t>(budget) - choice.kept.size();
  for (size_t r = 0; r < n_ranked; ++r) choice.kept.push_back(ranked[r].second);
  std::sort(choice.kept.begin(), choice.kept.end());
  choice.margin = ranked[n_ranked].first - ranked[n_ranked - 1].first;
  return choice;
}

}  // namespace

void GoldenCase::Add(const std::string& name, const char* dtype, std::vector<int64_t> shape,
                     const void* data, size_t n_bytes) {
  bytes.resize((bytes.size() + 3) / 4 * 4);
  header["arrays"].push_back(
      {{"name", name}, {"dtype", dtype}, {"shape", shape}, {"offset", bytes.size()}});
  bytes.append(static_cast<const char*>(data), n_bytes);
}

void GoldenCase::AddF32(const std::string& name, std::vector<int64_t> shape, const Row& x) {
  const std::vector<float> values(x.begin(), x.end());
  Add(name, "f32", std::move(shape), values.data(), values.size() * sizeof(float));
}

void GoldenCase::AddI32(const std::string& name, std::vector<int64_t> shape, const Ids& x) {
  Add(name, "i32", std::move(shape), x.data(), x.size() * sizeof(int32_t));
}

void GoldenCase::AddU16(const std::string& name, std::vector<int64_t> shape, const Ids& x) {
  const std::vector<uint16_t> values(x.begin(), x.end());
  Add(name, "u16", std::move(shape), values.data(), values.size() * sizeof(uint16_t));
}

size_t GoldenCase::OffsetOf(std::string_view array, size_t index, size_t value_bytes) const {
  for (const json& entry : header.at("arrays")) {
    if (entry.at("name") == array) return entry.at("offset").get<size_t>() + index * value_bytes;
  }
  throw std::logic_error("no array " + std::string(array));
}

float GoldenCase::ReadF32(std::string_view array, size_t index) const {
  float value;
  std::memcpy(&value, bytes.data() + OffsetOf(array, index, sizeof(value)), sizeof(value));
  return value;
}

void GoldenCase::WriteF32(std::string_view array, size_t index, float value) {
  std::memcpy(bytes.data() + OffsetOf(array, index, sizeof(value)), &value, sizeof(value));
}

uint16_t GoldenCase::ReadU16(std::string_view array, size_t index) const {
  uint16_t value;
  std::memcpy(&value, bytes.data() + OffsetOf(array, index, sizeof(value)), sizeof(value));
  return value;
}

void GoldenCase::WriteU16(std::string_view array, size_t index, uint16_t value) {
  std::memcpy(bytes.data() + OffsetOf(array, index, sizeof(value)), &value, sizeof(value));
}

void GoldenCase::Write(const std::filesystem::path& folder, const std::string& name) const {
  const std::filesystem::path base = folder / name;
  std::filesystem::create_directories(base.parent_path());
  json written = header;
  written["bin"] = base.filename().string() + ".bin";
  std::ofstream(base.string() + ".json") << written.dump(1);
  std::ofstream(base.string() + ".bin", std::ios::binary) << bytes;
}

GoldenCase GoldenCase::Read(const std::filesystem::path& folder, const std::string& name) {
  const std::string base = (folder / name).string();
  GoldenCase read;
  std::ifstream(base + ".json") >> read.header;
  std::ifstream bin(base + ".bin", std::ios::binary);
  read.bytes.assign(std::istreambuf_iterator<char>(bin), {});
  return read;
}

GoldenCase MakeLogitsCase(const TinyModel& model, const std::string& model_name, const Ids& ids,
                          int n_greedy) {
  const auto n = static_cast<int64_t>(ids.size());
  const ReferenceResult result = ReferenceForward(model, ids);
  Ids top_ids;
  Row top_logits, logsumexp, nll;
  double sum = 0;
  for (size_t i = 0; i < ids.size(); ++i) {
    const Row& logits = result.logits[i];
    const Ids ranked = Ranked(logits);
    for (int rank = 0; rank < kTop; ++rank) {
      top_ids.push_back(ranked[static_cast<size_t>(rank)]);
      top_logits.push_back(logits[static_cast<size_t>(top_ids.back())]);
    }
    logsumexp.push_back(LogSumExp(logits));
    if (i + 1 < ids.size()) nll.push_back(ReferenceNll(logits, ids[i + 1]));
    if (i + 1 < ids.size()) sum += nll.back();
  }
  Ids text = ids;
  json gaps = json::array();
  for (int i = 0; i < n_greedy; ++i) {
    const Row logits = ReferenceLogits(model, text);
    const Ids ranked = Ranked(logits);
    text.push_back(ranked[0]);
    gaps.push_back(GapOf(logits, ranked));
  }
  GoldenCase made;
  made.header = {{"group", "logits"},
                 {"model", model_name},
                 {"n", n},
                 {"token_ids", ids},
                 {"mean_nll", sum / static_cast<double>(n - 1)},
                 {"greedy_ids", Ids(text.begin() + n, text.end())},
                 {"greedy_gap", gaps}};
  made.AddI32("top5_ids", {n, kTop}, top_ids);
  made.AddF32("top5_logits", {n, kTop}, top_logits);
  made.AddF32("logsumexp", {n}, logsumexp);
  made.AddF32("nll", {n - 1}, nll);
  made.AddF32("last_logits", {model.n_vocab()}, result.logits.back());
  return made;
}

TinyModel WithMeanRow(TinyModel model) {
  const auto d = static_cast<size_t>(model.options.n_embd);
  for (TinyTensor& tensor : model.tensors) {
    if (tensor.name != "token_embd.weight") continue;
    const size_t n_others = tensor.values.size() / d - 1;
    for (size_t column = 0; column < d; ++column) {
      double sum = 0;
      for (size_t row = 0; row < n_others; ++row) sum += tensor.values[row * d + column];
      tensor.values[n_others * d + column] =
          static_cast<float>(sum / static_cast<double>(n_others));
    }
    std::memcpy(tensor.bytes.data(), tensor.values.data(), tensor.bytes.size());
  }
  return model;
}

GoldenCase MakeScoresCase(const TinyModel& model, const std::string& model_name, const Ids& ids,
                          int32_t mean_id) {
  const auto n = static_cast<int>(ids.size());
  Ids positions(ids.size());
  for (int i = 0; i < n; ++i) positions[static_cast<size_t>(i)] = i;
  GoldenCase made;
  const Ids budgets = {n / 2, n / 4};
  made.header = {{"group", "counter-causal"},
                 {"model", model_name},
                 {"n", n},
                 {"token_ids", ids},
                 {"keep_J", budgets}};

  const auto add = [&](const std::string& id, const TinyModel& pass_model, auto query_of,
                       int undefined) {
    std::vector<FlipQuery> queries;
    for (int i = 0; i < n; ++i) queries.push_back(query_of(i));
    const std::vector<Row> rows = FlippedPass(pass_model, ids, positions, queries);
    std::map<std::string, Row> scores;
    for (int i = 0; i < n; ++i) {
      const Row& z = rows[static_cast<size_t>(i)];
      double mean = 0;
      for (const double logit : z) mean += logit / static_cast<double>(z.size());
      const double raw =
          i == undefined ? kNan : z[static_cast<size_t>(ids[static_cast<size_t>(i)])];
      scores["raw"].push_back(raw);
      scores["centred"].push_back(raw - mean);
      scores["logprob"].push_back(raw - LogSumExp(z));
    }
    for (const auto& [kind, values] : scores) {
      made.AddF32(StrCat(id, "_", kind), {n}, values);
      for (const int32_t budget : budgets) {
        const std::string set = StrCat(id, "_", kind, "_J", budget);
        const Choice choice = KeepLowest(values, budget, 0, 1);
        made.header["keep"][set] = choice.kept;
        made.header["keep_margin"][set] = choice.margin;
      }
    }
  };
  const auto id_at = [&](int i) { return ids[static_cast<size_t>(std::clamp(i, 0, n - 1))]; };
  const auto own = [&](int i) { return FlipQuery{id_at(i), i, i + 1}; };
  add("A", model, own, -1);
  add(
      "B", model,
      [&](int i) {
        return FlipQuery{id_at(i - 1), i - 1, i + 1};
      },
      0);
  add(
      "C", model,
      [&](int i) {
        return FlipQuery{id_at(i + 1), i + 1, i + 2};
      },
      n - 1);
  add(
      "D_mean", model,
      [&](int i) {
        return FlipQuery{mean_id, i - 1, i + 1};
      },
      -1);
  add(
      "D_bos", model,
      [&](int i) {
        return FlipQuery{kBos, i - 1, i + 1};
      },
      -1);
  add("fast", WithoutFfn(model), own, -1);
  add("fast_ffn", model, own, -1);
  return made;
}

}  // namespace kvbound::testing
