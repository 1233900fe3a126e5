// SPDX-License-Identifier: MIT
#include "base/dtype_info.h"

#include <cstring>
#include <limits>

#include "base/error.h"

namespace cermet {

namespace {

bool belongs(Category category, Category to) {
  if (category == to || to == Category::generic) return true;
  switch (to) {
    case Category::inexact:
      return category == Category::floating || category == Category::complexfloating;
    case Category::integer:
      return category == Category::signedinteger || category == Category::unsignedinteger;
    case Category::number: return category != Category::generic;
    default: return false;
  }
}

template <typename T>
void set_limits(finfo& info) {
  using Limits = std::numeric_limits<T>;
  info.bits = 8 * sizeof(T);
  info.min = Limits::lowest();
  info.max = Limits::max();
  info.eps = Limits::epsilon();
  info.smallest_normal = Limits::min();
}

// A number as wide as any of its kind; half types as float.
template <typename T>
auto plain(T value) {
  if constexpr (std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>)
    return static_cast<float>(value);
  else return value;
}

template <typename To, typename From>
To converted(From value) {
  if constexpr (requires { value.imag(); }) {
    if constexpr (requires(To to) { to.imag(); })
      return To(static_cast<typename To::value_type>(value.real()),
                static_cast<typename To::value_type>(value.imag()));
    else if constexpr (std::is_same_v<To, bool>) return value != From(0);
    else return converted<To>(value.real());
  } else if constexpr (requires(To to) { to.imag(); }) {
    return To(static_cast<typename To::value_type>(value));
  } else if constexpr (std::is_same_v<To, Float16> || std::is_same_v<To, BFloat16>) {
    return To(static_cast<float>(value));
  } else if constexpr (std::is_same_v<To, bool>) {
    return value != 0;
  } else {
    return static_cast<To>(value);
  }
}

}  // namespace

Category leaf_of(Dtype dtype) {
  switch (category_of(dtype)) {
    case DtypeCategory::boolean: return Category::generic;
    case DtypeCategory::unsigned_integer: return Category::unsignedinteger;
    case DtypeCategory::signed_integer: return Category::signedinteger;
    case DtypeCategory::floating: return Category::floating;
    case DtypeCategory::complex: return Category::complexfloating;
  }
  return Category::generic;
}

Kind kindof(Dtype dtype) {
  if (dtype == Dtype::bfloat16) return Kind::V;
  switch (category_of(dtype)) {
    case DtypeCategory::boolean: return Kind::b;
    case DtypeCategory::unsigned_integer: return Kind::u;
    case DtypeCategory::signed_integer: return Kind::i;
    case DtypeCategory::floating: return Kind::f;
    case DtypeCategory::complex: return Kind::c;
  }
  return Kind::V;
}

bool issubdtype(const DtypeOrCategory& a, const DtypeOrCategory& b) {
  const Dtype* dtype_a = std::get_if<Dtype>(&a);
  if (const Dtype* dtype_b = std::get_if<Dtype>(&b))
    return dtype_a != nullptr && *dtype_a == *dtype_b;
  return belongs(dtype_a != nullptr ? leaf_of(*dtype_a) : std::get<Category>(a),
                 std::get<Category>(b));
}

finfo::finfo(Dtype given) : dtype(real_of(given)) {
  switch (dtype) {
    case Dtype::float16:
      bits = 16, min = -65504.0, max = 65504.0, eps = 0x1p-10, smallest_normal = 0x1p-14;
      break;
    case Dtype::bfloat16:
      bits = 16, min = -0x1.fep127, max = 0x1.fep127, eps = 0x1p-7, smallest_normal = 0x1p-126;
      break;
    case Dtype::float32: set_limits<float>(*this); break;
    case Dtype::float64: set_limits<double>(*this); break;
    default:
      fail(ErrorKind::value, "finfo", "{} is not a floating dtype; use iinfo", name_of(given));
  }
}

iinfo::iinfo(Dtype given) : dtype(given) {
  CERMET_CHECK(is_integer(dtype), value, "iinfo", "{} is not an integer dtype; use finfo",
               name_of(dtype));
  const int bits = 8 * static_cast<int>(size_of(dtype));
  max = ~uint64_t{0} >> (is_signed(dtype) ? 65 - bits : 64 - bits);
  min = is_signed(dtype) ? -static_cast<int64_t>(max) - 1 : 0;
}

void convert_elements(const void* from, Dtype from_dtype, void* to, Dtype to_dtype, size_t n) {
  if (from_dtype == to_dtype) {
    if (n > 0) std::memcpy(to, from, n * size_of(to_dtype));
    return;
  }
  visit_dtype(from_dtype, [&]<typename From>(std::type_identity<From>) {
    visit_dtype(to_dtype, [&]<typename To>(std::type_identity<To>) {
      for (size_t i = 0; i < n; ++i) {
        From element;
        std::memcpy(&element, static_cast<const char*>(from) + i * sizeof(From), sizeof(From));
        const To result = converted<To>(plain(element));
        std::memcpy(static_cast<char*>(to) + i * sizeof(To), &result, sizeof(To));
      }
    });
  });
}

}  // namespace cermet
