#include "train/dataset.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "base/hash.h"
#include "testing/tiny_model.h"

namespace kvbound::train {
namespace {

TextCorpus Corpus(const std::vector<std::string>& texts) {
  TextCorpus corpus;
  TextFile& file = corpus.files.emplace_back();
  for (size_t i = 0; i < texts.size(); ++i) {
    file.documents.push_back({"doc" + std::to_string(i), texts[i]});
  }
  return corpus;
}

std::string Words(int n, char from = 'a') {
  std::string text;
  for (int i = 0; i < n; ++i) text += static_cast<char>(from + i % 26);
  return text;
}

class DatasetTest : public ::testing::Test {
 protected:
  DatasetTest() {
    auto tokenizer = Tokenizer::Load(testing::MakeTinyModel().Write());
    EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
    tokenizer_ = *tokenizer;
    options_.seq_len = 16;
  }

  std::unique_ptr<Dataset> Make(const std::vector<std::string>& texts) {
    auto dataset = Dataset::Make(tokenizer_, Corpus(texts), options_);
    EXPECT_TRUE(dataset.ok()) << dataset.status();
    return dataset.ok() ? std::move(*dataset) : nullptr;
  }

  std::vector<int64_t> List(const Tensor& tensor) {
    return {tensor.data_ptr<int64_t>(), tensor.data_ptr<int64_t>() + tensor.numel()};
  }

  std::shared_ptr<const Tokenizer> tokenizer_;
  DatasetOptions options_;
};

TEST_F(DatasetTest, LongDocumentsGiveConsecutiveWindows) {
  auto dataset = Make({Words(100)});
  const int64_t n_bos = tokenizer_->AddsBos() ? 1 : 0;
  const int64_t window = 16 - n_bos;
  EXPECT_EQ(dataset->n_sequence(), 100 / window + (100 % window >= 2 ? 1 : 0));
  std::multiset<int64_t> seen;
  for (int64_t i = 0; i < dataset->n_sequence(); ++i) {
    const Sequence sequence = *dataset->Get(i);
    const auto tokens = List(sequence.tokens);
    seen.insert(tokens.begin() + n_bos, tokens.end());
    EXPECT_LE(tokens.size(), 16u);
    EXPECT_EQ(sequence.labels[0].item<int64_t>(), kIgnoredLabel);
    EXPECT_TRUE(torch::equal(sequence.positions, torch::arange(sequence.tokens.size(0))));
  }
  EXPECT_EQ(seen.size(), 100u);  // one pass reads every token once
}

TEST_F(DatasetTest, ShortDocumentsArePackedAndSeeThemselvesOnly) {
  auto dataset = Make({Words(5), Words(6, 'b'), Words(4, 'c'), Words(7, 'd')});
  for (int64_t i = 0; i < dataset->n_sequence(); ++i) {
    const Sequence sequence = *dataset->Get(i);
    const auto positions = List(sequence.positions);
    const auto document = List(sequence.document);
    const auto labels = List(sequence.labels);
    for (size_t t = 0; t < positions.size(); ++t) {
      const bool first = t == 0 || document[t] != document[t - 1];
      EXPECT_EQ(positions[t], first ? 0 : positions[t - 1] + 1);
      EXPECT_EQ(labels[t] == kIgnoredLabel, first);
      if (t > 0 && first) {
        EXPECT_EQ(document[t], document[t - 1] + 1);
      }
    }
    EXPECT_EQ(static_cast<int64_t>(sequence.names.size()), document.back() + 1);
  }
  options_.pack = false;
  EXPECT_EQ(Make({Words(5), Words(6), Words(4), Words(7)})->n_sequence(), 4);
}

TEST_F(DatasetTest, SequencesDependOnSeedAndIndexAlone) {
  options_.fact_share = 0.5;
  options_.seq_len = 400;
  const std::vector<std::string> texts = {Words(3000), Words(200)};
  auto a = Make(texts), b = Make(texts);
  options_.seed = 2;
  auto other = Make(texts);
  bool differs = false;
  std::vector<Sequence> forward;
  for (int64_t i = 0; i < 30; ++i) forward.push_back(*a->Get(i));
  for (int64_t i = 29; i >= 0; --i) {
    EXPECT_TRUE(torch::equal(b->Get(i)->tokens, forward[i].tokens)) << i;
    differs |= !torch::equal(other->Get(i)->tokens, forward[i].tokens);
  }
  EXPECT_TRUE(differs);
}

TEST_F(DatasetTest, FactsStandInTheTextAndAreAskedAtItsEnd) {
  options_.fact_share = 1;
  options_.seq_len = 1024;
  std::string text;
  for (int i = 0; i < 300; ++i) text += "plain words here. ";
  auto dataset = Make({text});
  int with_facts = 0;
  for (int64_t i = 0; i < 10; ++i) {
    const Sequence sequence = *dataset->Get(i);
    EXPECT_LE(sequence.tokens.size(0), 1024);
    const float* weight = sequence.row_weight.data_ptr<float>();
    const auto n = sequence.row_weight.numel();
    const auto first = std::find(weight, weight + n, kQuizWeight) - weight;
    if (first == n) continue;
    ++with_facts;
    EXPECT_GT(first, n / 2);
    for (auto t = first; t < n; ++t) EXPECT_EQ(weight[t], kQuizWeight);
    EXPECT_EQ(sequence.document.max().item<int64_t>(), 0);
  }
  EXPECT_GT(with_facts, 3);
}

TEST_F(DatasetTest, ShareOfSequencesWithFactsIsKept) {
  options_.fact_share = 0.6;
  options_.seq_len = 2048;
  auto dataset = Make({Words(100000)});
  int with_facts = 0;
  for (int64_t i = 0; i < 300; ++i) {
    with_facts += dataset->Get(i)->row_weight.max().item<float>() > 1;
  }
  EXPECT_NEAR(with_facts, 180, 30);
}

TEST(TextFilesTest, ReadsEveryKindInNameOrder) {
  namespace fs = std::filesystem;
  const fs::path folder = fs::path(::testing::TempDir()) / "text_files_test";
  fs::remove_all(folder);
  fs::create_directories(folder / "b");
  const auto write = [&](const std::string& name, const std::string& text) {
    std::ofstream(folder / name, std::ios::binary) << text;
  };
  write("b/book.txt",
        "\xEF\xBB\xBFhead\r\n*** START OF THIS BOOK ***\r\nTold.\r\n*** END OF THIS BOOK ***\r\n");
  write("a.jsonl", "{\"question\":\"How?\",\"answer\":\"So.\"}\n\n{\"id\":3}\n");
  write("c.json", "[{\"instruction\":\"Do\",\"response\":\"Done\"},{\"text\":\"\"}]");
  write("LICENSE.txt", "legal");
  write("image.png", "no text");
  const auto corpus = ReadTexts({folder.string()});
  ASSERT_TRUE(corpus.ok()) << corpus.status();
  ASSERT_EQ(corpus->files.size(), 3u);
  EXPECT_EQ(corpus->files[0].documents[0].text, "How?\nSo.");
  EXPECT_EQ(corpus->files[1].documents[0].text.find("Told."), 0u);
  EXPECT_EQ(corpus->files[1].documents[0].text.find("END"), std::string::npos);
  EXPECT_EQ(corpus->files[2].documents[0].text, "Do\nDone");
  EXPECT_EQ(corpus->skipped.size(), 3u);  // the licence, the line and the item without text
  EXPECT_EQ(ReadTexts({(folder / "absent").string()}).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(ReadTexts({(folder / "image.png").string()}).status().code(), StatusCode::kUnsupported);
  write("bad.jsonl", "{\"text\":\"fine\"}\n{\"text\":");
  const auto bad = ReadTexts({(folder / "bad.jsonl").string()});
  EXPECT_EQ(bad.status().code(), StatusCode::kCorrupt);
  EXPECT_NE(bad.status().message().find("bad.jsonl:2"), std::string::npos);
  fs::remove_all(folder);
}

TEST(TextFilesTest, HashIsFnv1a) {
  EXPECT_EQ(Fnv1a64(""), 0xcbf29ce484222325u);
  EXPECT_EQ(Fnv1a64("a"), 0xaf63dc4c8601ec8cu);
}

}  // namespace
}  // namespace kvbound::train
