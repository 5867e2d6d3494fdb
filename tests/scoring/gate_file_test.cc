#include "scoring/gate_file.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include "kvbound/model.h"
#include "testing/expect_refused.h"
#include "testing/gguf_writer.h"
#include "testing/random_gates.h"
#include "testing/tiny_model.h"

namespace kvbound {
namespace {

using testing::ExpectRefused;
using testing::F32Tensor;
using testing::GgufSpec;
using testing::MakeTempDir;
using testing::RandomGateParts;
using testing::RandomGatesOptions;
using testing::U32Key;

void ExpectEqual(const GateLinear& a, const GateLinear& b) {
  EXPECT_EQ(a.weight.type, b.weight.type);
  EXPECT_EQ(a.weight.n_row, b.weight.n_row);
  EXPECT_EQ(a.weight.n_col, b.weight.n_col);
  EXPECT_EQ(a.weight.data, b.weight.data);
  EXPECT_EQ(a.bias, b.bias);
}

void ExpectEqual(const Gates::Parts& a, const Gates::Parts& b) {
  EXPECT_EQ(a.base.architecture, b.base.architecture);
  EXPECT_EQ(a.base.name, b.base.name);
  EXPECT_EQ(a.base.n_layer, b.base.n_layer);
  EXPECT_EQ(a.base.n_embd, b.base.n_embd);
  EXPECT_EQ(a.base.n_kv_head, b.base.n_kv_head);
  EXPECT_EQ(a.base.n_vocab, b.base.n_vocab);
  EXPECT_EQ(a.base.norm_hash, b.base.norm_hash);
  EXPECT_EQ(a.activation, b.activation);
  EXPECT_EQ(a.tied_output, b.tied_output);
  EXPECT_EQ(a.training.method, b.training.method);
  EXPECT_EQ(a.training.texts, b.training.texts);
  EXPECT_EQ(a.training.tokens, b.training.tokens);
  EXPECT_EQ(a.training.steps, b.training.steps);
  EXPECT_EQ(a.training.seq_len, b.training.seq_len);
  EXPECT_EQ(a.training.memory, b.training.memory);
  EXPECT_EQ(a.training.seed, b.training.seed);
  EXPECT_EQ(a.training.fact_share, b.training.fact_share);
  EXPECT_EQ(a.training.loss, b.training.loss);
  EXPECT_EQ(a.training.capacity_loss, b.training.capacity_loss);
  EXPECT_EQ(a.training.eviction_kl, b.training.eviction_kl);
  ASSERT_EQ(a.layers.size(), b.layers.size());
  for (size_t l = 0; l < a.layers.size(); ++l) {
    ASSERT_EQ(a.layers[l].hidden.size(), b.layers[l].hidden.size());
    for (size_t k = 0; k < a.layers[l].hidden.size(); ++k) {
      ExpectEqual(a.layers[l].hidden[k], b.layers[l].hidden[k]);
    }
    ExpectEqual(a.layers[l].output, b.layers[l].output);
  }
}

TEST(GateFileTest, RoundTripKeepsEverything) {
  for (const GateType type : {GateType::kF32, GateType::kF16, GateType::kQ8_0}) {
    for (const bool tied : {false, true}) {
      for (const std::vector<int64_t>& hidden : {std::vector<int64_t>{64}, {64, 32}}) {
        RandomGatesOptions options;
        options.type = type;
        options.tied_output = tied;
        options.hidden = hidden;
        options.activation = tied ? GateActivation::kGelu : GateActivation::kSilu;
        options.base.norm_hash = 0xfedcba9876543210u;
        const auto gates = *Gates::Make(RandomGateParts(options));
        const std::string path = MakeTempDir() + "/gates.gguf";
        const Status saved = gates->Save(path);
        ASSERT_TRUE(saved.ok()) << saved;
        const auto loaded = Gates::Load(path);
        ASSERT_TRUE(loaded.ok()) << loaded.status();
        EXPECT_EQ((*loaded)->path(), path);
        ExpectEqual((*loaded)->parts(), gates->parts());
      }
    }
  }
}

TEST(GateFileTest, RoundTripOfAnEmptyRecord) {
  Gates::Parts parts = RandomGateParts();
  parts.training = GateTraining();
  parts.base.name.clear();
  const std::string path = MakeTempDir() + "/gates.gguf";
  ASSERT_TRUE((*Gates::Make(parts))->Save(path).ok());
  ExpectEqual((*Gates::Load(path))->parts(), parts);
}

TEST(GateFileTest, TiedOutputIsStoredOnce) {
  RandomGatesOptions options;
  options.tied_output = true;
  const std::string path = MakeTempDir() + "/gates.gguf";
  ASSERT_TRUE((*Gates::Make(RandomGateParts(options)))->Save(path).ok());
  const GgufFile file = *GgufFile::Open(path);
  EXPECT_EQ(file.tensors().size(), 2u * 2 + 2);
  EXPECT_NE(file.FindTensor("gate.output.weight"), nullptr);
  EXPECT_EQ(file.FindTensor("blk.0.gate.output.weight"), nullptr);
}

}  // namespace
}  // namespace kvbound
