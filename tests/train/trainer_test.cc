#include "train/trainer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "testing/paths.h"
#include "testing/tiny_model.h"

namespace kvbound::train {
namespace {

namespace fs = std::filesystem;

std::string ReadAll(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

class TrainerTest : public ::testing::Test {
 protected:
  TrainerTest() {
    const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
    folder_ = fs::path(::testing::TempDir()) / ("trainer_" + std::string(info->name()));
    fs::remove_all(folder_);
    fs::create_directories(folder_ / "text");
    std::string text;
    for (int i = 0; i < 60; ++i) text += "some words about number " + std::to_string(i) + ". ";
    Write("text/a.txt", text);
    Write("text/b.txt", "a short document");
    config_.model = testing::MakeTinyModel().Write();
    config_.texts = {(folder_ / "text").string()};
    config_.output = (folder_ / "out.gguf").string();
    config_.type = GateType::kF32;
    config_.n_hidden = 8;
    config_.memory = 6;
    config_.sinks = 2;
    config_.seq_len = 64;
    config_.tokens = 64 * 12;
    config_.checkpoint_every = 3;
    config_.fact_share = 0.6;
    auto alone = MakeCommunicator({});
    EXPECT_TRUE(alone.ok());
    alone_ = std::move(*alone);
    observer_.on_step = [this](const StepReport& report) {
      reports_.push_back(report);
      return report.step != stop_at_;
    };
    observer_.say = [this](const std::string& line) { said_ += line + "\n"; };
  }
  ~TrainerTest() override { fs::remove_all(folder_); }

  void Write(const std::string& name, const std::string& text) {
    std::ofstream(folder_ / name, std::ios::binary) << text;
  }

  Status Train() {
    auto trainer = Trainer::Make(config_, alone_.get(), observer_);
    return trainer.ok() ? (*trainer)->Run() : trainer.status();
  }

  fs::path folder_;
  TrainConfig config_;
  std::unique_ptr<Communicator> alone_;
  TrainObserver observer_;
  std::vector<StepReport> reports_;
  std::string said_;
  int64_t stop_at_ = -1;
};

TEST_F(TrainerTest, LearnsAndWritesGatesWithTheirRecord) {
  config_.tokens = 64 * 60;
  config_.learning_rate = 1e-2;
  config_.fact_share = 0;
  ASSERT_TRUE(Train().ok());
  EXPECT_LT(reports_.back().loss, reports_.front().loss);
  const auto gates = Gates::Load(config_.output);
  ASSERT_TRUE(gates.ok()) << gates.status();
  const GateTraining& training = (*gates)->parts().training;
  EXPECT_EQ(training.method, "local");
  ASSERT_EQ(training.texts.size(), 2u);
  EXPECT_EQ(training.texts[1].substr(0, 23), "b.txt, 16 bytes, fnv1a ");
  EXPECT_EQ(training.steps, reports_.back().step);
  EXPECT_EQ(training.tokens, reports_.back().tokens);
  EXPECT_GT(training.loss, 0);
  EXPECT_FALSE(fs::exists(config_.checkpoint_path()));
}

TEST_F(TrainerTest, FullStageStartsFromALocalGate) {
  ASSERT_TRUE(Train().ok());
  config_.init = config_.output;
  config_.output = (folder_ / "full.gguf").string();
  config_.stage = Stage::kFull;
  config_.n_hidden.reset();
  config_.tokens = 64 * 4;
  const Status status = Train();
  ASSERT_TRUE(status.ok()) << status;
  const auto gates = Gates::Load(config_.output);
  ASSERT_TRUE(gates.ok()) << gates.status();
  EXPECT_EQ((*gates)->parts().training.method, "local, full");
}

TEST_F(TrainerTest, ResumedRunGivesTheSameFile) {
  for (const Stage stage : {Stage::kLocal, Stage::kFull}) {
    config_.stage = stage;
    config_.output = (folder_ / "whole.gguf").string();
    ASSERT_TRUE(Train().ok());
    config_.output = (folder_ / "resumed.gguf").string();
    stop_at_ = 5;
    EXPECT_EQ(Train().code(), StatusCode::kCancelled);
    EXPECT_FALSE(fs::exists(config_.output));
    stop_at_ = -1;
    config_.resume = true;
    const Status status = Train();
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_EQ(ReadAll(config_.output), ReadAll((folder_ / "whole.gguf").string()));
    config_.resume = false;
    fs::remove(config_.output);
  }
}

TEST_F(TrainerTest, EvaluationUnderEvictionKeepsTheBest) {
  config_.eval_files = {(folder_ / "text/a.txt").string()};
  config_.n_eval_text = 2;
  config_.eval_len = 100;
  config_.eval_budget = 16;
  config_.eval_every = 4;
  std::vector<EvaluationReport> evaluations;
  observer_.on_evaluation = [&](const EvaluationReport& report) { evaluations.push_back(report); };
  const Status status = Train();
  ASSERT_TRUE(status.ok()) << status;
  ASSERT_GE(evaluations.size(), 3u);
  EXPECT_TRUE(evaluations[0].best);
  double least = evaluations[0].kl;
  for (const auto& evaluation : evaluations) least = std::min(least, evaluation.kl);
  const auto gates = Gates::Load(config_.output);
  ASSERT_TRUE(gates.ok()) << gates.status();
  EXPECT_EQ((*gates)->parts().training.eviction_kl, least);
}

TEST_F(TrainerTest, NanStopsWithStepDocumentsAndCheckpoint) {
  config_.learning_rate = 1e30;
  config_.warmup = 0;
  config_.checkpoint_every = 1;
  Write("out.gguf", "what was there");
  const Status status = Train();
  EXPECT_EQ(status.code(), StatusCode::kInternal);
  EXPECT_NE(status.message().find("step 2: the loss is not finite"), std::string::npos) << status;
  EXPECT_NE(status.message().find("a.txt"), std::string::npos) << status;
  EXPECT_NE(status.message().find("out.gguf.ckpt (step 1)"), std::string::npos) << status;
  EXPECT_EQ(ReadAll(config_.output), "what was there");
  EXPECT_TRUE(LoadCheckpoint(config_.checkpoint_path()).ok());
}

TEST_F(TrainerTest, CheckpointOfAnotherRunIsRefusedByName) {
  stop_at_ = 3;
  EXPECT_EQ(Train().code(), StatusCode::kCancelled);
  const Status unasked = Train();
  EXPECT_NE(unasked.message().find("--resume"), std::string::npos) << unasked;
  config_.resume = true;
  TrainConfig good = config_;
  config_.memory = 7;
  EXPECT_NE(Train().message().find("--memory 6, found 7"), std::string::npos);
  config_ = good;
  testing::TinyModelOptions other;
  other.name = "other";
  config_.model = testing::MakeTinyModel(other).Write();
  EXPECT_NE(Train().message().find("--model"), std::string::npos);
  config_ = good;
  Write("text/b.txt", "a changed document");
  EXPECT_NE(Train().message().find("--text"), std::string::npos);
}

TEST_F(TrainerTest, DamagedCheckpointIsRefused) {
  stop_at_ = 3;
  EXPECT_EQ(Train().code(), StatusCode::kCancelled);
  const std::string good = ReadAll(config_.checkpoint_path());
  config_.resume = true;
  for (const size_t size : {size_t{0}, size_t{5}, size_t{40}, good.size() / 2, good.size() - 1}) {
    Write("out.gguf.ckpt", good.substr(0, size));
    EXPECT_EQ(Train().code(), StatusCode::kCorrupt) << size;
  }
  std::string changed = good;
  changed[good.size() - 100] ^= 1;
  Write("out.gguf.ckpt", changed);
  EXPECT_EQ(Train().code(), StatusCode::kCorrupt);
}

TEST_F(TrainerTest, UnwritableOutputIsNoticedBeforeTraining) {
  config_.output = (folder_ / "absent/out.gguf").string();
  EXPECT_EQ(Train().code(), StatusCode::kIo);
  config_.output = (folder_ / "text").string();
  EXPECT_EQ(Train().code(), StatusCode::kIo);
  EXPECT_TRUE(reports_.empty());
}

TEST_F(TrainerTest, FullDiskLeavesTheOldCheckpoint) {
  KVBOUND_SKIP_WITHOUT("/dev/full");
  // The new file is written beside the old one: there it meets a device without room.
  fs::create_symlink("/dev/full", config_.output + ".ckpt.part");
  Checkpoint checkpoint;
  checkpoint.tensors.emplace_back("value/x", torch::ones({1000}));
  Write("out.gguf.ckpt", "old");
  const Status status = SaveCheckpoint(checkpoint, config_.checkpoint_path());
  EXPECT_EQ(status.code(), StatusCode::kIo);
  EXPECT_NE(status.message().find("No space left"), std::string::npos) << status;
  EXPECT_EQ(ReadAll(config_.checkpoint_path()), "old");
}

TEST_F(TrainerTest, FullDiskAtACheckpointIsSaidAndTrainingGoesOn) {
  KVBOUND_SKIP_WITHOUT("/dev/full");
  const auto on_step = observer_.on_step;
  observer_.on_step = [&](const StepReport& report) {
    if (report.step == 6) fs::create_symlink("/dev/full", config_.output + ".ckpt.part");
    return on_step(report);
  };
  const Status status = Train();
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_NE(said_.find("No space left"), std::string::npos) << said_;
  EXPECT_TRUE(Gates::Load(config_.output).ok());
}

TEST_F(TrainerTest, GatesThatCannotBeWrittenAreKeptInTheCheckpoint) {
  observer_.on_step = [&](const StepReport& report) {
    if (report.step == report.n_step) fs::create_directory(config_.output);
    return true;
  };
  const Status status = Train();
  EXPECT_FALSE(status.ok());
  EXPECT_NE(status.message().find("--resume"), std::string::npos) << status;
  fs::remove(config_.output);
  config_.resume = true;
  observer_.on_step = nullptr;
  ASSERT_TRUE(Train().ok());
  EXPECT_TRUE(Gates::Load(config_.output).ok());
}

TEST_F(TrainerTest, UnusableDocumentsAreListedAndSkipped) {
  const fs::path docs = testing::SharedDir() / "cases/open/train/27-docs";
  KVBOUND_SKIP_WITHOUT(docs);
  config_.texts = {docs.string()};
  for (const bool pack : {true, false}) {
    for (const int64_t memory : {int64_t{6}, int64_t{100000}}) {
      config_.pack = pack;
      config_.memory = memory;
      said_.clear();
      const Status status = Train();
      ASSERT_TRUE(status.ok()) << status;
      for (const char* line : {"empty.txt: empty", "nul.txt: has NUL characters",
                               "one-token.txt: fewer than two tokens", "spaces.txt: only spaces"}) {
        EXPECT_NE(said_.find(line), std::string::npos) << line << "\n" << said_;
      }
      EXPECT_TRUE(Gates::Load(config_.output).ok());  // which refuses NaN
    }
  }
}

TEST_F(TrainerTest, NothingLeftIsRefusedWithReasons) {
  Write("text/a.txt", "");
  Write("text/b.txt", "x");
  const Status status = Train();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("a.txt: empty"), std::string::npos) << status;
  EXPECT_NE(status.message().find("b.txt: fewer than two tokens"), std::string::npos) << status;
}

TEST_F(TrainerTest, TextShorterThanASequenceIsOneShortSequence) {
  Write("text/a.txt", "a text of few words");
  config_.seq_len = 512;
  config_.tokens = 200;
  ASSERT_TRUE(Train().ok());
  EXPECT_GT(reports_.size(), 3u);
}

}  // namespace
}  // namespace kvbound::train
