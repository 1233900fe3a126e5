// SPDX-License-Identifier: MIT
// The definition of visit_dtype, kept apart so that dtype.h reads as a contract.
#pragma once

#include <type_traits>
#include <utility>

#include "base/dtype.h"

namespace cermet {

template <typename F>
decltype(auto) visit_dtype(Dtype dtype, F&& f) {
  switch (dtype) {
#define X(id, name, type, bytes, category) \
  case Dtype::id:                          \
    return std::forward<F>(f)(std::type_identity<type>{});
    CERMET_DTYPES(X)
#undef X
  }
  __builtin_unreachable();
}

}  // namespace cermet
