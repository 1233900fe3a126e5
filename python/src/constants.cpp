// SPDX-License-Identifier: MIT
// Constants, and what the array API standard asks a namespace about itself.
#include <limits>
#include <numbers>

#include "bind.h"

namespace cermet::python {

namespace {

struct NamespaceInfo {};

using Kind = std::variant<nb::str, nb::tuple>;

bool is_of_kind(Dtype dtype, const std::string& kind) {
  if (kind == "bool") return dtype == Dtype::boolean;
  if (kind == "signed integer") return is_integer(dtype) && is_signed(dtype);
  if (kind == "unsigned integer") return is_integer(dtype) && !is_signed(dtype);
  if (kind == "integral") return is_integer(dtype);
  if (kind == "real floating") return is_floating(dtype);
  if (kind == "complex floating") return is_complex(dtype);
  if (kind == "numeric") return is_integer(dtype) || is_inexact(dtype);
  fail(ErrorKind::value, "isdtype",
       "'{}' is no kind; the kinds are bool, signed integer, unsigned integer, integral, real "
       "floating, "
       "complex floating, numeric",
       kind);
}

bool is_dtype(PyDtype dtype, nb::handle kind) {
  if (PyDtype same{}; nb::try_cast(kind, same, false)) return same.value == dtype.value;
  if (nb::isinstance<nb::str>(kind)) return is_of_kind(dtype, nb::cast<std::string>(kind));
  CERMET_CHECK(nb::isinstance<nb::tuple>(kind), type, "isdtype",
               "the kind is {}; it must be a Dtype, a string or a tuple of those", type_of(kind));
  for (nb::handle each : nb::borrow<nb::tuple>(kind))
    if (is_dtype(dtype, each)) return true;
  return false;
}

// Does every value of `from` keep its category in `to`? As the array API: promotion leaves `to`.
bool can_cast(Dtype from, Dtype to) { return promote(from, to) == to; }

nb::dict dtypes_of_kind(nb::handle kind) {
  nb::dict found;
#define X(id, name, type, bytes, category) \
  if (kind.is_none() || is_dtype(PyDtype{Dtype::id}, kind)) found[name] = PyDtype{Dtype::id};
  CERMET_DTYPES(X)
#undef X
  return found;
}

nb::tuple devices() {
  nb::list list;
  for (DeviceType type : {Device::cpu, Device::gpu})
    for (int i = 0; i < device_count(type); i++) list.append(Device(type, i));
  return nb::tuple(list);
}

void def_namespace_info(nb::module_& m) {
  using nb::arg;
  nb::class_<NamespaceInfo>(m, "_NamespaceInfo", "What the array API standard asks of a namespace.")
      .def("capabilities",
           [](const NamespaceInfo&) {
             nb::dict c;
             c["boolean indexing"] = true;
             c["data-dependent shapes"] = true;
             c["max dimensions"] = 64;
             return c;
           })
      .def("default_device", [](const NamespaceInfo&) { return default_device(); })
      .def(
          "default_dtypes",
          [](const NamespaceInfo&, nb::handle) {
            nb::dict d;
            d["real floating"] = PyDtype{Dtype::float32};
            d["complex floating"] = PyDtype{Dtype::complex64};
            d["integral"] = PyDtype{Dtype::int32};
            d["indexing"] = PyDtype{Dtype::int32};
            return d;
          },
          nb::kw_only(), arg("device") = nb::none())
      .def("devices", [](const NamespaceInfo&) { return devices(); })
      .def(
          "dtypes",
          [](const NamespaceInfo&, nb::handle, nb::handle kind) { return dtypes_of_kind(kind); },
          nb::kw_only(), arg("device") = nb::none(), arg("kind") = nb::none());
  m.def("__array_namespace_info__", [] { return NamespaceInfo(); });
}

}  // namespace

void init_constants(nb::module_& m) {
  m.attr("pi") = std::numbers::pi;
  m.attr("e") = std::numbers::e;
  m.attr("euler_gamma") = std::numbers::egamma;
  m.attr("inf") = std::numeric_limits<double>::infinity();
  m.attr("nan") = std::numeric_limits<double>::quiet_NaN();
  m.attr("newaxis") = nb::none();
  m.attr("__array_api_version__") = "2024.12";
  m.def(
      "isdtype", &is_dtype, nb::arg("dtype"), nb::arg("kind"),
      "Is the dtype of the kind (a Dtype, a name of the array API's kinds, or a tuple of those)?");
  m.def(
      "can_cast",
      [](const std::variant<PyDtype, array>& from, PyDtype to) {
        const PyDtype* dtype = std::get_if<PyDtype>(&from);
        return can_cast(dtype != nullptr ? dtype->value : std::get<array>(from).dtype(), to);
      },
      nb::arg("from_"), nb::arg("to"), "Does promotion with `to` give `to`?");
  def_namespace_info(m);
}

}  // namespace cermet::python
