#ifndef KVBOUND_STATUS_H_
#define KVBOUND_STATUS_H_

#include <cassert>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>
#include <utility>

namespace kvbound {

// What kind of failure a Status reports. A program maps these to exit codes or HTTP codes.
enum class StatusCode {
  kOk = 0,
  kInvalidArgument,  // an option, request or call is wrong: fix the caller
  kNotFound,         // a named file, policy or device does not exist
  kCorrupt,          // a file or text contradicts its own format
  kUnsupported,      // valid input that this build or model cannot handle, refused by name
  kOutOfBudget,      // the bounded cache has no room, or the budget is too small
  kIo,               // the operating system refused a read, write or mapping
  kCancelled,        // the caller asked to stop
  kInternal,         // a defect in kvbound
};

// The spelling used in messages: "invalid argument", "corrupt", ...
std::string_view StatusCodeName(StatusCode code);

// Success, or a code and one sentence that names the file, key or option, what was expected and
// what was found. A value type: cheap to move, safe to copy, safe to read from several threads.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(StatusCode code, std::string message) : code_(code), message_(std::move(message)) {}

  static Status Ok() { return Status(); }

  bool ok() const { return code_ == StatusCode::kOk; }
  StatusCode code() const { return code_; }
  const std::string& message() const { return message_; }

  // "corrupt: model.gguf: key 'llama.block_count': expected ..., found ...", or "ok".
  std::string ToString() const;

 private:
  StatusCode code_ = StatusCode::kOk;
  std::string message_;
};

Status InvalidArgument(std::string message);
Status NotFound(std::string message);
Status Corrupt(std::string message);
Status Unsupported(std::string message);
Status OutOfBudget(std::string message);
Status IoError(std::string message);
Status Cancelled(std::string message);
Status Internal(std::string message);

std::ostream& operator<<(std::ostream& out, const Status& status);

// A T, or the Status that says why there is none. Reading the value of a failed Result is a
// programming error.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}                                  // NOLINT
  Result(Status status) : status_(std::move(status)) { assert(!status_.ok()); }  // NOLINT

  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }

  T& value() & { return (assert(ok()), *value_); }
  const T& value() const& { return (assert(ok()), *value_); }
  T&& value() && { return (assert(ok()), *std::move(value_)); }

  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

 private:
  std::optional<T> value_;
  Status status_;
};

}  // namespace kvbound

// Returns from the enclosing function when `expr` (a Status) is not ok.
#define KVBOUND_RETURN_IF_ERROR(expr)                                                           \
  do {                                                                                          \
    if (::kvbound::Status kvbound_status = (expr); !kvbound_status.ok()) return kvbound_status; \
  } while (false)

#define KVBOUND_CONCAT_INNER(a, b) a##b
#define KVBOUND_CONCAT(a, b) KVBOUND_CONCAT_INNER(a, b)

// KVBOUND_ASSIGN_OR_RETURN(auto x, MakeX()): x becomes the value, or the function returns the
// error.
#define KVBOUND_ASSIGN_OR_RETURN(lhs, expr) \
  KVBOUND_ASSIGN_OR_RETURN_IMPL(KVBOUND_CONCAT(kvbound_result_, __LINE__), lhs, expr)
#define KVBOUND_ASSIGN_OR_RETURN_IMPL(result, lhs, expr) \
  auto result = (expr);                                  \
  if (!result.ok()) return result.status();              \
  lhs = std::move(result).value()

#endif  // KVBOUND_STATUS_H_
