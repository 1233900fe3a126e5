// SPDX-License-Identifier: MIT
// Dtype, categories, finfo, iinfo and promotion queries.
#include <limits>

#include "bind.h"

namespace cermet::python {

namespace {

// MLX's lattice of categories; each Dtype belongs to one leaf.
enum class Category {
  complexfloating,
  floating,
  inexact,
  signedinteger,
  unsignedinteger,
  integer,
  number,
  generic
};

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

Category category(Dtype dtype) {
  switch (category_of(dtype)) {
    case DtypeCategory::boolean: return Category::generic;
    case DtypeCategory::unsigned_integer: return Category::unsignedinteger;
    case DtypeCategory::signed_integer: return Category::signedinteger;
    case DtypeCategory::floating: return Category::floating;
    case DtypeCategory::complex: return Category::complexfloating;
  }
  return Category::generic;
}

using DtypeOrCategory = std::variant<PyDtype, Category>;

bool issubdtype(const DtypeOrCategory& a, const DtypeOrCategory& b) {
  const PyDtype* dtype_a = std::get_if<PyDtype>(&a);
  if (const PyDtype* dtype_b = std::get_if<PyDtype>(&b))
    return dtype_a != nullptr && dtype_a->value == dtype_b->value;
  return belongs(dtype_a != nullptr ? category(*dtype_a) : std::get<Category>(a),
                 std::get<Category>(b));
}

struct Finfo {
  Dtype dtype;
  int bits;
  double min, max, eps, smallest_normal;
};

Finfo finfo(Dtype given) {
  const Dtype dtype = real_of(given);
  switch (dtype) {
    case Dtype::float16: return {dtype, 16, -65504.0, 65504.0, 0x1p-10, 0x1p-14};
    case Dtype::bfloat16: return {dtype, 16, -0x1.fep127, 0x1.fep127, 0x1p-7, 0x1p-126};
    case Dtype::float32:
      return {dtype,
              32,
              -std::numeric_limits<float>::max(),
              std::numeric_limits<float>::max(),
              std::numeric_limits<float>::epsilon(),
              std::numeric_limits<float>::min()};
    case Dtype::float64:
      return {dtype,
              64,
              -std::numeric_limits<double>::max(),
              std::numeric_limits<double>::max(),
              std::numeric_limits<double>::epsilon(),
              std::numeric_limits<double>::min()};
    default:
      fail(ErrorKind::value, "finfo", "{} is not a floating dtype; use iinfo", name_of(given));
  }
}

struct Iinfo {
  Dtype dtype;
  nb::int_ min, max;
};

Iinfo iinfo(Dtype dtype) {
  CERMET_CHECK(is_integer(dtype), value, "iinfo", "{} is not an integer dtype; use finfo",
               name_of(dtype));
  const int bits = 8 * static_cast<int>(size_of(dtype));
  if (!is_signed(dtype)) return {dtype, nb::int_(0), nb::int_(~uint64_t{0} >> (64 - bits))};
  const int64_t max = static_cast<int64_t>(~uint64_t{0} >> (65 - bits));
  return {dtype, nb::int_(-max - 1), nb::int_(max)};
}

std::string repr_dtype(Dtype dtype) { return fmt::format("cermet.core.{}", name_of(dtype)); }

}  // namespace

void init_dtypes(nb::module_& m) {
  nb::class_<PyDtype> dtype(m, "Dtype", "The type of an array's elements.");
  dtype.def(
      "__init__",
      [](PyDtype* self, const std::string& name) {
        const std::optional<Dtype> found = dtype_from_name(name);
        CERMET_CHECK(found.has_value(), value, "Dtype", "there is no dtype '{}'", name);
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
  m.def("issubdtype", &issubdtype, nb::arg("arg1"), nb::arg("arg2"),
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
  nb::class_<Finfo>(m, "finfo", "Limits of a floating dtype.")
      .def("__init__", [](Finfo* self, PyDtype d) { new (self) Finfo(finfo(d)); })
      .def_ro("bits", &Finfo::bits)
      .def_ro("min", &Finfo::min)
      .def_ro("max", &Finfo::max)
      .def_ro("eps", &Finfo::eps)
      .def_ro("smallest_normal", &Finfo::smallest_normal)
      .def_prop_ro("dtype", [](const Finfo& f) { return PyDtype{f.dtype}; })
      .def("__repr__", [](const Finfo& f) {
        return fmt::format("finfo(min={}, max={}, dtype={})", f.min, f.max, repr_dtype(f.dtype));
      });
  nb::class_<Iinfo>(m, "iinfo", "Limits of an integer dtype.")
      .def("__init__", [](Iinfo* self, PyDtype d) { new (self) Iinfo(iinfo(d)); })
      .def_ro("min", &Iinfo::min)
      .def_ro("max", &Iinfo::max)
      .def_prop_ro("dtype", [](const Iinfo& i) { return PyDtype{i.dtype}; })
      .def("__repr__", [](const Iinfo& i) {
        return fmt::format("iinfo(min={}, max={}, dtype={})", nb::str(i.min).c_str(),
                           nb::str(i.max).c_str(), repr_dtype(i.dtype));
      });
}

}  // namespace cermet::python
