// SPDX-License-Identifier: MIT
#include "kernel/ir.h"

namespace cermet::ir {

namespace {

struct CodeRow {
  std::string_view name;
  int arity;
};

constexpr CodeRow kCodes[] = {
#define X(id, arity) {#id, arity},
    CERMET_CORE_CODES(X) CERMET_MATH_CODES(X)
#undef X
};

// A number that is no code is printed and refused by the verifier, not read past the table.
CodeRow row_of(Code code) {
  return code <= Code::threefry ? kCodes[static_cast<size_t>(code)] : CodeRow{"unknown", 0};
}

}  // namespace

int arity_of(Code code) { return row_of(code).arity; }
bool is_math(Code code) { return code >= Code::exp; }
std::string_view name_of(Code code) { return row_of(code).name; }

bool Kernel::is_tiled() const {
  if (!locals.empty() || body.empty()) return true;
  for (const Stmt& stmt : body) {
    const For* loop = std::get_if<For>(&stmt);
    if (loop == nullptr || loop->kind != ForKind::stage) return true;
  }
  return false;
}

}  // namespace cermet::ir
