#include "train/dataset.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/strings.h"
#include "train/facts.h"

namespace kvbound::train {
namespace {

// Streams of random numbers: one per use.
enum Stream : uint64_t { kPacking, kOrder, kFacts };

constexpr int kMaxFacts = 4;

Tensor ToTensor(const std::vector<int64_t>& values) {
  return torch::tensor(values, torch::dtype(torch::kLong));
}

bool EndsSentence(const std::string& piece) {
  const size_t end = piece.find_last_not_of("\"')");
  return end != std::string::npos &&
         (piece[end] == '.' || piece[end] == '!' || piece[end] == '?' || piece[end] == '\n');
}

}  // namespace

Dataset::Dataset(std::shared_ptr<const Tokenizer> tokenizer, const DatasetOptions& options)
    : tokenizer_(std::move(tokenizer)), options_(options) {
  if (tokenizer_->AddsBos()) bos_ = tokenizer_->Bos();
}

Result<std::unique_ptr<Dataset>> Dataset::Make(std::shared_ptr<const Tokenizer> tokenizer,
                                               const TextCorpus& corpus,
                                               const DatasetOptions& options) {
  std::unique_ptr<Dataset> dataset(new Dataset(std::move(tokenizer), options));
  dataset->skipped_ = corpus.skipped;
  KVBOUND_RETURN_IF_ERROR(dataset->AddDocuments(corpus));
  if (dataset->documents_.empty()) {
    std::string reasons;
    for (const Skipped& skipped : dataset->skipped_) {
      if (reasons.size() < 1000) reasons += StrCat("; ", skipped.name, ": ", skipped.reason);
    }
    return InvalidArgument(StrCat("--text: no document to train on", reasons));
  }
  dataset->CutAndPack();
  return dataset;
}

Status Dataset::AddDocuments(const TextCorpus& corpus) {
  for (const TextFile& file : corpus.files) {
    for (const TextDocument& document : file.documents) {
      Result<std::vector<Token>> tokens = Encode(document.text);
      if (!tokens.ok()) {
        skipped_.push_back({document.name, tokens.status().message()});
      } else if (tokens->size() < 2) {
        skipped_.push_back({document.name, "fewer than two tokens"});
      } else {
        n_token_ += static_cast<int64_t>(tokens->size());
        documents_.push_back({document.name, std::move(*tokens)});
      }
    }
  }
  return Status::Ok();
}

Result<std::vector<Token>> Dataset::Encode(const std::string& text) const {
  const TextPart part{text, false};
  return tokenizer_->EncodeParts({&part, 1}, /*add_special=*/false, /*continues=*/true);
}

void Dataset::CutAndPack() {
  const int64_t n_bos = bos_ ? 1 : 0;
  const size_t window = static_cast<size_t>(options_.seq_len - n_bos);
  Pieces rest;
  for (size_t i = 0; i < documents_.size(); ++i) {
    const size_t n = documents_[i].tokens.size();
    size_t begin = 0;
    for (; begin + window <= n; begin += window) sequences_.push_back({{i, begin, begin + window}});
    if (n - begin >= 2) rest.push_back({i, begin, n});
  }
  if (!options_.pack) {
    for (const Piece& piece : rest) sequences_.push_back({piece});
    return;
  }
  Random random = Random::ForItem(options_.seed, kPacking, 0);
  random.Shuffle(&rest);
  Pieces row;
  int64_t used = 0;
  const auto finish = [&] {
    if (!row.empty()) sequences_.push_back(std::exchange(row, {}));
    used = 0;
  };
  for (Piece piece : rest) {
    while (piece.size() >= 2) {
      const int64_t room = options_.seq_len - used - n_bos;
      if (room < 2) {
        finish();
        continue;
      }
      const size_t cut = std::min(piece.end, piece.begin + static_cast<size_t>(room));
      row.push_back({piece.document, piece.begin, cut});
      used += n_bos + static_cast<int64_t>(cut - piece.begin);
      piece.begin = cut;
    }
  }
  finish();
}

const Dataset::Pieces& Dataset::At(int64_t index) {
  const int64_t epoch = index / n_sequence();
  if (epoch != epoch_) {
    order_.resize(sequences_.size());
    std::iota(order_.begin(), order_.end(), int64_t{0});
    Random random = Random::ForItem(options_.seed, kOrder, static_cast<uint64_t>(epoch));
    random.Shuffle(&order_);
    epoch_ = epoch;
  }
  return sequences_[static_cast<size_t>(order_[static_cast<size_t>(index % n_sequence())])];
}

// The next token belongs to a new document.
void Dataset::StartDocument(Row* row, int64_t number) const {
  const size_t start = row->tokens.size();
  row->document.resize(start, number - 1);
  if (bos_) row->tokens.push_back(*bos_);
}

Result<Sequence> Dataset::Get(int64_t index) {
  const Pieces& pieces = At(index);
  Random random = Random::ForItem(options_.seed, kFacts, static_cast<uint64_t>(index));
  Row row;
  bool with_facts = random.Unit() < options_.fact_share;
  if (with_facts) {
    KVBOUND_ASSIGN_OR_RETURN(with_facts, AddWithFacts(pieces, &random, &row));
  }
  if (!with_facts) {
    for (size_t i = 0; i < pieces.size(); ++i) {
      StartDocument(&row, static_cast<int64_t>(i));
      const std::vector<Token>& tokens = documents_[pieces[i].document].tokens;
      row.tokens.insert(row.tokens.end(), tokens.begin() + pieces[i].begin,
                        tokens.begin() + pieces[i].end);
    }
    row.document.resize(row.tokens.size(), static_cast<int64_t>(pieces.size()) - 1);
  }
  row.weight.resize(row.tokens.size(), 1.0f);
  for (size_t t = 0; t < row.tokens.size(); ++t) {
    const bool first = t == 0 || row.document[t] != row.document[t - 1];
    row.positions.push_back(first ? 0 : row.positions.back() + 1);
    row.labels.push_back(first ? kIgnoredLabel : row.tokens[t]);
  }
  Sequence sequence{ToTensor(row.tokens),
                    ToTensor(row.positions),
                    ToTensor(row.document),
                    ToTensor(row.labels),
                    torch::tensor(row.weight, torch::dtype(torch::kFloat)),
                    {}};
  for (const Piece& piece : pieces) sequence.names.push_back(documents_[piece.document].name);
  return sequence;
}

// The first place at or after `from` where a sentence or line ends; else the last one before it;
// else `from`. Index of the token behind the end.
size_t Dataset::BreakAfter(const std::vector<Token>& tokens, size_t from) const {
  const auto ends = [&](size_t i) { return EndsSentence(tokenizer_->Piece(tokens[i])); };
  for (size_t i = from; i < tokens.size(); ++i) {
    if (ends(i)) return i + 1;
  }
  for (size_t i = from; i > 0; --i) {
    if (ends(i - 1)) return i;
  }
  return from;
}

Result<std::vector<Dataset::Insert>> Dataset::PlaceFacts(Random* random,
                                                         const std::vector<std::string>& statements,
                                                         const std::vector<Token>& text) const {
  std::vector<Insert> inserts;
  for (const std::string& statement : statements) {
    const size_t at = BreakAfter(text, random->Below(text.size()));
    const bool new_line = at > 0 && tokenizer_->Piece(text[at - 1]).ends_with('\n');
    const bool list = statement.find('\n') != std::string::npos;
    const std::string placed = new_line ? StrCat(statement, "\n\n")
                               : list   ? StrCat("\n\n", statement, "\n\n")
                                        : StrCat(" ", statement);
    KVBOUND_ASSIGN_OR_RETURN(std::vector<Token> tokens, Encode(placed));
    inserts.push_back({at, std::move(tokens)});
  }
  std::stable_sort(inserts.begin(), inserts.end(),
                   [](const Insert& a, const Insert& b) { return a.at < b.at; });
  return inserts;
}

// One document: the pieces' text, shortened at its end, with the facts in it and the questions
// behind it. False, and nothing added, if there is no room.
Result<bool> Dataset::AddWithFacts(const Pieces& pieces, Random* random, Row* row) const {
  std::vector<Token> text;
  for (const Piece& piece : pieces) {
    const std::vector<Token>& tokens = documents_[piece.document].tokens;
    text.insert(text.end(), tokens.begin() + piece.begin, tokens.begin() + piece.end);
  }
  const std::vector<Fact> facts =
      MakeFacts(random, static_cast<int>(random->Between(1, kMaxFacts)));
  const FactQuiz quiz = MakeQuiz(random, facts);
  std::string asked = quiz.heading;
  for (const FactQuiz::Item& item : quiz.items) asked += item.question + item.answer;
  KVBOUND_ASSIGN_OR_RETURN(const std::vector<Token> quiz_tokens, Encode(asked));
  std::vector<std::string> statements;
  std::string all_statements;
  for (const Fact& fact : facts) {
    statements.push_back(fact.statement);
    all_statements += StrCat("\n\n", fact.statement, "\n\n");
  }
  KVBOUND_ASSIGN_OR_RETURN(const std::vector<Token> bound, Encode(all_statements));
  // Tokens at the joints may differ a little from `bound`, hence the spare ones.
  const size_t overhead = quiz_tokens.size() + bound.size() + 8 * facts.size() + (bos_ ? 1 : 0);
  const size_t room = static_cast<size_t>(options_.seq_len);
  if (overhead + text.size() / 2 > room || text.size() < overhead) return false;
  text.resize(std::min(text.size(), room - overhead));
  KVBOUND_ASSIGN_OR_RETURN(const std::vector<Insert> inserts, PlaceFacts(random, statements, text));
  StartDocument(row, 0);
  size_t next = 0;
  for (size_t i = 0; i <= text.size(); ++i) {
    for (; next < inserts.size() && inserts[next].at == i; ++next) {
      row->tokens.insert(row->tokens.end(), inserts[next].tokens.begin(),
                         inserts[next].tokens.end());
    }
    if (i < text.size()) row->tokens.push_back(text[i]);
  }
  row->weight.resize(row->tokens.size(), 1.0f);
  row->tokens.insert(row->tokens.end(), quiz_tokens.begin(), quiz_tokens.end());
  row->weight.resize(row->tokens.size(), kQuizWeight);
  row->document.resize(row->tokens.size(), 0);
  return true;
}

}  // namespace kvbound::train
