// Status, Result and LARDER_CHECK: how proto, node and client report errors.
//
// Bad input is a Status. A broken invariant is LARDER_CHECK, on in release: a crash is cheaper than
// wrong KV (never used by the client library, which turns itself off instead). A miss is no error:
// batches return an outcome per block (message.h).
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace larder {

enum class Code : uint8_t {
  kOk = 0,
  kInvalid = 1,      // the caller's input is wrong; the text says how to mend it
  kNotFound = 2,     // no such namespace, node, handle
  kBusy = 3,         // a bound was reached; try again later
  kFull = 4,         // no memory can be freed for this
  kTimedOut = 5,     // the deadline passed
  kUnavailable = 6,  // the peer is dead or unreachable
  kDenied = 7,       // wrong token
  kCorrupt = 8,      // bytes that do not verify
  kUnsupported = 9,  // unknown verb, version or feature
  kCancelled = 10,
  kInternal = 11,    // a system call failed in a way nobody planned for
};

// "ok", "invalid", "not-found", ...
std::string_view CodeName(Code code);

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Code code, std::string text) : code_(code), text_(std::move(text)) {}
  static Status Ok() { return {}; }

  bool ok() const { return code_ == Code::kOk; }
  Code code() const { return code_; }
  const std::string& text() const { return text_; }
  // "invalid: chain of 70000 hashes; the limit is 65536"
  std::string ToString() const;

 private:
  Code code_ = Code::kOk;
  std::string text_;
};

inline Status Invalid(std::string text) { return {Code::kInvalid, std::move(text)}; }

// A value, or the Status that says why there is none. Asking a failed Result for its value is a bug.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}            // NOLINT: implicit on purpose
  Result(Status status) : status_(std::move(status)) {}    // NOLINT: implicit on purpose
  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }
  T& value() & { return *value_; }
  const T& value() const& { return *value_; }
  T&& value() && { return std::move(*value_); }
  T* operator->() { return &*value_; }
  const T* operator->() const { return &*value_; }

 private:
  std::optional<T> value_;
  Status status_;
};

}  // namespace larder

#define LARDER_RETURN_IF_ERROR(expression)                  \
  do {                                                      \
    ::larder::Status status_or_error = (expression);        \
    if (!status_or_error.ok()) return status_or_error;      \
  } while (false)

#define LARDER_CHECK(condition)                                                             \
  do {                                                                                      \
    if (!(condition)) [[unlikely]] {                                                        \
      std::fprintf(stderr, "%s:%d: broken invariant: %s\n", __FILE__, __LINE__, #condition); \
      std::abort();                                                                         \
    }                                                                                       \
  } while (false)
