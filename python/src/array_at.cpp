// SPDX-License-Identifier: MIT
// `a.at[index].add(v)` and its kin: updates that count every repeated index, as a new array.
#include "bind.h"

namespace cermet::python {

namespace {

struct ArrayAt {
  array a;
  nb::object index;  // invalid: none was given yet
};

template <ScatterReduce reduce, bool inverse>
array update_at(const ArrayAt& at, nb::handle value) {
  CERMET_CHECK(at.index.is_valid(), value, "at", "no index was given; write x.at[0].add(4)");
  return update_item(at.a, at.index, value, reduce, inverse);
}

}  // namespace

void init_array_at(nb::module_& m) {
  using enum ScatterReduce;
  nb::class_<ArrayAt>(m, "ArrayAt", "Updates of an array at an index; repeated indices all count.")
      .def(
          "__getitem__", [](const ArrayAt& at, nb::object index) { return ArrayAt{at.a, index}; },
          nb::arg("indices").none())
      // By its items alone, Python would take it for an endless sequence.
      .def("__iter__",
           [](const ArrayAt&) -> nb::object {
             fail(ErrorKind::type, "at", "x.at[...] is no sequence; call one of its methods");
           })
      .def("add", &update_at<add, false>, nb::arg("value"), "x[index] += value.")
      .def("subtract", &update_at<add, true>, nb::arg("value"), "x[index] -= value.")
      .def("multiply", &update_at<multiply, false>, nb::arg("value"), "x[index] *= value.")
      .def("divide", &update_at<multiply, true>, nb::arg("value"), "x[index] /= value.")
      .def("maximum", &update_at<maximum, false>, nb::arg("value"),
           "The larger of x[index] and value.")
      .def("minimum", &update_at<minimum, false>, nb::arg("value"),
           "The smaller of x[index] and value.");
  nb::object getter = nb::cpp_function([](const array& a) { return ArrayAt{a, {}}; },
                                       nb::is_getter(), nb::is_method());
  m.attr("array").attr("at") = nb::module_::import_("builtins").attr("property")(getter);
}

}  // namespace cermet::python
