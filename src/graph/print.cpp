// SPDX-License-Identifier: MIT
#include "graph/print.h"

#include <algorithm>
#include <cstring>
#include <ostream>

#include "base/format.h"

namespace cermet {

namespace {

template <typename T>
std::string element_text(const void* from) {
  const PrintFormatter& formatter = get_global_formatter();
  T e;
  std::memcpy(&e, from, sizeof(T));
  if constexpr (std::is_same_v<T, bool>) {
    if (formatter.capitalize_bool) return e ? "True" : "False";
    return e ? "true" : "false";
  } else if constexpr (std::is_integral_v<T>) {
    return std::to_string(e);
  } else if constexpr (requires { e.imag(); }) {
    const std::string imag = formatter.text(e.imag());
    const bool plus = !(e.imag() < 0);
    return formatter.text(e.real()) + (plus ? "+" : "") + imag + "j";
  } else if constexpr (std::is_floating_point_v<T>) {
    return formatter.text(static_cast<double>(e));
  } else {
    return formatter.text(static_cast<double>(static_cast<float>(e)));
  }
}

constexpr int64_t kLongest = 6;  // an axis printed in full
constexpr int64_t kEdge = 3;

class Printer {
 public:
  explicit Printer(const array& a) : a_(a) {
    visit_dtype(a.dtype(), [&]<typename T>(std::type_identity<T>) { text_of_ = element_text<T>; });
  }

  std::string print() {
    out_ = "array(";
    if (a_.size() == 0 && (a_.ndim() == 0 || a_.shape(0) == 0)) out_ += "[]";
    else print_axis(0, static_cast<const char*>(a_.data()));
    return out_ += fmt::format(", dtype={})", name_of(a_.dtype()));
  }

 private:
  void print_axis(int axis, const char* data) {
    if (axis == a_.ndim()) {
      out_ += text_of_(data);
      return;
    }
    const int64_t n = a_.shape(axis);
    const int64_t step =
        a_.node()->layout.strides[static_cast<size_t>(axis)] * static_cast<int64_t>(a_.itemsize());
    const bool last = axis + 1 == a_.ndim();
    const std::string between =
        last ? ", " : ",\n" + std::string(static_cast<size_t>(7 + axis), ' ');
    out_ += '[';
    for (int64_t i = 0; i < n; i++) {
      if (i > 0) out_ += between;
      if (n > kLongest && i == kEdge) {
        out_ += "..." + between;
        i = n - kEdge;
      }
      print_axis(axis + 1, data + i * step);
    }
    out_ += ']';
  }

  const array& a_;
  std::string (*text_of_)(const void*) = nullptr;
  std::string out_;
};

}  // namespace

std::string PrintFormatter::text(double value) const {
  if (format_options.precision == -1) return fmt::format("{:g}", value);
  constexpr int kAllDigits = 1100;  // of the smallest double
  const int digits =
      format_options.precision < 0 ? 6 : std::min(format_options.precision, kAllDigits);
  return fmt::format("{:.{}f}", value, digits);
}

void PrintFormatter::print(std::ostream& out, bool value) const {
  if (capitalize_bool) out << (value ? "True" : "False");
  else out << (value ? "true" : "false");
}

void PrintFormatter::print(std::ostream& out, double value) const { out << text(value); }

void PrintFormatter::print(std::ostream& out, std::complex<double> value) const {
  out << text(value.real()) << (value.imag() < 0 ? "" : "+") << text(value.imag()) << 'j';
}

PrintFormatter& get_global_formatter() {
  static constinit PrintFormatter formatter;
  return formatter;
}

void set_printoptions(PrintOptions options) { get_global_formatter().format_options = options; }

std::string to_string(const array& a) {
  a.eval();
  return Printer(a).print();
}

std::ostream& operator<<(std::ostream& out, const array& a) { return out << to_string(a); }

std::ostream& operator<<(std::ostream& out, Dtype dtype) { return out << name_of(dtype); }

std::ostream& operator<<(std::ostream& out, Kind kind) { return out << static_cast<char>(kind); }

std::ostream& operator<<(std::ostream& out, Float16 value) {
  return out << static_cast<float>(value);
}

std::ostream& operator<<(std::ostream& out, BFloat16 value) {
  return out << static_cast<float>(value);
}

std::ostream& operator<<(std::ostream& out, const Shape& shape) { return out << shape.to_string(); }

}  // namespace cermet
