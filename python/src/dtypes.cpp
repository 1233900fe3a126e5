// SPDX-License-Identifier: MIT
// Dtype, categories, finfo, iinfo and promotion queries.
#include "base/dtype_info.h"
#include "base/format.h"
#include "bind.h"

namespace cermet::python {

namespace {

using PyDtypeOrCategory = std::variant<PyDtype, Category>;

DtypeOrCategory plain(const PyDtypeOrCategory& given) {
  const PyDtype* dtype = std::get_if<PyDtype>(&given);
  return dtype != nullptr ? DtypeOrCategory(dtype->value) : std::get<Category>(given);
}

std::string dtype_names() {
  std::vector<std::string_view> names;
  for (int i = 0; i < kDtypeCount; i++) names.push_back(name_of(static_cast<Dtype>(i)));
  return fmt::format("{}", fmt::join(names, ", "));
}

std::string repr_dtype(Dtype dtype) { return fmt::format("cermet.core.{}", name_of(dtype)); }

}  // namespace

void init_dtypes(nb::module_& m) {
  nb::class_<PyDtype> dtype(m, "Dtype", "The type of an array's elements.");
  dtype.def(
      "__init__",
      [](PyDtype* self, const std::string& name) {
        const std::optional<Dtype> found = dtype_from_name(name);
        CERMET_CHECK(found.has_value(), value, "Dtype",
                     "there is no dtype '{}'; it must be one of {}", name, dtype_names());
        new (self) PyDtype{*found};
      },
      nb::arg("name"));
  dtype.def_prop_ro(
           "size", [](PyDtype d) { return size_of(d); }, "Bytes of one element.")
      .def("__repr__", [](PyDtype d) { return repr_dtype(d); })
      .def("__eq__",
           [](PyDtype a, nb::handle b) {
             return nb::isinstance<PyDtype>(b) && nb::cast<PyDtype>(b).value == a.value;
           })
      .def("__hash__", [](PyDtype d) { return static_cast<int64_t>(d.value); })
      .def("__reduce__", [](PyDtype d) {
        return nb::make_tuple(nb::type<PyDtype>(), nb::make_tuple(std::string(name_of(d))));
      });
#define X(id, name, type, bytes, category) m.attr(Dtype::id == Dtype::boolean ? "bool_" : name) = nb::cast(PyDtype{Dtype::id});
  CERMET_DTYPES(X)
#undef X
  m.attr("bool") = m.attr("bool_");  // the array API standard's name
  nb::enum_<Category>(m, "DtypeCategory", "Sets of dtypes, for issubdtype.")
      .value("complexfloating", Category::complexfloating)
      .value("floating", Category::floating)
      .value("inexact", Category::inexact)
      .value("signedinteger", Category::signedinteger)
      .value("unsignedinteger", Category::unsignedinteger)
      .value("integer", Category::integer)
      .value("number", Category::number)
      .value("generic", Category::generic)
      .export_values();
  m.def(
      "issubdtype",
      [](const PyDtypeOrCategory& a, const PyDtypeOrCategory& b) {
        return issubdtype(plain(a), plain(b));
      },
      nb::arg("arg1").noconvert(), nb::arg("arg2").noconvert(),
      "Does the dtype or category arg1 belong to arg2?");
  m.def(
      "result_type",
      [](nb::args args) {
        std::optional<Dtype> dtype;
        for (nb::handle arg : args) {
          if (is_scalar(arg)) continue;
          const Dtype d =
              nb::isinstance<PyDtype>(arg) ? nb::cast<PyDtype>(arg).value : to_array(arg).dtype();
          dtype = dtype ? promote(*dtype, d) : d;
        }
        for (nb::handle arg : args) {
          if (!is_scalar(arg)) continue;
          const Number n = to_number("result_type", arg);
          dtype = dtype ? promote_weak(*dtype, category_of(default_dtype(n))) : default_dtype(n);
        }
        CERMET_CHECK(dtype.has_value(), value, "result_type",
                     "no arguments; give arrays, dtypes or scalars");
        return PyDtype{*dtype};
      },
      "The dtype of an op on the arguments (arrays, dtypes, Python scalars).");
  nb::class_<finfo>(m, "finfo", "Limits of a floating dtype.")
      .def("__init__", [](finfo* self, PyDtype d) { new (self) finfo(d); })
      .def_ro("bits", &finfo::bits)
      .def_ro("min", &finfo::min)
      .def_ro("max", &finfo::max)
      .def_ro("eps", &finfo::eps)
      .def_ro("smallest_normal", &finfo::smallest_normal)
      .def_prop_ro("dtype", [](const finfo& f) { return PyDtype{f.dtype}; })
      .def("__repr__", [](const finfo& f) {
        return fmt::format("finfo(min={:g}, max={:g}, dtype={})", f.min, f.max, name_of(f.dtype));
      });
  nb::class_<iinfo>(m, "iinfo", "Limits of an integer dtype.")
      .def("__init__", [](iinfo* self, PyDtype d) { new (self) iinfo(d); })
      .def_ro("min", &iinfo::min)
      .def_ro("max", &iinfo::max)
      .def_prop_ro("dtype", [](const iinfo& i) { return PyDtype{i.dtype}; })
      .def("__repr__", [](const iinfo& i) {
        return fmt::format("iinfo(min={}, max={}, dtype={})", i.min, i.max, name_of(i.dtype));
      });
}

}  // namespace cermet::python
