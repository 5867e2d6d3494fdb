// The policy of docs/writing-a-policy.md: the same text, compiled and run.

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "policy/protection.h"
#include "testing/fake_cache.h"

// begin of the text in docs/writing-a-policy.md
#include <algorithm>
#include <memory>
#include <span>
#include <vector>

#include "kvbound/policy.h"

// Keeps the tokens whose keys are short, which tend to be the ones that draw attention
// (Devoto et al., arXiv 2406.11430). One set of tokens for all layers and heads.
class KeyNorm : public kvbound::EvictionPolicy {
 public:
  kvbound::PolicyInfo Info() const override {
    kvbound::PolicyInfo info;
    info.name = "key-norm";
    info.summary = "keeps the tokens with the smallest key norms";
    info.paper = "arXiv 2406.11430";
    info.granularity = kvbound::Granularity::kShared;
    info.default_protection.sinks = 4;
    info.default_protection.recent = 32;
    return info;
  }

  kvbound::Status Score(const kvbound::CacheView& view, kvbound::ScoreTable& scores) override {
    const std::span<float> row = scores.Row(0);  // [n_slot], higher = keep
    std::fill(row.begin(), row.end(), 0.0f);
    keys_.resize(row.size() * view.head_dim());
    for (int32_t layer = 0; layer < view.n_layer(); ++layer) {
      for (int32_t kv_head = 0; kv_head < view.n_kv_head(); ++kv_head) {
        KVBOUND_RETURN_IF_ERROR(view.ReadKeys(layer, kv_head, keys_));
        for (size_t i = 0; i < keys_.size(); ++i) row[i / view.head_dim()] -= keys_[i] * keys_[i];
      }
    }
    return kvbound::Status::Ok();
  }

 private:
  std::vector<float> keys_;  // [n_slot, head_dim]
};
// end of the text

namespace kvbound {
namespace {

std::string ReadText(const std::string& path) {
  std::ifstream file(std::string(KVBOUND_SOURCE_DIR) + "/" + path);
  EXPECT_TRUE(file.good()) << path;
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST(OwnPolicyTest, TheDocumentShowsThisText) {
  const std::string source = ReadText("tests/policy/own_policy_test.cc");
  const std::string begin_mark = "// begin of the text in docs/writing-a-policy.md\n";
  const size_t begin = source.find(begin_mark) + begin_mark.size();
  const std::string text = source.substr(begin, source.find("// end of the text\n") - begin);
  EXPECT_NE(ReadText("docs/writing-a-policy.md").find("```cpp\n" + text + "```"),
            std::string::npos);
}

TEST(OwnPolicyTest, KeepsTheShortestKeysThroughAFactory) {
  const PolicyFactory factory = [] { return std::make_unique<KeyNorm>(); };
  const auto policy = factory();
  const ProtectedSpans protection = *ProtectedSpans::Resolve({1, 2, false}, policy->Info(), 8);
  testing::FakeCache cache({.budget = 8, .chunk = 24}, policy->Info().granularity);

  testing::FakeCache uncut({.budget = 24, .chunk = 24}, policy->Info().granularity);
  ASSERT_TRUE(uncut.FeedUntil(24, *policy, protection).ok());
  std::vector<float> norms(24), keys(24 * uncut.head_dim());
  for (int32_t layer = 0; layer < uncut.n_layer(); ++layer) {
    for (int32_t kv_head = 0; kv_head < uncut.n_kv_head(); ++kv_head) {
      ASSERT_TRUE(uncut.ReadKeys(layer, kv_head, keys).ok());
      for (size_t i = 0; i < keys.size(); ++i) norms[i / uncut.head_dim()] += keys[i] * keys[i];
    }
  }
  ASSERT_TRUE(cache.FeedUntil(24, *policy, protection).ok());
  const std::vector<int32_t> kept = cache.Kept();
  ASSERT_EQ(kept.size(), 8u);
  float longest_kept = 0, shortest_evicted = 1e30f;
  for (int32_t p = 1; p < 22; ++p) {  // 0 is a sink, 22 and 23 are recent
    if (std::binary_search(kept.begin(), kept.end(), p)) {
      longest_kept = std::max(longest_kept, norms[p]);
    } else {
      shortest_evicted = std::min(shortest_evicted, norms[p]);
    }
  }
  EXPECT_LE(longest_kept, shortest_evicted);
}

}  // namespace
}  // namespace kvbound
