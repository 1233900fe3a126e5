// SPDX-License-Identifier: MIT
// How arrays are printed; their text is made by graph/print.h.
#include "graph/print.h"

#include "bind.h"

namespace cermet::python {

namespace {

PrintOptions& options() { return get_global_formatter().format_options; }

struct PrintOptionsContext {
  PrintOptions inside;
  PrintOptions outside;
};

}  // namespace

std::string repr_of(const array& a) {
  if (!a.is_ready())
    without_gil([&] {
      a.eval();
      return 0;
    });
  return to_string(a);
}

void init_print(nb::module_& m) {
  get_global_formatter().capitalize_bool = true;
  nb::class_<PrintOptions>(m, "PrintOptions", "How arrays are printed.")
      .def(
          "__init__", [](PrintOptions* self, int precision) { new (self) PrintOptions{precision}; },
          nb::arg("precision") = -1)
      .def_rw("precision", &PrintOptions::precision,
              "Digits after the point; -1: six significant digits.");
  m.def(
      "set_printoptions", [](int precision) { options().precision = precision; },
      nb::arg("precision") = -1, "Sets how arrays are printed from now on.");
  m.def("get_printoptions", [] { return options(); }, "The options in force.");
  nb::class_<PrintOptionsContext>(m, "_PrintOptionsContext")
      .def(
          "__enter__",
          [](PrintOptionsContext& c) -> PrintOptionsContext& {
            c.outside = options();
            options() = c.inside;
            return c;
          },
          nb::rv_policy::reference_internal)
      .def(
          "__exit__", [](const PrintOptionsContext& c, nb::args) { options() = c.outside; },
          nb::arg("exc_info"));
  m.def(
      "printoptions", [](int precision) { return PrintOptionsContext{{precision}, {}}; },
      nb::arg("precision") = -1, "Options for a scope: `with mx.printoptions(precision=3): ...`.");
}

}  // namespace cermet::python
