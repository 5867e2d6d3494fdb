#include "model/model_file.h"

#include <gtest/gtest.h>
#include <llama.h>
#include <sys/resource.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/strings.h"
#include "testing/expect_refused.h"
#include "testing/gguf_upgrade.h"
#include "testing/gguf_writer.h"
#include "testing/paths.h"
#include "testing/tiny_model.h"

namespace kvbound {
namespace {

using testing::GgufBytes;
using testing::GgufSpec;
using testing::MakeTinyModel;
using testing::TinyModelOptions;

Status CheckBytes(const GgufBytes& bytes) {
  KVBOUND_ASSIGN_OR_RETURN(GgufFile file, GgufFile::FromMemory(bytes, "t.gguf"));
  return CheckModel(std::move(file)).status();
}

// Tokens in the vocabulary that llama finds in the file, 0 when it refuses it.
int VocabularySizeOf(const std::string& path) {
  llama_log_set([](ggml_log_level, const char*, void*) {}, nullptr);
  llama_model_params params = llama_model_default_params();
  params.vocab_only = true;
  llama_model* model = llama_model_load_from_file(path.c_str(), params);
  if (model == nullptr) return 0;
  const int n = llama_vocab_n_tokens(llama_model_get_vocab(model));
  llama_model_free(model);
  return n;
}

TEST(ModelFileTest, OpensValidButUnusualModels) {
  std::vector<TinyModelOptions> models(7);
  models[1].tied = true;
  models[2].head_dim = 16;
  models[3].n_kv_head = 1;
  models[4].rope_factors = {1, 2, 4, 8};
  models[5].n_layer = 1;
  models[6].head_dim = 16;
  models[6].n_rot = 8;
  for (const TinyModelOptions& options : models) {
    const std::string path = MakeTinyModel(options).Write();
    for (const bool mmap : {true, false}) {
      const Result<CheckedModelFile> model = OpenCheckedModel(path, {.mmap = mmap});
      ASSERT_TRUE(model.ok()) << model.status();
      EXPECT_EQ(model->hparams.head_dim, options.head_dim);
      EXPECT_EQ(model->hparams.n_kv_head, options.n_kv_head);
    }
  }
}

TEST(ModelFileTest, OpensKeysAndTensorsInAnyOrder) {
  GgufSpec spec = MakeTinyModel().Spec();
  spec.Set(testing::NumberKey("x.u8", GgufType::kU8, 7))
      .Set(testing::NumberKey("x.i64", GgufType::kI64, -5))
      .Set(testing::NumberKey("x.f64", GgufType::kF64, 1.5))
      .Set(testing::NumbersKey("x.none", GgufType::kU32, {}))
      .Set(testing::StringKey("x.text", std::string("\xc3\xa9\0z", 4)))
      .Set(testing::StringKey("x.long", std::string(70000, 'y')));
  std::reverse(spec.keys.begin(), spec.keys.end());
  std::reverse(spec.tensors.begin(), spec.tensors.end());
  EXPECT_TRUE(CheckBytes(BuildGguf(spec)).ok()) << CheckBytes(BuildGguf(spec));
}

TEST(ModelFileTest, RefusesAVocabularyWithoutAModel) {
  GgufSpec spec = MakeTinyModel().Spec();
  spec.tensors.clear();
  testing::ExpectRefused(CheckBytes(BuildGguf(spec)), {"token_embd.weight", "missing"});
}

TEST(ModelFileTest, OpensAModelInShards) {
  const GgufSpec whole = MakeTinyModel().Spec();
  const std::string dir = testing::MakeTempDir();
  for (int i = 0; i < 2; ++i) {
    GgufSpec shard;
    if (i == 0) shard.keys = whole.keys;
    shard.Set(testing::NumberKey("split.no", GgufType::kU16, i))
        .Set(testing::NumberKey("split.count", GgufType::kU16, 2))
        .Set(testing::NumberKey("split.tensors.count", GgufType::kI32, whole.tensors.size()));
    const auto middle = whole.tensors.begin() + 7;
    shard.tensors = i == 0 ? std::vector(whole.tensors.begin(), middle)
                           : std::vector(middle, whole.tensors.end());
    testing::WriteFile(StrCat(dir, "/m-0000", i + 1, "-of-00002.gguf"), BuildGguf(shard));
  }
  const Result<CheckedModelFile> model = OpenCheckedModel(dir + "/m-00001-of-00002.gguf");
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->file.tensors().size(), whole.tensors.size());
}

TEST(ModelFileTest, RefusesTruncatedModels) {
  const GgufBytes bytes = MakeTinyModel().Bytes();
  for (size_t size = 0; size < bytes.size(); size += 1 + size / 37) {
    const GgufBytes cut(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(size));
    testing::ExpectRefused(CheckBytes(cut), {"t.gguf"});
  }
}

TEST(ModelFileTest, SurvivesFlippedBits) {
  TinyModelOptions options;
  options.n_layer = 1;
  const GgufBytes bytes = MakeTinyModel(options).Bytes();
  const size_t header_bytes = GgufFile::FromMemory(bytes)->tensors().front().offset;
  for (size_t i = 0; i < header_bytes; i += 7) {
    GgufBytes flipped = bytes;
    flipped[i] ^= static_cast<uint8_t>(1u << (i * 7 % 8));
    static_cast<void>(CheckBytes(flipped));
  }
}

TEST(ModelFileTest, VocabularyGgufLoadsInLlama) {
  TinyModelOptions options;
  options.arch = Arch::kQwen3;
  const std::string path = MakeTinyModel(options).Write();
  const Result<CheckedModelFile> model = OpenCheckedModel(path);
  ASSERT_TRUE(model.ok()) << model.status();
  const std::string vocabulary = testing::WriteTemp(VocabularyGguf(model->file));
  EXPECT_EQ(VocabularySizeOf(vocabulary), 286);
  EXPECT_EQ(VocabularySizeOf(path), 286);
}

TEST(ModelFileTest, UpgradedVersion1Loads) {
  const auto v1 = testing::SharedDir() / "data/models/stories260k/tinyllamas-stories-260k-f32.gguf";
  KVBOUND_SKIP_WITHOUT(v1);
  testing::ExpectRefused(OpenCheckedModel(v1.string()).status(), {"version", "rewrite it"});
  const std::string v3 = testing::MakeTempDir() + "/stories260k.gguf";
  ASSERT_TRUE(testing::UpgradeGgufFile(v1.string(), v3).ok());
  const Result<CheckedModelFile> model = OpenCheckedModel(v3);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->hparams.n_vocab, 512);
  EXPECT_EQ(VocabularySizeOf(v3), 512);
}

TEST(ModelFileTest, OpensTheDefaultModel) {
  KVBOUND_SKIP_WITHOUT(testing::DefaultModel());
  const Result<CheckedModelFile> model = OpenCheckedModel(testing::DefaultModel().string());
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->hparams.arch, Arch::kLlama);
}

int64_t PeakRssBytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss * 1024;
}

// The files made from public bug reports: each loads or is refused with the words it asks for.
TEST(ModelFileTest, FilesFromBugReports) {
  const auto script = testing::SharedDir() / "cases/open/make_gguf.py";
  KVBOUND_SKIP_WITHOUT(script);
  const std::string dir = testing::MakeTempDir();
  const std::string command =
      StrCat("python3 '", script.string(), "' '", dir, "' > '", dir, "/log' 2>&1");
  if (std::system(command.c_str()) != 0) GTEST_SKIP() << "skipped: python3 cannot run " << script;
  std::ifstream manifest(dir + "/manifest.jsonl");
  const int64_t rss_before = PeakRssBytes();
  int n_cases = 0;
  for (std::string line; std::getline(manifest, line); ++n_cases) {
    const nlohmann::json item = nlohmann::json::parse(line);
    const std::string file = item.at("file").get<std::string>();
    const Result<CheckedModelFile> model = OpenCheckedModel(dir + "/" + file);
    SCOPED_TRACE(file);
    if (item.at("expect") == "load") {
      EXPECT_TRUE(model.ok()) << model.status();
      continue;
    }
    auto words = item.at("names").get<std::vector<std::string>>();
    words.insert(words.end(), {file, "expected", "found"});
    testing::ExpectRefused(model.status(), words);
  }
  EXPECT_GE(n_cases, 80);
  EXPECT_LT(PeakRssBytes() - rss_before, int64_t{64} << 20);
}

}  // namespace
}  // namespace kvbound
