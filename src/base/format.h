// SPDX-License-Identifier: MIT
// How base types look in messages: a dtype by its name, a shape as a tuple. Include this where a
// message shows one: CERMET_CHECK(…, "shape {} of dtype {}", shape, dtype).
#pragma once

#include <fmt/format.h>

#include "base/dtype.h"
#include "base/shape.h"

template <>
struct fmt::formatter<cermet::Dtype> : fmt::formatter<fmt::string_view> {
  template <typename Context>
  auto format(cermet::Dtype dtype, Context& context) const {
    const std::string_view name = cermet::name_of(dtype);
    return fmt::formatter<fmt::string_view>::format({name.data(), name.size()}, context);
  }
};

// Its value; a message decides nothing.
template <>
struct fmt::formatter<cermet::Dim> : fmt::formatter<int64_t> {
  template <typename Context>
  auto format(const cermet::Dim& dim, Context& context) const {
    return fmt::formatter<int64_t>::format(dim.value, context);
  }
};

template <>
struct fmt::formatter<cermet::Shape> : fmt::formatter<fmt::string_view> {
  template <typename Context>
  auto format(const cermet::Shape& shape, Context& context) const {
    return fmt::formatter<fmt::string_view>::format(shape.to_string(), context);
  }
};
