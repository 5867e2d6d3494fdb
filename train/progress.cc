#include "train/progress.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdarg>
#include <cstdio>

namespace kvbound::train {
namespace {

constexpr double kSecondsBetweenLines = 10;

__attribute__((format(printf, 1, 2))) std::string Format(const char* format, ...) {
  char text[256];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof(text), format, arguments);
  va_end(arguments);
  return text;
}

std::string Duration(double seconds) {
  const long whole = std::lround(std::max(seconds, 0.0));
  if (whole >= 3600) return Format("%ld:%02ld:%02ld", whole / 3600, whole / 60 % 60, whole % 60);
  return Format("%ld:%02ld", whole / 60, whole % 60);
}

double Seconds(std::chrono::steady_clock::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

}  // namespace

Progress::Progress(bool enabled)
    : enabled_(enabled), terminal_(isatty(STDERR_FILENO) == 1), start_(Clock::now()) {}

Progress::~Progress() {
  if (drawn_) std::fputc('\n', stderr);
}

std::string Progress::Line(const StepReport& r) const {
  const double seconds = Seconds(Clock::now() - start_);
  const double rate = static_cast<double>(r.tokens - first_tokens_) / std::max(seconds, 1e-9);
  const double left = static_cast<double>(r.tokens) / static_cast<double>(r.step) *
                      static_cast<double>(r.n_step - r.step) / std::max(rate, 1e-9);
  std::string line = Format("step %ld/%ld  %.1fk tokens  loss %.4f (%.4f + capacity %.4f)",
                            static_cast<long>(r.step), static_cast<long>(r.n_step),
                            static_cast<double>(r.tokens) / 1000, r.loss, r.quality, r.capacity);
  if (r.kept > 0) line += Format("  kept %.0f", r.kept);
  line +=
      Format("  lr %.1e  %.0f tokens/s  %s left", r.learning_rate, rate, Duration(left).c_str());
  return line + last_evaluation_;
}

void Progress::OnStep(const StepReport& report) {
  if (!enabled_) return;
  if (!started_) {
    // The first step's own tokens were read before its time could be taken.
    started_ = true;
    first_tokens_ = report.tokens - report.tokens / report.step;
  }
  if (terminal_) {
    std::fprintf(stderr, "\r\033[K%s", Line(report).c_str());
    std::fflush(stderr);
    drawn_ = true;
    return;
  }
  const Clock::time_point now = Clock::now();
  const bool first_or_last = report.step == report.n_step || last_line_ == Clock::time_point();
  if (!first_or_last && Seconds(now - last_line_) < kSecondsBetweenLines) return;
  last_line_ = now;
  std::fprintf(stderr, "%s\n", Line(report).c_str());
}

void Progress::OnEvaluation(const EvaluationReport& report) {
  if (!enabled_) return;
  last_evaluation_ = Format("  eviction KL %.4f", report.kl);
  Say(Format("step %ld: KL to the uncut model under eviction %.4f%s",
             static_cast<long>(report.step), report.kl, report.best ? ", the best so far" : ""));
}

void Progress::Clear() {
  if (drawn_) std::fputs("\r\033[K", stderr);
  drawn_ = false;
}

void Progress::Say(const std::string& line) {
  if (!enabled_) return;
  Clear();
  std::fprintf(stderr, "%s\n", line.c_str());
}

}  // namespace kvbound::train
