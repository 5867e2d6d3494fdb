#include "text/llama_log.h"

#include <mutex>
#include <string_view>

#include "base/log.h"
#include "llama.h"

namespace kvbound {
namespace {

constexpr size_t kMaxLine = 4096;

thread_local std::string* captured_errors = nullptr;

void Deliver(std::string_view line, bool error) {
  while (!line.empty() && (line.back() == '\n' || line.back() == '\r')) line.remove_suffix(1);
  if (line.empty()) return;
  if (error && captured_errors != nullptr && captured_errors->size() < kMaxLine) {
    if (!captured_errors->empty()) captured_errors->append("; ");
    captured_errors->append(line);
  }
  Log(LogLevel::kDebug, line);
}

// llama prints some lines piece by piece: they are put together per thread.
void OnLlamaLog(ggml_log_level level, const char* text, void* /*user_data*/) {
  thread_local std::string line;
  thread_local bool error = false;
  if (level != GGML_LOG_LEVEL_CONT) error = level == GGML_LOG_LEVEL_ERROR;
  line += text;
  if (line.size() < kMaxLine && (line.empty() || line.back() != '\n')) return;
  Deliver(line, error);
  line.clear();
}

}  // namespace

void InstallLlamaLog() {
  static std::once_flag once;
  std::call_once(once, [] {
    llama_log_set(OnLlamaLog, nullptr);
    llama_backend_init();
  });
}

LlamaErrorCapture::LlamaErrorCapture() : outer_(captured_errors) { captured_errors = &text_; }

LlamaErrorCapture::~LlamaErrorCapture() { captured_errors = outer_; }

std::string LlamaErrorCapture::TextOr(const std::string& fallback) const {
  return text_.empty() ? fallback : text_;
}

}  // namespace kvbound
