// SPDX-License-Identifier: MIT
// The text of arrays, MLX's: row by row, three elements at either end of an axis longer than six; floats
// as C++ streams print them (six significant digits), or fixed when a precision is set.
#include <cmath>

#include "bind.h"

namespace cermet::python {

namespace {

constexpr int64_t kLongest = 6;  // an axis printed in full
constexpr int64_t kEdge = 3;

struct PrintOptions {
  int precision = -1;  // digits after the point; -1: six significant digits
};

PrintOptions options;

struct PrintOptionsContext {
  PrintOptions inside;
  PrintOptions outside;
};

std::string real_text(double value) {
  if (options.precision == -1) return fmt::format("{:g}", value);
  const int digits = options.precision < 0 ? 6 : options.precision;
  return fmt::format("{:.{}f}", value, digits);
}

template <typename T>
std::string element_text(const void* from) {
  T e;
  std::memcpy(&e, from, sizeof(T));
  if constexpr (std::is_same_v<T, bool>) {
    return e ? "True" : "False";
  } else if constexpr (std::is_integral_v<T>) {
    return std::to_string(e);
  } else if constexpr (requires { e.imag(); }) {
    const std::string imag = real_text(e.imag());
    const bool plus = !(e.imag() < 0);
    return real_text(e.real()) + (plus ? "+" : "") + imag + "j";
  } else if constexpr (std::is_floating_point_v<T>) {
    return real_text(static_cast<double>(e));
  } else {
    return real_text(static_cast<double>(static_cast<float>(e)));
  }
}

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

std::string repr_of(const array& a) {
  if (!a.is_ready())
    without_gil([&] {
      a.eval();
      return 0;
    });
  return Printer(a).print();
}

void init_print(nb::module_& m) {
  nb::class_<PrintOptions>(m, "PrintOptions", "How arrays are printed.")
      .def(
          "__init__", [](PrintOptions* self, int precision) { new (self) PrintOptions{precision}; },
          nb::arg("precision") = -1)
      .def_rw("precision", &PrintOptions::precision,
              "Digits after the point; -1: six significant digits.");
  m.def(
      "set_printoptions", [](int precision) { options.precision = precision; },
      nb::arg("precision") = -1, "Sets how arrays are printed from now on.");
  m.def("get_printoptions", [] { return options; }, "The options in force.");
  nb::class_<PrintOptionsContext>(m, "_PrintOptionsContext")
      .def(
          "__enter__",
          [](PrintOptionsContext& c) -> PrintOptionsContext& {
            c.outside = options;
            options = c.inside;
            return c;
          },
          nb::rv_policy::reference_internal)
      .def(
          "__exit__", [](const PrintOptionsContext& c, nb::args) { options = c.outside; },
          nb::arg("exc_info"));
  m.def(
      "printoptions", [](int precision) { return PrintOptionsContext{{precision}, {}}; },
      nb::arg("precision") = -1, "Options for a scope: `with mx.printoptions(precision=3): ...`.");
}

}  // namespace cermet::python
