#ifndef KVBOUND_MODEL_MODEL_FILE_H_
#define KVBOUND_MODEL_MODEL_FILE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "kvbound/status.h"
#include "model/gguf_file.h"
#include "model/hparams.h"

namespace kvbound {

// A GGUF model that passed every check: ggml and llama may read it now.
struct CheckedModelFile {
  GgufFile file;
  HParams hparams;
};

// Opens and checks a model: header, hyperparameters, vocabulary, tensors. No weight is copied; of a
// model above 64 MiB no weight is read either.
Result<CheckedModelFile> OpenCheckedModel(const std::string& path,
                                          const GgufOpenOptions& options = {});

// The same for a file that is open already.
Result<CheckedModelFile> CheckModel(GgufFile file);

// A GGUF (version 3) with the checked file's vocabulary and no tensors, for llama's reader: only
// general.architecture, general.name and the tokenizer.* keys, as they are.
std::vector<uint8_t> VocabularyGguf(const GgufFile& file);

}  // namespace kvbound

#endif  // KVBOUND_MODEL_MODEL_FILE_H_
