// SPDX-License-Identifier: MIT
#include "base/error.h"

#include <utility>

namespace cermet {

Error::Error(ErrorKind kind, std::string op, const std::string& message)
    : std::runtime_error(message), kind_(kind), op_(std::move(op)) {}

void throw_error(ErrorKind kind, const char* op, std::string message) {
  // what() ends at the first zero, which an argument that is quoted may have.
  for (size_t at = 0; (at = message.find('\0', at)) != std::string::npos; at += 2)
    message.replace(at, 1, "\\0");
  throw Error(kind, op, fmt::format("[{}] {}", op, message));
}

void throw_internal(const char* file, int line, const std::string& message) {
  throw Error(ErrorKind::internal, "internal",
              fmt::format("[internal] {}:{}: {}; this is a bug in Cermet, please report it", file,
                          line, message));
}

}  // namespace cermet
