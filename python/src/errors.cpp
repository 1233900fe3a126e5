// SPDX-License-Identifier: MIT
// Error kinds as Python's own exceptions, and Ctrl-C as the poll hook.
#include <utility>

#include "bind.h"

namespace cermet::python {

namespace {

PyObject* axis_error = nullptr;  // both ValueError and IndexError, as NumPy's

PyObject* exception_of(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::value:
    case ErrorKind::device: return PyExc_ValueError;
    case ErrorKind::dtype:
    case ErrorKind::type: return PyExc_TypeError;
    case ErrorKind::index: return PyExc_IndexError;
    case ErrorKind::axis: return axis_error;
    case ErrorKind::overflow: return PyExc_OverflowError;
    case ErrorKind::memory: return PyExc_MemoryError;
    case ErrorKind::io: return PyExc_OSError;
    case ErrorKind::interrupted:  // restore_raised
    case ErrorKind::runtime:
    case ErrorKind::internal: return PyExc_RuntimeError;
  }
  return PyExc_RuntimeError;
}

// Of the main thread, which alone runs the handlers of signals.
unsigned long main_thread = 0;
// What a handler has raised, until the error that ends the work is Python's again: on the way there no
// call of Python's may find an exception set.
nb::python_error* raised = nullptr;

bool poll() {
  if (PyThread_get_thread_ident() != main_thread) return false;
  const nb::gil_scoped_acquire gil;
  if (PyErr_CheckSignals() == 0) return false;
  delete std::exchange(raised, new nb::python_error);
  return true;
}

// Evaluates for a thread that holds Python's lock without it: another thread's evaluation, which this one may
// have to wait for, asks for the lock when it polls.
void (*evaluate)(std::span<const NodeRef> roots) = nullptr;
void evaluate_without_gil(std::span<const NodeRef> roots) {
  if (PyGILState_Check() == 0) return evaluate(roots);
  without_gil([&] {
    evaluate(roots);
    return 0;
  });
}

// What a message quotes, such as the header of a damaged file, need not be UTF-8.
void set_error(PyObject* type, const std::string& text) {
  const auto size = static_cast<Py_ssize_t>(text.size());
  const nb::object message = nb::steal(PyUnicode_DecodeUTF8(text.data(), size, "backslashreplace"));
  if (message.is_valid()) PyErr_SetObject(type, message.ptr());
}

void restore_raised() {
  if (raised == nullptr) return PyErr_SetNone(PyExc_KeyboardInterrupt);
  raised->restore();
  delete std::exchange(raised, nullptr);
}

}  // namespace

void set_python_error(const std::exception_ptr& pointer) {
  try {
    std::rethrow_exception(pointer);
  } catch (nb::python_error& error) {
    error.restore();
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::interrupted) return restore_raised();
    set_error(exception_of(error.kind()), error.what());
  } catch (const std::bad_alloc&) {
    PyErr_SetString(PyExc_MemoryError,
                    "[allocate] out of memory; free some, or make smaller arrays");
  } catch (const std::bad_cast&) {
    PyErr_SetString(PyExc_TypeError,
                    "[cast] an object is not of the type that its place needs, or __init__ has not "
                    "run on it; make it by calling its class");
  } catch (const nb::builtin_exception& error) {
    PyErr_SetString(PyExc_TypeError, error.what());
  } catch (const std::exception& error) {
    set_error(PyExc_RuntimeError, error.what());
  }
}

void init_errors(nb::module_& m) {
  nb::tuple bases = nb::make_tuple(nb::handle(PyExc_ValueError), nb::handle(PyExc_IndexError));
  axis_error = PyErr_NewExceptionWithDoc("cermet.core.AxisError", "An axis out of range.",
                                         bases.ptr(), nullptr);
  m.attr("AxisError") = nb::handle(axis_error);
  nb::register_exception_translator([](const std::exception_ptr& pointer, void*) {
    try {
      std::rethrow_exception(pointer);
    } catch (const Error&) {
      set_python_error(pointer);
    } catch (const std::bad_alloc&) {
      set_python_error(pointer);
    } catch (const std::bad_cast&) {
      set_python_error(pointer);
    }
  });
  // Not the thread that imports: that may be any.
  main_thread = nb::cast<unsigned long>(
      nb::module_::import_("threading").attr("main_thread")().attr("ident"));
  set_poll_hook(poll);
  evaluate = std::exchange(hooks::evaluate, evaluate_without_gil);
}

}  // namespace cermet::python
