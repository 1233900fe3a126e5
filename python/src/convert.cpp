// SPDX-License-Identifier: MIT
// Python values to arrays and back.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "base/dtype_visit.h"
#include "bind.h"
#include "compile_number.h"
#include "foreign.h"
#include "graph/hooks.h"
#include "ops/operators.h"
#include "runtime/cgroup.h"
#include "runtime/poll.h"

namespace cermet::python {

bool is_numpy_scalar(nb::handle object) {
  // NumPy's scalars are no ints or floats (but float64 is a float); they have these three.
  if (PyLong_Check(object.ptr()) || is_array(object) || PyType_Check(object.ptr()) ||
      !nb::hasattr(object, "dtype") || !nb::hasattr(object, "item") ||
      !nb::hasattr(object, "ndim") || nb::hasattr(object, "__setitem__"))
    return false;
  const nb::object ndim = object.attr("ndim");
  return PyLong_Check(ndim.ptr()) && ndim.equal(nb::int_(0));
}

namespace {

// What it is in this call, which is a guard of a trace.
Number seen(Number n) {
  if (n.expr != 0 && hooks::trace != nullptr) hooks::trace->look(n);
  n.expr = 0;
  return n;
}

// The number that a NumPy scalar stands for; a date, a string or a long double stands for none.
nb::object numpy_number(nb::handle object) {
  nb::object number = object.attr("item")();
  CERMET_CHECK(is_scalar(number), type, "array",
               "{} was given, whose item() is {}; it must be a number", type_of(object),
               type_of(number));
  return number;
}

// Beside an array, NumPy's arrays and other packages' tensors are as weak as numbers: they raise its dtype to
// their category only.
enum class Strength { number, foreign, array };

Strength strength(nb::handle object) {
  if (is_array(object)) return Strength::array;
  if (is_scalar(object)) return Strength::number;
  const bool foreign = PyObject_CheckBuffer(object.ptr()) != 0 ||
                       (!nb::hasattr(object, "__mlx_array__") && nb::hasattr(object, "__dlpack__"));
  return foreign ? Strength::foreign : Strength::array;
}

void check_fits(const char* op, const Number& n, Dtype dtype) {
  if (n.kind != Number::Kind::integer || !is_integer(dtype)) return;
  const int bits = 8 * static_cast<int>(size_of(dtype));
  const auto high = static_cast<int64_t>(~uint64_t{0} >>
                                         (is_signed(dtype) || bits == 64 ? 65 - bits : 64 - bits));
  const int64_t low = is_signed(dtype) ? -high - 1 : 0;
  const bool fits =
      bits == 64 ? is_signed(dtype) || n.integer >= 0 : n.integer >= low && n.integer <= high;
  CERMET_CHECK(fits, overflow, op, "{} does not fit {}; it must be from {} to {}", n.integer,
               name_of(dtype), low,
               bits == 64 && low == 0 ? ~uint64_t{0} : static_cast<uint64_t>(high));
}

template <typename T>
T element_of(const Number& n) {
  const bool whole = n.kind == Number::Kind::integer || n.kind == Number::Kind::boolean;
  const double real = whole ? static_cast<double>(n.integer) : n.real_imag.real();
  if constexpr (std::is_same_v<T, std::complex<float>> || std::is_same_v<T, std::complex<double>>) {
    return whole ? T(real) : T(n.real_imag);
  } else if constexpr (std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>) {
    return T(static_cast<float>(real));
  } else if constexpr (std::is_same_v<T, bool>) {
    return whole ? n.integer != 0 : n.real_imag != 0.0;
  } else if constexpr (std::is_integral_v<T>) {
    return whole ? static_cast<T>(n.integer) : static_cast<T>(static_cast<int64_t>(real));
  } else {
    return whole ? static_cast<T>(n.integer) : static_cast<T>(real);
  }
}

// --- nested sequences ---

bool is_sequence(nb::handle object) {
  return PyList_Check(object.ptr()) || PyTuple_Check(object.ptr());
}

// Numbers in a row. As long as all are floats, or all are ints, they are kept by their bits alone.
class NumberRow {
 public:
  void add(double value) { add_bits(Number::Kind::floating, std::bit_cast<uint64_t>(value)); }
  void add(int64_t value) { add_bits(Number::Kind::integer, std::bit_cast<uint64_t>(value)); }
  void add(const Number& number) {
    if (number.kind == Number::Kind::integer) return add(number.integer);
    if (number.kind == Number::Kind::floating) return add(number.real_imag.real());
    spread();
    push(number);
  }

  size_t size() const { return bits_.size() + blocks_.size() * kBlock + numbers_.size(); }
  template <typename T>
  void write(T* to) const {
    const auto put = [&](const auto& values, const auto& number_of) {
      for (size_t i = 0; i < values.size(); i++) {
        if (i % kBlock == 0) check_cancelled("array");
        *to++ = element_of<T>(number_of(values[i]));
      }
    };
    if (kind_ == Number::Kind::floating)
      put(bits_, [](uint64_t bits) { return number(std::bit_cast<double>(bits)); });
    else put(bits_, [](uint64_t bits) { return number(std::bit_cast<int64_t>(bits)); });
    const auto as_is = [](const Number& number) { return number; };
    for (const std::vector<Number>& block : blocks_) put(block, as_is);
    put(numbers_, as_is);
  }

 private:
  static constexpr size_t kBlock = 2048;

  void add_bits(Number::Kind kind, uint64_t bits) {
    if (bits_.empty()) kind_ = kind;
    if (kind == kind_ && !is_spread_) return bits_.push_back(bits);
    spread();
    push(of_bits(kind, bits));
  }
  static Number of_bits(Number::Kind kind, uint64_t bits) {
    return kind == Number::Kind::floating ? number(std::bit_cast<double>(bits))
                                          : number(std::bit_cast<int64_t>(bits));
  }
  void spread() {
    is_spread_ = true;
    for (uint64_t bits : std::exchange(bits_, {})) push(of_bits(kind_, bits));
  }
  void push(const Number& number) {
    if (numbers_.size() == kBlock) {
      blocks_.push_back(std::exchange(numbers_, {}));
      numbers_.reserve(kBlock);
    }
    numbers_.push_back(number);
  }

  Number::Kind kind_ = Number::Kind::floating;
  bool is_spread_ = false;
  std::vector<uint64_t> bits_;
  std::vector<std::vector<Number>> blocks_;  // full: a single vector would be copied as it grows
  std::vector<Number> numbers_;              // of the last block
};

class NestedNumbers {
 public:
  // False when there are arrays among the numbers.
  bool read(nb::handle object, std::optional<Dtype> wanted) {
    wanted_ = wanted;
    for (nb::object inner = nb::borrow(object); is_sequence(inner); inner = inner[0]) {
      CERMET_CHECK(shape_.size() < kDeepest, value, "array",
                   "lists are nested more than {} deep; one of them may hold itself", kDeepest);
      shape_.push_back(static_cast<int64_t>(nb::len(inner)));
      if (nb::len(inner) == 0) break;
    }
    return collect(object, 0);
  }

  array to_array() {
    const Dtype dtype = wanted_ ? *wanted_ : dtype_.value_or(Dtype::float32);
    const Shape shape{std::span<const int64_t>(shape_)};
    check_size("array", shape, dtype);
    BufferRef buffer =
        allocator(default_device()).allocate(numbers_.size() * size_of(dtype), "array");
    visit_dtype(dtype, [&]<typename T>(std::type_identity<T>) {
      numbers_.write(static_cast<T*>(buffer->data()));
    });
    return array::from_buffer(std::move(buffer), shape, Layout::contiguous(shape), dtype);
  }

 private:
  static constexpr size_t kDeepest = 1000;
  static constexpr int64_t kPart = 1 << 16;

  bool collect(nb::handle object, size_t depth) {
    poll_.turn();
    if (is_sequence(object)) {
      const auto n = static_cast<int64_t>(nb::len(object));
      CERMET_CHECK(depth < shape_.size() && shape_[depth] == n, value, "array",
                   "the nested lists are ragged: {} elements at depth {} where others have {}; "
                   "lists of one depth must have one length",
                   n, depth,
                   depth < shape_.size() ? fmt::format("{}", shape_[depth]) : std::string("none"));
      return collect_items(object, n, depth);
    }
    const bool from_numpy = !is_scalar(object) && is_numpy_scalar(object);
    if (!from_numpy && !is_scalar(object)) return false;
    CERMET_CHECK(depth == shape_.size(), value, "array",
                 "the nested lists are ragged: a single number at depth {} where others are lists; "
                 "at one depth there must be numbers alone, or lists alone",
                 depth);
    TypedNumber n =
        to_typed_number("array", from_numpy ? numpy_number(object) : nb::borrow(object), wanted_);
    n.number = seen(n.number);
    add(n);
    return true;
  }

  // How many items at the beginning of a list or tuple were Python's own floats and ints: nothing of the
  // user's runs to read these.
  int64_t add_plain(nb::handle object, int64_t n) {
    PyObject* p = object.ptr();
    int64_t i = 0;
    for (; i < n && i < PySequence_Fast_GET_SIZE(p); i++) {
      poll_.turn();
      PyObject* item = PySequence_Fast_GET_ITEM(p, i);
      if (PyFloat_CheckExact(item)) {
        note(wanted_.value_or(Dtype::float32), false);
        numbers_.add(PyFloat_AS_DOUBLE(item));
        continue;
      }
      int overflow = PyLong_CheckExact(item) ? 0 : 1;
      const int64_t value = overflow == 0 ? PyLong_AsLongLongAndOverflow(item, &overflow) : 0;
      if (overflow != 0) break;
      if (wanted_) check_fits("array", number(value), *wanted_);
      const bool is_short = value == static_cast<int32_t>(value);
      note(wanted_.value_or(is_short ? Dtype::int32 : Dtype::int64), value < 0);
      numbers_.add(value);
    }
    return i;
  }

  // Of a long list a part at a time: to take hold of all items takes long, too.
  bool collect_items(nb::handle object, int64_t n, size_t depth) {
    const bool innermost = depth + 1 == shape_.size();
    for (int64_t begin = innermost ? add_plain(object, n) : 0; begin < n; begin += kPart) {
      const int64_t end = std::min(begin + kPart, n);
      const bool whole = begin == 0 && end == n;
      const nb::object part =
          whole ? nb::borrow(object) : nb::steal(PySequence_GetSlice(object.ptr(), begin, end));
      if (!part.is_valid()) nb::raise_python_error();
      const nb::tuple items = items_of("array", "a list", part);
      CERMET_CHECK(static_cast<int64_t>(items.size()) == end - begin, value, "array",
                   "a list has changed its length while it was read; leave it as it is until then");
      for (nb::handle item : items)
        if (!collect(item, depth + 1)) return false;
    }
    return true;
  }

  void add(const TypedNumber& n) {
    note(n.dtype, n.number.kind == Number::Kind::integer && n.dtype != Dtype::uint64 &&
                      n.number.integer < 0);
    numbers_.add(n.number);
  }

  // Of a number that is to be added.
  void note(Dtype dtype, bool is_negative) {
    has_negative_ |= is_negative;
    if (dtype_ == dtype) return;
    // uint64 appears for numbers that nothing else holds, and then stays among integers.
    const bool both = dtype_ && is_integer(*dtype_) && is_integer(dtype);
    const bool large = both && (*dtype_ == Dtype::uint64 || dtype == Dtype::uint64);
    dtype_ = large ? Dtype::uint64 : dtype_ ? promote(*dtype_, dtype) : dtype;
    CERMET_CHECK(
        !large || !has_negative_, overflow, "array",
        "a list holds negative numbers and numbers from 2**63 on; no integer dtype has both");
  }

  SparsePoll poll_{"array"};
  std::optional<Dtype> wanted_, dtype_;
  bool has_negative_ = false;
  std::vector<int64_t> shape_;
  NumberRow numbers_;
};

// Python refuses to write out an int of thousands of digits.
std::string shown_int(nb::handle value) {
  const nb::object text = nb::steal(PyObject_Str(value.ptr()));
  if (text.is_valid()) return nb::cast<std::string>(text);
  PyErr_Clear();
  return "a very large int";
}

array from_sequence(nb::handle object, std::optional<Dtype> dtype) {
  NestedNumbers numbers;
  if (numbers.read(object, dtype)) return numbers.to_array();
  const RecursionLevel level("array");
  Arrays parts;
  for (nb::handle item : items_of("array", "a list", object)) {
    check_cancelled("array");
    parts.push_back(to_array(item));
  }
  for (const array& part : parts)
    CERMET_CHECK(part.shape() == parts[0].shape(), value, "array",
                 "the nested lists are ragged: an element of shape {} beside one of shape {}; all "
                 "must have one shape",
                 part.shape().to_string(), parts[0].shape().to_string());
  const array stacked = stack(parts, 0);
  return dtype ? astype(stacked, *dtype) : stacked;
}

template <typename T>
PyObject* new_number(const void* from) {
  T e;
  std::memcpy(&e, from, sizeof(T));
  if constexpr (std::is_same_v<T, bool>) return Py_NewRef(e ? Py_True : Py_False);
  else if constexpr (std::is_same_v<T, uint64_t>) return PyLong_FromUnsignedLongLong(e);
  else if constexpr (std::is_integral_v<T>) return PyLong_FromLongLong(static_cast<long long>(e));
  else if constexpr (requires { e.imag(); }) return PyComplex_FromDoubles(e.real(), e.imag());
  else if constexpr (std::is_floating_point_v<T>) return PyFloat_FromDouble(e);
  else return PyFloat_FromDouble(static_cast<double>(static_cast<float>(e)));
}

nb::object number_object(const void* from, Dtype dtype) {
  return visit_dtype(
      dtype, [&]<typename T>(std::type_identity<T>) { return nb::steal(new_number<T>(from)); });
}

// A list that is filled item by item. One that is given up has no more than was filled: to walk the places
// of a long list takes long, even where nothing is there.
class FilledList {
 public:
  explicit FilledList(int64_t size) : list_(nb::steal(PyList_New(size))) {
    if (!list_.is_valid()) nb::raise_python_error();
  }
  ~FilledList() {
    if (list_.is_valid()) Py_SET_SIZE(reinterpret_cast<PyVarObject*>(list_.ptr()), filled_);
  }
  FilledList(const FilledList&) = delete;
  FilledList& operator=(const FilledList&) = delete;

  void add(PyObject* item) {  // taken over
    if (item == nullptr) nb::raise_python_error();
    PyList_SET_ITEM(list_.ptr(), filled_++, item);
  }
  nb::object take() { return std::move(list_); }

 private:
  nb::object list_;
  Py_ssize_t filled_ = 0;
};

nb::object nested_list(const array& a, const char* data, int axis, SparsePoll& poll) {
  if (axis == a.ndim()) return number_object(data, a.dtype());
  const int64_t step =
      a.node()->layout.strides[static_cast<size_t>(axis)] * static_cast<int64_t>(a.itemsize());
  const int64_t n = a.shape()[axis];
  FilledList list(n);
  const auto fill = [&](auto&& item) {
    for (int64_t i = 0; i < n; i++) {
      poll.turn();
      list.add(item(data + i * step));
    }
  };
  if (axis + 1 < a.ndim()) {
    fill([&](const char* at) { return nested_list(a, at, axis + 1, poll).release().ptr(); });
  } else {
    visit_dtype(a.dtype(), [&]<typename T>(std::type_identity<T>) { fill(new_number<T>); });
  }
  return list.take();
}

// The lists of a broadcast array, or of one with empty rows, may be far larger than the array.
void check_lists_fit(const Shape& shape) {
  constexpr double kList = 56, kItem = sizeof(PyObject*);  // bytes, without the numbers
  double lists = 1, bytes = 0;
  for (int axis = 0; axis < shape.ndim(); axis++) {
    const auto size = static_cast<double>(shape[axis]);
    bytes += lists * (kList + kItem * size);
    lists *= size;
  }
  const auto most = static_cast<double>(physical_memory());
  CERMET_CHECK(bytes <= most, memory, "tolist",
               "lists for shape {} take at least {:.3g} bytes, the machine has {:.3g}; take a part "
               "of the array",
               shape.to_string(), bytes, most);
}

}  // namespace

PyTypeObject* array_type() {
  static auto* const type = reinterpret_cast<PyTypeObject*>(nb::type<array>().ptr());
  return type;
}

std::string type_of(nb::handle object) {
  if (object.is_none()) return "None";
  const std::string full = nb::type_name(object.type()).c_str();
  const bool is_ours = full.starts_with("cermet.core.");
  const std::string name = is_ours ? full.substr(full.rfind('.') + 1) : full;
  const bool has_vowel = std::string_view("aeioAEIO").find(name[0]) != std::string_view::npos;
  return (has_vowel || name == "ndarray" ? "an " : "a ") + name;
}

std::string described(nb::handle object) {
  constexpr size_t kShort = 40;
  if (object.is_none() || is_array(object)) return type_of(object);
  const nb::object text = nb::steal(PyObject_Repr(object.ptr()));
  if (!text.is_valid()) PyErr_Clear();
  const bool is_short = text.is_valid() && nb::len(text) <= kShort;
  return is_short ? fmt::format("{} ({})", type_of(object), nb::cast<std::string>(text))
                  : type_of(object);
}

thread_local int RecursionLevel::depth_ = 0;

void RecursionLevel::refuse(const char* op) {
  constexpr int kMany = 64;  // of containers, in a program that does not hold itself
  if (depth_ < kMany) nb::raise_python_error();
  PyErr_Clear();
  fail(ErrorKind::value, op,
       "containers are nested more than {} deep, or one holds itself; give a list, tuple or dict "
       "that "
       "ends",
       depth_);
}

bool is_array(nb::handle object) {
  return PyObject_TypeCheck(object.ptr(), array_type()) != 0 && nb::inst_ready(object);
}

nb::object array_object(array a) {
  nb::object object = nb::inst_alloc(nb::handle(reinterpret_cast<PyObject*>(array_type())));
  new (nb::inst_ptr<array>(object)) array(std::move(a));
  nb::inst_mark_ready(object);
  return object;
}

bool is_scalar(nb::handle object) {
  return PyLong_Check(object.ptr()) || PyFloat_Check(object.ptr()) ||
         PyComplex_Check(object.ptr()) || is_traced_number(object);
}

bool is_int(nb::handle object) {
  return PyLong_Check(object.ptr()) ||
         (is_traced_number(object) &&
          to_symbolic_number("index", object).kind == Number::Kind::integer);
}

Number to_number(const char* op, nb::handle scalar) { return seen(to_symbolic_number(op, scalar)); }

Number to_symbolic_number(const char* op, nb::handle scalar) {
  PyObject* p = scalar.ptr();
  if (is_traced_number(scalar)) return traced_number(scalar);
  if (PyBool_Check(p)) return number(p == Py_True);
  if (PyLong_Check(p)) {
    int overflow = 0;
    const long long v = PyLong_AsLongLongAndOverflow(p, &overflow);
    CERMET_CHECK(overflow == 0, overflow, op,
                 "{} does not fit 64 bits; use an int from -2**63 to 2**63 - 1, or a float",
                 shown_int(scalar));
    return number(static_cast<int64_t>(v));
  }
  if (PyFloat_Check(p)) return number(PyFloat_AS_DOUBLE(p));
  if (PyComplex_Check(p)) {
    const Py_complex c = PyComplex_AsCComplex(p);
    return number(std::complex<double>(c.real, c.imag));
  }
  fail(ErrorKind::type, op, "{} was given; it must be a number", type_of(scalar));
}

TypedNumber to_typed_number(const char* op, nb::handle scalar, std::optional<Dtype> wanted) {
  if (PyLong_Check(scalar.ptr()) && !PyBool_Check(scalar.ptr())) {
    const unsigned long long u = PyLong_AsUnsignedLongLong(scalar.ptr());
    const bool fits = PyErr_Occurred() == nullptr;
    PyErr_Clear();
    if (fits && u > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      if (wanted && is_inexact(*wanted)) return {number(static_cast<double>(u)), *wanted};
      CERMET_CHECK(!wanted || *wanted == Dtype::uint64, overflow, op,
                   "{} does not fit {}; uint64 holds it", u, name_of(*wanted));
      return {number(static_cast<int64_t>(u)), Dtype::uint64};
    }
  }
  const Number n = to_symbolic_number(op, scalar);
  if (wanted) {
    check_fits(op, n, *wanted);
    return {n, *wanted};
  }
  // A smaller number would have another dtype; that one of int32 is no larger is left to its cast.
  if (n.kind == Number::Kind::integer && n.integer != static_cast<int32_t>(n.integer))
    return {seen(n), Dtype::int64};
  return {n, default_dtype(n)};
}

bool is_index(nb::handle object) {
  if (is_int(object)) return true;
  if (PyIndex_Check(object.ptr()) == 0) return false;
  return !nb::hasattr(object, "ndim") || object.attr("ndim").equal(nb::int_(0));
}

int64_t to_int(const char* op, const char* what, nb::handle value) {
  const nb::object index = nb::steal(PyNumber_Index(value.ptr()));
  if (!index.is_valid()) {
    if (PyErr_ExceptionMatches(PyExc_TypeError) == 0) nb::raise_python_error();
    PyErr_Clear();
    fail(ErrorKind::type, op, "{} is {}; it must be an int", what, type_of(value));
  }
  int overflow = 0;
  const long long n = PyLong_AsLongLongAndOverflow(index.ptr(), &overflow);
  CERMET_CHECK(overflow == 0, overflow, op,
               "{} is {}, which does not fit 64 bits; it must be from -2**63 to 2**63 - 1", what,
               shown_int(index));
  return n;
}

std::optional<int64_t> to_optional_int(const char* op, const char* what, nb::handle value) {
  if (value.is_none()) return std::nullopt;
  return to_int(op, what, value);
}

bool to_flag(nb::handle value) {
  const int truth = PyObject_IsTrue(value.ptr());
  if (truth < 0) nb::raise_python_error();
  return truth != 0;
}

nb::tuple items_of(const char* op, const char* what, nb::handle sequence) {
  PyObject* p = sequence.ptr();
  const bool other = PyUnicode_Check(p) || PyBytes_Check(p) || PyDict_Check(p) || PyType_Check(p);
  CERMET_CHECK(!other && (PySequence_Check(p) != 0 || nb::hasattr(sequence, "__iter__")), type, op,
               "{} is {}; it must be a sequence", what, type_of(sequence));
  constexpr int64_t kMostItems = 1 << 20;
  if (is_array(sequence)) {
    const array& a = array_of(sequence);
    CERMET_CHECK(a.ndim() > 0 && a.shape(0) <= kMostItems, value, op,
                 "{} is an array of shape {}; as a sequence it has 1 to {} items", what,
                 a.shape().to_string(), kMostItems);
  }
  const nb::object items = nb::steal(PySequence_Tuple(p));
  if (!items.is_valid()) nb::raise_python_error();
  return nb::borrow<nb::tuple>(items);
}

std::vector<int64_t> to_ints(const char* op, const char* what, nb::handle sequence) {
  std::vector<int64_t> ints;
  for (nb::handle item : items_of(op, what, sequence)) ints.push_back(to_int(op, what, item));
  return ints;
}

array to_array(nb::handle object, std::optional<Dtype> dtype) {
  if (is_array(object)) {
    array a = array_of(object);
    return dtype ? astype(a, *dtype) : a;
  }
  CERMET_CHECK(PyObject_TypeCheck(object.ptr(), array_type()) == 0, type, "array",
               "an array was given that was never made (by __new__ alone); call array()");
  if (is_scalar(object)) {
    const TypedNumber n = to_typed_number("array", object, dtype);
    return full(Shape{}, n.number, n.dtype);
  }
  if (is_sequence(object)) return from_sequence(object, dtype);
  if (is_numpy_array(object)) return from_buffer_object(object, dtype);
  CERMET_CHECK(PyType_Check(object.ptr()) == 0, type, "array",
               "the class {} was given; it must be a number, a list or an array",
               nb::str(object.attr("__name__")).c_str());
  if (nb::hasattr(object, "__mlx_array__")) {
    const RecursionLevel level("array");
    return to_array(object.attr("__mlx_array__")(), dtype);
  }
  if (is_numpy_scalar(object) && !PyObject_CheckBuffer(object.ptr()))
    return to_array(numpy_number(object), dtype);
  return from_buffer_object(object, dtype);
}

std::pair<array, array> to_operands(const char* op, nb::handle a, nb::handle b) {
  const Strength of_a = strength(a), of_b = strength(b);
  if (of_a < of_b) {
    array y = to_array(b);
    array x = to_array_like(op, a, y);
    return {std::move(x), std::move(y)};
  }
  array x = to_array(a);
  array y = of_b < of_a ? to_array_like(op, b, x) : to_array(b);
  return {std::move(x), std::move(y)};
}

array elementwise(const char* op, BinaryOp f, nb::handle a, nb::handle b, const S& s) {
  const auto scalar = [op](const array& like, nb::handle number) {
    return beside(op, like, to_symbolic_number(op, number));
  };
  const bool first = is_array(a), second = is_array(b);
  if (first && second) return f(array(array_of(a)), array(array_of(b)), s);
  if (first && is_scalar(b)) {
    const array x = array_of(a);
    return f(x, scalar(x, b), s);
  }
  if (second && is_scalar(a)) {
    const array y = array_of(b);
    return f(scalar(y, a), y, s);
  }
  const auto [x, y] = to_operands(op, a, b);
  return f(x, y, s);
}

array to_array_like(const char* op, nb::handle object, const array& like) {
  if (is_scalar(object)) return weak_scalar(op, to_symbolic_number(op, object), like.dtype());
  array a = to_array(object);
  if (strength(object) == Strength::array) return a;
  const Dtype dtype = promote_weak(like.dtype(), category_of(a.dtype()));
  return a.dtype() == dtype ? a : astype(a, dtype);
}

OptionalAxes to_axes(const char* op, nb::handle axis) {
  if (axis.is_none()) return std::nullopt;
  if (is_index(axis)) return AxisList{to_int(op, "axis", axis)};
  CERMET_CHECK(PySequence_Check(axis.ptr()) != 0 && !nb::isinstance<nb::str>(axis), type, op,
               "axis is {}; it must be None, an int or a sequence of ints", type_of(axis));
  const std::vector<int64_t> axes = to_ints(op, "axis", axis);
  return AxisList(axes.begin(), axes.end());
}

Dim to_size(const char* op, const char* what, nb::handle size) {
  if (is_traced_number(size) && is_int(size)) {
    const Number n = traced_number(size);
    return {n.integer, n.expr};
  }
  return to_int(op, what, size);
}

Dim to_size(const char* op, nb::handle size) { return to_size(op, "a size", size); }

std::optional<Dim> to_optional_size(const char* op, const char* what, nb::handle size) {
  if (size.is_none()) return std::nullopt;
  return to_size(op, what, size);
}

ShapeList to_sizes(const char* op, const char* what, nb::handle sequence) {
  ShapeList sizes;
  for (nb::handle item : items_of(op, what, sequence)) sizes.push_back(to_size(op, what, item));
  return sizes;
}

nb::object size_object(const Dim& size) {
  if (size.expr != 0)
    return traced_number_object({Number::Kind::integer, size.value, 0, size.expr});
  return nb::steal(PyLong_FromLongLong(size.value));
}

ShapeList to_shape_list(const char* op, nb::handle shape, const char* what) {
  if (is_index(shape)) return {to_size(op, shape)};
  CERMET_CHECK(PySequence_Check(shape.ptr()) != 0 && !nb::isinstance<nb::str>(shape), type, op,
               "{} is {}; it must be an int or a sequence of ints", what, type_of(shape));
  ShapeList list;
  for (nb::handle item : items_of(op, what, shape)) list.push_back(to_size(op, item));
  return list;
}

Shape to_shape(const char* op, nb::handle shape) {
  const ShapeList list = to_shape_list(op, shape);
  for (const Dim& size : list)
    CERMET_CHECK(!is_less(size, 0), value, op, "a size is {}; sizes must not be negative",
                 size.value);
  return Shape(list);
}

nb::tuple shape_tuple(const Shape& shape) {
  nb::object tuple = nb::steal(PyTuple_New(shape.ndim()));
  for (int i = 0; i < shape.ndim(); i++)
    PyTuple_SET_ITEM(tuple.ptr(), i, size_object(shape.dim(i)).release().ptr());
  return nb::borrow<nb::tuple>(tuple);
}

nb::object to_python_scalar(const array& a, const char* op) {
  CERMET_CHECK(
      a.size() == 1, value, op,
      "the array has shape {}, {} elements; only an array of one element converts to a scalar",
      a.shape().to_string(), a.size());
  if (!a.is_ready())
    without_gil([&] {
      a.eval();
      return 0;
    });
  return number_object(a.data(), a.dtype());
}

nb::object to_list(const array& a) {
  check_lists_fit(a.shape());
  if (!a.is_ready())
    without_gil([&] {
      a.eval();
      return 0;
    });
  SparsePoll poll("tolist");
  return nested_list(a, static_cast<const char*>(a.data()), 0, poll);
}

}  // namespace cermet::python
