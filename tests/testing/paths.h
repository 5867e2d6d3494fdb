#ifndef KVBOUND_TESTING_PATHS_H_
#define KVBOUND_TESTING_PATHS_H_

#include <cstdlib>
#include <filesystem>
#include <string>

namespace kvbound::testing {

// The folder with evaluation and golden data that lies beside the checkout: KVBOUND_SHARED_DIR
// from the environment, else SOURCE_DIR/../shared. May not exist: such tests skip.
inline std::filesystem::path SharedDir() {
  if (const char* dir = std::getenv("KVBOUND_SHARED_DIR")) return dir;
  return std::filesystem::path(KVBOUND_SOURCE_DIR).parent_path() / "shared";
}

// The default model in models/ of the checkout, or KVBOUND_MODEL from the environment. May not
// exist: `make models` fetches it.
inline std::filesystem::path DefaultModel() {
  if (const char* file = std::getenv("KVBOUND_MODEL")) return file;
  return std::filesystem::path(KVBOUND_SOURCE_DIR) / "models" / "smollm2-135m-instruct-q4_1.gguf";
}

}  // namespace kvbound::testing

// First line of a test that reads `path`: skips with a clear reason when it is absent.
#define KVBOUND_SKIP_WITHOUT(path)                                        \
  do {                                                                    \
    if (!std::filesystem::exists(path)) {                                 \
      GTEST_SKIP() << "skipped: needs " << (path) << ", which is absent"; \
    }                                                                     \
  } while (false)

#endif  // KVBOUND_TESTING_PATHS_H_
