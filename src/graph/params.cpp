// SPDX-License-Identifier: MIT
// Everything here walks fields(): one overload for each type of field.
#include "graph/params.h"

#include <bit>
#include <type_traits>

#include "base/error.h"

namespace cermet {

namespace {

uint64_t mix(uint64_t hash, uint64_t value) {
  hash ^= value + 0x9e3779b97f4a7c15u + (hash << 6) + (hash >> 2);
  return hash * 0xff51afd7ed558ccdu;
}

template <typename T>
concept HasFields = requires(T& t) { T::fields(t); };

// Numbers that may be others in the same plan tell nothing apart: what looks for equal parameters then
// compares, and so leaves a guard.
uint64_t number_to_hash(int64_t value) {
  const bool is_open = Dim::trace != nullptr && !Dim::trace->applies_rules_again;
  return is_open ? 0 : static_cast<uint64_t>(value);
}

template <typename T>
uint64_t hash_field(uint64_t hash, const T& field) {
  if constexpr (std::is_same_v<T, Dim>) {
    return mix(hash, number_to_hash(field.value));
  } else if constexpr (std::is_same_v<T, Number>) {
    hash = mix(hash, static_cast<uint64_t>(field.kind));
    return hash_field(mix(hash, number_to_hash(field.integer)), field.real_imag);
  } else if constexpr (HasFields<const T>) {
    std::apply([&](const auto&... f) { ((hash = hash_field(hash, f)), ...); }, T::fields(field));
    return hash;
  } else if constexpr (std::is_same_v<T, Shape>) {
    hash = mix(hash, static_cast<uint64_t>(field.ndim()));
    for (const Dim& dim : field.dims()) hash = hash_field(hash, dim);
    return hash;
  } else if constexpr (requires { field.begin(); }) {
    hash = mix(hash, field.size());
    for (const auto& item : field) hash = mix(hash, static_cast<uint64_t>(item));
    return hash;
  } else if constexpr (std::is_same_v<T, double>) {
    return mix(hash, std::bit_cast<uint64_t>(field));
  } else if constexpr (std::is_same_v<T, std::complex<double>>) {
    return hash_field(hash_field(hash, field.real()), field.imag());
  } else {
    return mix(hash, static_cast<uint64_t>(field));
  }
}

template <typename T>
bool equal_field(const T& a, const T& b) {
  if constexpr (std::is_same_v<T, Number>) {
    if (a.kind != b.kind) return false;
    if (a.kind == Number::Kind::integer) return Dim(a.integer, a.expr) == Dim(b.integer, b.expr);
    return a.integer == b.integer && a.expr == b.expr && equal_field(a.real_imag, b.real_imag);
  } else if constexpr (HasFields<const T>) {
    return [&]<size_t... i>(std::index_sequence<i...>) {
      [[maybe_unused]] auto fa = T::fields(a), fb = T::fields(b);
      return (equal_field(std::get<i>(fa), std::get<i>(fb)) && ...);
    }(std::make_index_sequence<std::tuple_size_v<decltype(T::fields(a))>>{});
  } else if constexpr (std::is_same_v<T, double>) {
    return std::bit_cast<uint64_t>(a) ==
           std::bit_cast<uint64_t>(b);  // NaN equals itself, -0 is not 0
  } else if constexpr (std::is_same_v<T, std::complex<double>>) {
    return equal_field(a.real(), b.real()) && equal_field(a.imag(), b.imag());
  } else {
    return a == b;
  }
}

template <typename T>
std::string print_field(const T& field) {
  if constexpr (HasFields<const T>) {
    std::string text;
    std::apply(
        [&](const auto&... f) { ((text += (text.empty() ? "" : ", ") + print_field(f)), ...); },
        T::fields(field));
    return text;
  } else if constexpr (std::is_same_v<T, Shape>) {
    return field.to_string();
  } else if constexpr (requires { field.begin(); }) {
    std::string text = "[";
    for (const auto& item : field) text += (text.size() == 1 ? "" : ", ") + print_field(item);
    return text + "]";
  } else if constexpr (std::is_same_v<T, std::complex<double>>) {
    return fmt::format("{}{:+}j", field.real(), field.imag());
  } else if constexpr (std::is_enum_v<T>) {
    return fmt::format("{}", static_cast<int>(field));
  } else {
    return fmt::format("{}", field);
  }
}

}  // namespace

void for_each_symbol(Params& params, const std::function<void(Dim&)>& size,
                     const std::function<void(Number&)>& number) {
  auto field = [&]<typename T>(T& f) {
    if constexpr (std::is_same_v<T, Shape>) {
      for (int axis = 0; axis < f.ndim(); axis++) size(f.dim(axis));
    } else if constexpr (std::is_same_v<T, Dim>) {
      size(f);
    } else if constexpr (std::is_same_v<T, Number>) {
      number(f);
    }
  };
  std::visit([&](auto& p) { std::apply([&](auto&... f) { (field(f), ...); }, p.fields(p)); },
             params);
}

bool equal_params(const Params& a, const Params& b) {
  if (a.index() != b.index()) return false;
  return std::visit(
      [&](const auto& p) { return equal_field(p, std::get<std::decay_t<decltype(p)>>(b)); }, a);
}

uint64_t hash_params(const Params& params) {
  return std::visit([&](const auto& p) { return hash_field(mix(0, params.index()), p); }, params);
}

std::string print_params(const Params& params) {
  return std::visit([](const auto& p) { return print_field(p); }, params);
}

}  // namespace cermet
