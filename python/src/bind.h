// SPDX-License-Identifier: MIT
// What the parts of the extension share. Each part has one init function, called by module.cpp in order.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include <functional>

#include "base/env.h"
#include "base/error.h"
#include "graph/hooks.h"
#include "ops/ops.h"
#include "runtime/allocator.h"
#include "runtime/counters.h"
#include "runtime/device.h"
#include "runtime/poll.h"
#include "runtime/stream.h"
#include "schedule/eval.h"
#include "transform/compile.h"
#include "transform/custom.h"
#include "transform/transform.h"

namespace cermet::python {

namespace nb = nanobind;

// Python's Dtype object (an enum itself would become a Python enum).
struct PyDtype {
  Dtype value;
  operator Dtype() const { return value; }
};
using OptionalDtype = std::optional<PyDtype>;
inline std::optional<Dtype> to_dtype(const OptionalDtype& d) {
  return d ? std::optional<Dtype>(d->value) : std::nullopt;
}

// The Python error for a C++ exception, for entry points without nanobind's own translation.
void set_python_error(const std::exception_ptr& pointer);
void init_errors(nb::module_& m);
void init_origin(nb::module_& m);
void init_dtypes(nb::module_& m);
void init_devices(nb::module_& m);
void init_array(nb::module_& m);
void init_array_at(nb::module_& m);
void init_selection(nb::module_& m);
void init_print(nb::module_& m);
void init_numpy(nb::module_& m);
void init_ops(nb::module_& m);
void init_shape_ops(nb::module_& m);
void init_product_ops(nb::module_& m);
void init_random(nb::module_& m);
void init_fast(nb::module_& m);
void init_memory(nb::module_& m);
void init_transforms(nb::module_& m);
void init_custom(nb::module_& m);
void init_compile(nb::module_& m);
void init_compile_number(nb::module_& m);
void init_explain(nb::module_& m);
void init_io(nb::module_& m);
void init_constants(nb::module_& m);
void init_call_errors(nb::module_& m);  // last: it goes through all that there is

// A module `name` inside m that `import` finds, too.
nb::module_ submodule(nb::module_& m, const char* name, const char* doc);

// --- convert ---
bool is_array(nb::handle object);
std::string type_of(nb::handle object);  // in a message: "an int", "a Dtype", "None"
std::string described(
    nb::handle object);            // the same with its value, if that is short: "an int (5)"
nb::object array_object(array a);  // a new Python object for it
// Traces of compile that have put placeholders into the program's array objects. Under the GIL.
inline int open_traces = 0;
// Waits until an array object holds its own array, where another thread's trace has put a placeholder there;
// not for ever, since that trace may wait for this thread.
void await_own(const array& a);
// What an array object (is_array) holds, be it another thread's placeholder.
inline array& content_of(nb::handle object) { return *nb::inst_ptr<array>(object); }
// ... as this thread may use it.
inline const array& array_of(nb::handle object) {
  const array& a = content_of(object);
  if (open_traces != 0) [[unlikely]]
    await_own(a);
  return a;
}
bool is_scalar(nb::handle object);  // bool, int, float, complex (also NumPy's)
bool is_numpy_scalar(nb::handle object);
bool is_int(nb::handle object);    // int (bool, too), or a number of a trace that stands for one
bool is_index(nb::handle object);  // what counts as one int: also NumPy's, and arrays without axes
// A number that stands for a size or scalar in a trace of compile (compile_number.h).
bool is_traced_number(nb::handle object);
Number to_number(const char* op,
                 nb::handle scalar);  // a number of a trace becomes a constant, by a guard
Number to_symbolic_number(const char* op, nb::handle scalar);  // ... stays what it is
// A Python number, or one of a trace, and the dtype it has alone: int32, or the 64-bit dtype that holds it.
struct TypedNumber {
  Number number;
  Dtype dtype;
};
// An int from 2**63 on is held by its bits, to be stored as uint64, unless another dtype is wanted, which
// must hold the number.
TypedNumber to_typed_number(const char* op, nb::handle scalar, std::optional<Dtype> wanted);
Dim to_size(const char* op, nb::handle size);  // an int, or a number of a trace, which stays open
Dim to_size(const char* op, const char* what, nb::handle size);
std::optional<Dim> to_optional_size(const char* op, const char* what, nb::handle size);
nb::object size_object(const Dim& size);
// An argument that must be an int or has __index__ (a number of a trace becomes a constant); `what` is
// its name in the error.
int64_t to_int(const char* op, const char* what, nb::handle value);
std::optional<int64_t> to_optional_int(const char* op, const char* what, nb::handle value);
bool to_flag(nb::handle value);  // None is false; what has no truth value raises
// The items of a sequence as they are now: reading one may run code that changes the sequence.
nb::tuple items_of(const char* op, const char* what, nb::handle sequence);
std::vector<int64_t> to_ints(const char* op, const char* what, nb::handle sequence);
ShapeList to_sizes(const char* op, const char* what, nb::handle sequence);
// While it lives one level of a recursion over Python's containers is open. When too many are, raises [op]
// value; RecursionError where the calls around it are the many.
class RecursionLevel {
 public:
  explicit RecursionLevel(const char* op) {
    if (Py_EnterRecursiveCall(" in nested arguments") != 0) refuse(op);
    ++depth_;
  }
  ~RecursionLevel() {
    --depth_;
    Py_LeaveRecursiveCall();
  }
  RecursionLevel(const RecursionLevel&) = delete;
  RecursionLevel& operator=(const RecursionLevel&) = delete;

 private:
  [[noreturn]] static void refuse(const char* op);
  static thread_local int depth_;
};
// Arrays, scalars, nested sequences, buffers (NumPy), objects with __mlx_array__ or __dlpack__.
array to_array(nb::handle object, std::optional<Dtype> dtype = {});
// The two operands of a binary op: a Python scalar is weak beside an array.
std::pair<array, array> to_operands(const char* op, nb::handle a, nb::handle b);
// f of the two operands, for an op that broadcasts: a scalar comes in the array's shape, which saves
// a node.
using UnaryOp = array (*)(const array&, const S&);
using BinaryOp = array (*)(const array&, const array&, const S&);
array elementwise(const char* op, BinaryOp f, nb::handle a, nb::handle b, const S& s);
// A scalar beside `like` takes its dtype by weak promotion, all else is converted alone.
array to_array_like(const char* op, nb::handle object, const array& like);
StreamOrDevice to_stream_arg(
    nb::handle object);  // None, Stream, ThreadLocalStream, Device, DeviceType
OptionalAxes to_axes(const char* op, nb::handle axis);     // None, int, sequence of ints
ShapeList to_shape_list(const char* op, nb::handle shape,  // int or sequence
                        const char* what = "the shape");
Shape to_shape(const char* op, nb::handle shape);
nb::tuple shape_tuple(const Shape& shape);
nb::object to_python_scalar(const array& a, const char* op);  // item()
nb::object to_list(const array& a);
// NumPy array; copy false: shares memory (writable).
nb::object to_numpy(const array& a, bool copy);
// A copy of an object with the buffer protocol or __dlpack__; float64 becomes float32 and complex128
// complex64, as in MLX, unless a dtype is given.
array from_buffer_object(nb::handle object, std::optional<Dtype> dtype);

// How often without_gil has let other threads run: where it is as before, nothing here has. Under the GIL.
inline uint64_t gil_releases = 0;

// Runs work without the GIL; Ctrl-C is seen by the poll hook.
template <typename F>
auto without_gil(F&& f) {
  ++gil_releases;
  const nb::gil_scoped_release release;
  return f();
}

// --- printing ---
std::string repr_of(const array& a);

// --- indexing ---
array get_item(const array& a, nb::handle index);
void set_item(array& a, nb::handle index, nb::handle value);
array update_item(const array& a, nb::handle index, nb::handle value, ScatterReduce reduce,
                  bool inverse);  // .at[...]: inverse: subtract, divide

// --- trees ---
// Arrays in dicts, lists, tuples (NamedTuples too) and Modules, depth first; dict order is insertion.
void tree_visit(const char* op, nb::handle tree, const std::function<void(nb::handle leaf)>& visit);
nb::object tree_map(const char* op, nb::handle tree,
                    const std::function<nb::object(nb::handle leaf)>& map);
Arrays tree_arrays(const char* op, nb::handle tree);  // array leaves only
// A dict, OrderedDict or defaultdict: what a transformed function gets its own copy of, not a Module.
bool is_plain_dict(nb::handle object);
// The items (a tuple) as a tuple of the class of another.
nb::object tuple_like(nb::handle tuple, nb::object items);
// One axis for each array leaf, -1 for none: `axes` is an int or None for the whole tree, or a tree like it.
// They count among the leaf's axes and those that are to be added.
void leaf_axes(const char* op, nb::handle tree, nb::handle axes, std::vector<int>& to,
               int added = 0);

// fun called, its intermediate results to be computed again for derivatives.
nb::object call_checkpointed(nb::handle fun, nb::args args, nb::kwargs kwargs);

}  // namespace cermet::python

namespace nanobind::detail {

// As an argument of a function: an int, or an open number of a trace that stands for one.
template <>
struct type_caster<cermet::Dim> {
  NB_TYPE_CASTER(cermet::Dim, const_name("int"))

  bool from_python(handle object, uint32_t flags, cleanup_list* cleanup) noexcept {
    if (cermet::python::is_traced_number(object) && cermet::python::is_int(object)) {
      value = cermet::python::to_size("", object);
      return true;
    }
    make_caster<int64_t> plain;
    if (!plain.from_python(object, flags, cleanup)) return false;
    value = plain.value;
    return true;
  }
};

// As an argument of a function: `const array&` is the array as it is when the call begins, whatever other
// threads assign to the object meanwhile; `array&` is the object's own.
template <>
struct type_caster<cermet::array> : type_caster_base<cermet::array> {
  template <typename T>
  using Cast = std::conditional_t<std::is_pointer_v<T> || std::is_same_v<T, cermet::array&>,
                                  precise_cast_t<T>, cermet::array>;

  operator cermet::array&() {
    auto& a = type_caster_base::operator cermet::array&();
    if (cermet::python::open_traces != 0) [[unlikely]]
      cermet::python::await_own(a);
    return a;
  }
  operator cermet::array() { return operator cermet::array&(); }
};

// As an argument of a function: a float, or an open number of a trace.
template <>
struct type_caster<cermet::Number> {
  NB_TYPE_CASTER(cermet::Number, const_name("float"))

  bool from_python(handle object, uint32_t flags, cleanup_list* cleanup) noexcept {
    if (cermet::python::is_traced_number(object)) {
      value = cermet::python::to_symbolic_number("", object);
      return true;
    }
    make_caster<double> plain;
    if (!plain.from_python(object, flags, cleanup)) return false;
    value = cermet::number(plain.value);
    return true;
  }
};

}  // namespace nanobind::detail
