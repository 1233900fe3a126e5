// SPDX-License-Identifier: MIT
// Why a kernel ends where it does: what its first node was not computed in its consumer for. `explain`
// prints the names; docs/explain.md says what they mean to a user.
#pragma once

#include <cstdint>

namespace cermet::schedule {

#define CERMET_BORDERS(X)                                                              \
  X(output)         /* nobody takes the value but who asked for it */                  \
  X(op_limit)       /* the consumer's region has ops enough, */                        \
  X(argument_limit) /* or reads enough arrays */                                       \
  X(size_class)     /* the consumer's loops are over other sizes */                    \
  X(recompute_cost) /* it would be computed several times, and storing it is less */   \
  X(layout)         /* it is wanted in an order in which it cannot be computed */      \
  X(opaque_op)      /* the consumer needs it whole, or is a kernel that takes no more */ \
  X(barrier)

enum class Border : uint8_t {
#define X(name) name,
  CERMET_BORDERS(X)
#undef X
};

constexpr const char* border_name(Border border) {
  switch (border) {
#define X(name)      \
  case Border::name: \
    return #name;
    CERMET_BORDERS(X)
#undef X
  }
  return "";
}

}  // namespace cermet::schedule
