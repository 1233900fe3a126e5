// SPDX-License-Identifier: MIT
// Errors are answers: `[op] what is wrong, with the values; what would be right.`
// One exception type carries the kind; the Python face maps kinds to Python's own exceptions.
// Internal errors are bugs of ours; they carry file and line and are never caused by user input alone.
#pragma once

#include <fmt/core.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace cermet {

enum class ErrorKind {
  value,        // ValueError: shapes that do not fit, bad arguments
  dtype,        // TypeError: an operation that has no meaning for a dtype
  type,         // TypeError: a Python object of the wrong type
  index,        // IndexError
  axis,         // AxisError: both ValueError and IndexError
  overflow,     // OverflowError: a value or a size out of range
  memory,       // MemoryError
  device,       // ValueError: an absent device
  io,           // OSError
  runtime,      // RuntimeError: a failing kernel, library or system call
  interrupted,  // KeyboardInterrupt: evaluation cancelled by the user
  internal,     // RuntimeError with file and line: please report
};

class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, std::string op, const std::string& message);
  ErrorKind kind() const { return kind_; }
  const std::string& op() const { return op_; }

 private:
  ErrorKind kind_;
  std::string op_;
};

// Throws Error with the text `[op] message`.
[[noreturn]] void throw_error(ErrorKind kind, const char* op, std::string message);

template <typename... Args>
[[noreturn]] void fail(ErrorKind kind, const char* op, fmt::format_string<Args...> text,
                       Args&&... args) {
  throw_error(kind, op, fmt::format(text, std::forward<Args>(args)...));
}

[[noreturn]] void throw_internal(const char* file, int line, const std::string& message);

}  // namespace cermet

// The arguments are evaluated only on failure.
#define CERMET_CHECK(condition, kind, op, ...)                                    \
  do {                                                                            \
    if (!(condition)) [[unlikely]] ::cermet::fail(::cermet::ErrorKind::kind, op, __VA_ARGS__); \
  } while (false)

#define CERMET_INTERNAL_CHECK(condition, ...)                                     \
  do {                                                                            \
    if (!(condition)) [[unlikely]]                                                \
      ::cermet::throw_internal(__FILE__, __LINE__, fmt::format(__VA_ARGS__));     \
  } while (false)
