// SPDX-License-Identifier: MIT
// Calls that no signature takes, answered in Cermet's form. nanobind calls a function through a
// pointer in the function's object; here every function and class of the module gets one of ours,
// which calls nanobind's and, when that refused the arguments, asks cermet.call_errors what to say.
#include <algorithm>
#include <array>

#include "bind.h"

namespace cermet::python {

namespace {

constexpr size_t kMost = 16;
std::array<vectorcallfunc, kMost> plain_calls{};  // nanobind's, each once

// Python and nanobind keep flags in the upper bits of the count of arguments.
constexpr size_t kCountMask = (size_t{1} << 31) - 1;

std::string text_of(nb::handle object) {
  const nb::str text(object);
  const char* bytes = text.c_str();
  if (bytes == nullptr) PyErr_Clear();  // a lone surrogate: not of nanobind
  return bytes == nullptr ? "" : bytes;
}

// Whether this is what nanobind says of arguments that the function does not take.
bool is_refusal(nb::handle function, const nb::python_error& error) {
  if (!error.type().is(PyExc_TypeError)) return false;
  const std::string text = text_of(error.value());
  if (PyType_Check(function.ptr()) != 0) return text.ends_with(": no constructor defined!");
  return text.starts_with(text_of(function.attr("__name__")) +
                          "(): incompatible function arguments.");
}

void set_answer(PyObject* function, PyObject* const* args, size_t count, PyObject* names) {
  nb::list positional;
  nb::dict named;
  for (size_t i = 0; i < count; i++) positional.append(nb::handle(args[i]));
  const size_t name_count = names == nullptr ? 0 : nb::len(nb::handle(names));
  for (size_t i = 0; i < name_count; i++) named[nb::handle(names)[i]] = nb::handle(args[count + i]);
  const nb::object answer = nb::module_::import_("cermet.call_errors")
                                .attr("error_of")(nb::handle(function), positional, named);
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(answer.ptr())), answer.ptr());
}

// What errors call it: reading and writing elements are indexing.
std::string told_name(nb::handle function) {
  std::string name = text_of(function.attr("__name__"));
  return name == "__getitem__" || name == "__setitem__" ? "index" : name;
}

// An error of the call that names another function of ours, which this one is made of or which an argument goes
// through. Errors of functions that are called in turn have been through Python; what an evaluation finds
// names the op that it belongs to.
bool names_another(nb::handle function, const nb::python_error& error) {
  if (error.traceback().is_valid() || PyType_Check(function.ptr()) != 0) return false;
  const std::string name = told_name(function), text = text_of(error.value());
  if (text.starts_with("[array] ")) return name != "__init__";
  const size_t end = text.find(']');
  if (!text.starts_with("[") || end == std::string::npos || name.starts_with("__")) return false;
  const nb::module_ core = nb::module_::import_("cermet.core");
  const nb::handle kinds[] = {PyExc_ValueError, PyExc_TypeError, PyExc_OverflowError,
                              core.attr("AxisError")};
  const std::string named = text.substr(1, end - 1);
  return std::ranges::any_of(kinds, [&](nb::handle kind) { return error.type().is(kind); }) &&
         (nb::hasattr(core, named.c_str()) || named == "shape" || named == "index" ||
          named == "cast");
}

void set_named(nb::handle function, nb::python_error& error) {
  const std::string text = text_of(error.value());
  const nb::object told = error.type()(
      nb::str(fmt::format("[{}]{}", told_name(function), text.substr(text.find(']') + 1)).c_str()));
  PyErr_SetObject(error.type().ptr(), told.ptr());
}

// In place of the error that is set, where that is a refusal or does not name the function.
[[gnu::noinline]] void answer_refusal(PyObject* function, PyObject* const* args, size_t nargs,
                                      PyObject* names) {
  nb::python_error error;
  try {
    if (is_refusal(function, error)) set_answer(function, args, nargs & kCountMask, names);
    else if (names_another(function, error)) set_named(function, error);
    else error.restore();
  } catch (const std::exception&) {
    error.restore();  // what nanobind said is better than why it cannot be said better
  }
}

template <size_t i>
PyObject* call(PyObject* function, PyObject* const* args, size_t nargs, PyObject* names) {
  PyObject* result = plain_calls[i](function, args, nargs, names);
  if (result == nullptr) [[unlikely]]
    answer_refusal(function, args, nargs, names);
  return result;
}

template <size_t... i>
constexpr std::array<vectorcallfunc, kMost> calls_of(std::index_sequence<i...>) {
  return {&call<i>...};
}
constexpr std::array<vectorcallfunc, kMost> kCalls = calls_of(std::make_index_sequence<kMost>());

void wrap(nb::handle callable) {
  const Py_ssize_t offset = Py_TYPE(callable.ptr())->tp_vectorcall_offset;
  auto* place = reinterpret_cast<vectorcallfunc*>(reinterpret_cast<char*>(callable.ptr()) + offset);
  if (*place == nullptr || std::ranges::find(kCalls, *place) != kCalls.end()) return;
  for (size_t i = 0; i < kMost; i++) {
    if (plain_calls[i] == nullptr) plain_calls[i] = *place;
    if (plain_calls[i] == *place) return void(*place = kCalls[i]);
  }
}

bool is_of_nanobind(nb::handle object) {
  const std::string_view kind = Py_TYPE(object.ptr())->tp_name;
  return kind == "nanobind.nb_func" || kind == "nanobind.nb_method";
}

void wrap_all(nb::handle scope) {
  const nb::list values(scope.attr("__dict__").attr("values")());
  for (nb::handle value : values) {
    const bool is_class = PyType_Check(value.ptr()) != 0 && nb::type_check(value);
    if (is_of_nanobind(value) || is_class) wrap(value);
    if (is_class || nb::isinstance<nb::module_>(value)) wrap_all(value);
    if (PyObject_TypeCheck(value.ptr(), &PyProperty_Type) == 0) continue;
    for (const char* part : {"fget", "fset"})
      if (is_of_nanobind(value.attr(part))) wrap(value.attr(part));
  }
}

}  // namespace

void init_call_errors(nb::module_& m) { wrap_all(m); }

}  // namespace cermet::python
