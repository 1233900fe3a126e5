// SPDX-License-Identifier: MIT
// The text of arrays, MLX's: row by row, three elements at either end of an axis longer than six; floats
// as C++ streams print them (six significant digits), or fixed when a precision is set.
#pragma once

#include <complex>
#include <concepts>
#include <ostream>
#include <string>

#include "graph/array.h"

namespace cermet {

struct PrintOptions {
  int precision = -1;  // digits after the point; -1: six significant digits
};

struct PrintFormatter {
  bool capitalize_bool = false;  // as Python spells them; its face sets it
  PrintOptions format_options;

  std::string text(double value) const;
  void print(std::ostream& out, bool value) const;
  void print(std::ostream& out, double value) const;
  void print(std::ostream& out, std::complex<double> value) const;
  template <typename T>
    requires std::same_as<T, Float16> || std::same_as<T, BFloat16>
  void print(std::ostream& out, T value) const {
    out << text(static_cast<double>(static_cast<float>(value)));
  }
  template <std::integral T>
  void print(std::ostream& out, T value) const {
    out << +value;
  }
};

PrintFormatter& get_global_formatter();
void set_printoptions(PrintOptions options);

// Evaluates the array: "array([1, 2], dtype=int32)".
std::string to_string(const array& a);
std::ostream& operator<<(std::ostream& out, const array& a);
std::ostream& operator<<(std::ostream& out, Dtype dtype);
std::ostream& operator<<(std::ostream& out, Kind kind);
std::ostream& operator<<(std::ostream& out, Float16 value);
std::ostream& operator<<(std::ostream& out, BFloat16 value);
std::ostream& operator<<(std::ostream& out, const Shape& shape);

}  // namespace cermet
