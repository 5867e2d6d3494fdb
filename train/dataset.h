#ifndef KVBOUND_TRAIN_DATASET_H_
#define KVBOUND_TRAIN_DATASET_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kvbound/status.h"
#include "kvbound/tokenizer.h"
#include "train/random.h"
#include "train/sequence.h"
#include "train/text_files.h"

namespace kvbound::train {

// What question and answer rows weigh in the local objective beside those of plain text.
inline constexpr float kQuizWeight = 3.0f;

struct DatasetOptions {
  int64_t seq_len = 1024;
  // Documents shorter than a sequence: several in one, or each its own short sequence.
  bool pack = true;
  double fact_share = 0;  // of the sequences, with 1 to 4 generated facts asked at their end
  uint64_t seed = 1;
};

// Training sequences made of texts, without end: pass after pass over the text, each in an order of
// its own. Sequence `i` depends on the texts, the options and `i` alone. A document longer than
// seq_len gives consecutive windows. Not thread-safe.
class Dataset {
 public:
  // Documents of fewer than two tokens are added to skipped(). InvalidArgument: nothing is left,
  // with the reasons.
  static Result<std::unique_ptr<Dataset>> Make(std::shared_ptr<const Tokenizer> tokenizer,
                                               const TextCorpus& corpus,
                                               const DatasetOptions& options);

  // Facts are left out where a sequence has no room for them.
  Result<Sequence> Get(int64_t index);

  int64_t n_sequence() const { return static_cast<int64_t>(sequences_.size()); }  // one pass
  int64_t n_token() const { return n_token_; }                                    // of all texts
  const std::vector<Skipped>& skipped() const { return skipped_; }

 private:
  struct Document {
    std::string name;
    std::vector<Token> tokens;
  };
  struct Piece {  // tokens [begin, end) of a document
    size_t document, begin, end;
    int64_t size() const { return static_cast<int64_t>(end - begin); }
  };
  using Pieces = std::vector<Piece>;
  struct Row {  // a sequence being built
    std::vector<int64_t> tokens, positions, document, labels;
    std::vector<float> weight;
  };
  struct Insert {
    size_t at;
    std::vector<Token> tokens;
  };

  Dataset(std::shared_ptr<const Tokenizer> tokenizer, const DatasetOptions& options);
  Status AddDocuments(const TextCorpus& corpus);
  void CutAndPack();
  const Pieces& At(int64_t index);
  void StartDocument(Row* row, int64_t number) const;
  Result<bool> AddWithFacts(const Pieces& pieces, Random* random, Row* row) const;
  Result<std::vector<Token>> Encode(const std::string& text) const;
  size_t BreakAfter(const std::vector<Token>& tokens, size_t from) const;
  Result<std::vector<Insert>> PlaceFacts(Random* random, const std::vector<std::string>& statements,
                                         const std::vector<Token>& text) const;

  std::shared_ptr<const Tokenizer> tokenizer_;
  DatasetOptions options_;
  std::optional<Token> bos_;  // in front of every window, if the model asks for it
  std::vector<Document> documents_;
  std::vector<Pieces> sequences_;
  std::vector<Skipped> skipped_;
  int64_t n_token_ = 0;
  int64_t epoch_ = -1;
  std::vector<int64_t> order_;  // of epoch_
};

}  // namespace kvbound::train

#endif  // KVBOUND_TRAIN_DATASET_H_
