// SPDX-License-Identifier: MIT
// The compiled part of {fmt}. Debian ships it only as a shared library, which a wheel could not
// rely on, and its header-only mode doubles the compile time of every file; so it is compiled here,
// once, from the installed headers. Invariant: no other file includes format-inl.h.
#include <fmt/format-inl.h>

FMT_BEGIN_NAMESPACE
namespace detail {

template auto dragonbox::to_decimal(float) noexcept -> dragonbox::decimal_fp<float>;
template auto dragonbox::to_decimal(double) noexcept -> dragonbox::decimal_fp<double>;
template auto thousands_sep_impl(locale_ref) -> thousands_sep_result<char>;
template auto decimal_point_impl(locale_ref) -> char;
template void buffer<char>::append(const char*, const char*);

}  // namespace detail
FMT_END_NAMESPACE
