// SPDX-License-Identifier: MIT
// Error kinds as Python's own exceptions, and Ctrl-C as the poll hook.
#include <csignal>

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
    case ErrorKind::interrupted: return PyExc_KeyboardInterrupt;
    case ErrorKind::runtime:
    case ErrorKind::internal: return PyExc_RuntimeError;
  }
  return PyExc_RuntimeError;
}

// A pending SIGINT, looked at without running Python's handlers: they run when the call returns.
bool interrupt_pending() {
  nb::gil_scoped_acquire gil;
  return PyErr_CheckSignals() != 0;
}

// Signals are delivered to the main thread only, and its handler may have raised already.
unsigned long main_thread = 0;
bool poll() { return PyThread_get_thread_ident() == main_thread && interrupt_pending(); }

}  // namespace

void set_python_error(const std::exception_ptr& pointer) {
  try {
    std::rethrow_exception(pointer);
  } catch (nb::python_error& error) {
    error.restore();
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::interrupted && PyErr_Occurred() != nullptr) return;
    PyErr_SetString(exception_of(error.kind()), error.what());
  } catch (const std::bad_alloc&) {
    PyErr_SetString(PyExc_MemoryError,
                    "[allocate] out of memory; free some, or make smaller arrays");
  } catch (const nb::builtin_exception& error) {
    PyErr_SetString(PyExc_TypeError, error.what());
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
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
    }
  });
  // Not the thread that imports: that may be any.
  main_thread = nb::cast<unsigned long>(
      nb::module_::import_("threading").attr("main_thread")().attr("ident"));
  set_poll_hook(poll);
}

}  // namespace cermet::python
