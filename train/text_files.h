#ifndef KVBOUND_TRAIN_TEXT_FILES_H_
#define KVBOUND_TRAIN_TEXT_FILES_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kvbound/status.h"

namespace kvbound::train {

// A document of a text file. `name` is for messages: "emma.txt", "train.jsonl:17".
struct TextDocument {
  std::string name;
  std::string text;
};

// A file as read. `hash` is FNV-1a 64 over all its bytes.
struct TextFile {
  std::string path;
  uint64_t n_byte = 0;
  uint64_t hash = 0;
  std::vector<TextDocument> documents;

  // "emma-158-0.txt, 927445 bytes, fnv1a 0123456789abcdef": for the record of training.
  std::string Describe() const;
};

// Something that was not used, and why.
struct Skipped {
  std::string name;
  std::string reason;
};

struct TextCorpus {
  std::vector<TextFile> files;
  std::vector<Skipped> skipped;  // files and documents
};

// Reads every path; a directory stands for all .txt, .jsonl and .json files below it, in name
// order, but licences (LICENSE*, COPYING*).
//   .txt    one document, as eval::PlainText reads it: without the licence that Project Gutenberg
//           puts around a book
//   .jsonl  one document a line, .json one per item of an array: an object's string fields among
//           text, instruction, input, prompt, question, content, response, answer, output,
//           joined by newlines in that order
// Documents that are empty, contain only spaces, a NUL, or bytes that are no UTF-8 are listed in
// `skipped`, as are lines without such fields.
// NotFound, IoError: a path that cannot be read. Unsupported: a named file of another kind.
// Corrupt: JSON that does not parse, with the line.
Result<TextCorpus> ReadTexts(const std::vector<std::string>& paths);

// Fnv1a64 (base/hash.h) of a file's bytes. IoError.
Result<uint64_t> HashFile(const std::string& path);

}  // namespace kvbound::train

#endif  // KVBOUND_TRAIN_TEXT_FILES_H_
