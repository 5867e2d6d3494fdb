#ifndef KVBOUND_TEXT_LLAMA_LOG_H_
#define KVBOUND_TEXT_LLAMA_LOG_H_

#include <string>

namespace kvbound {

// Starts llama and ggml and routes what they print into our log at kDebug, once per process;
// later calls do nothing. Call before any other llama function. Thread-safe.
void InstallLlamaLog();

// While one lives, the error lines that llama logs on this thread are also kept here, so that a
// Status can quote them.
class LlamaErrorCapture {
 public:
  LlamaErrorCapture();
  ~LlamaErrorCapture();
  LlamaErrorCapture(const LlamaErrorCapture&) = delete;
  LlamaErrorCapture& operator=(const LlamaErrorCapture&) = delete;

  // The lines so far, joined by "; ", or `fallback` if there are none.
  std::string TextOr(const std::string& fallback) const;

 private:
  std::string text_;
  std::string* outer_;
};

}  // namespace kvbound

#endif  // KVBOUND_TEXT_LLAMA_LOG_H_
