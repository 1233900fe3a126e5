// SPDX-License-Identifier: MIT
// Arrays out to other packages without a copy (buffer protocol, NumPy, DLPack), and asarray, from_dlpack.
// Memory seen from outside is pinned as long as it is seen: no op reuses it in place.
#include "numpy.h"

#include <nanobind/ndarray.h>

#include "foreign.h"

namespace cermet::python {

namespace {

void evaluate(const array& a) {
  if (!a.is_ready())
    without_gil([&] {
      a.eval();
      return 0;
    });
}

// The memory of a ready array, while somebody outside looks at it.
struct Exported {
  explicit Exported(const array& a) : buffer(a.node()->buffer) { buffer->pin(); }
  ~Exported() { buffer->unpin(); }
  Exported(const Exported&) = delete;
  Exported& operator=(const Exported&) = delete;

  BufferRef buffer;
  std::vector<Py_ssize_t> shape, strides;
};

// bfloat16 seen as the integers of its bits, for NumPy's sake.
struct BitsView {
  array a;
};

// Nothing but BufferError makes NumPy go on to __array__, and it knows no format for bfloat16.
const char* format_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::bfloat16:
      fail(ErrorKind::type, "buffer",
           "the buffer protocol has no format for bfloat16; use numpy.asarray(a), which goes "
           "through "
           "ml_dtypes, or astype");
    case Dtype::boolean: return "?";
    case Dtype::uint8: return "B";
    case Dtype::uint16: return "H";
    case Dtype::uint32: return "I";
    case Dtype::uint64: return "Q";
    case Dtype::int8: return "b";
    case Dtype::int16: return "h";
    case Dtype::int32: return "i";
    case Dtype::int64: return "q";
    case Dtype::float16: return "e";
    case Dtype::float32: return "f";
    case Dtype::float64: return "d";
    case Dtype::complex64: return "Zf";
    case Dtype::complex128: return "Zd";
  }
  return "B";
}

// `format`: null where none is asked for.
int fill_buffer(PyObject* owner, const array& a, const char* format, Py_buffer* view, int flags) {
  const bool packed = is_contiguous(a.shape(), a.node()->layout);
  const bool wants_strides = (flags & PyBUF_STRIDES) == PyBUF_STRIDES;
  const bool wants_packed = (flags & PyBUF_C_CONTIGUOUS) == PyBUF_C_CONTIGUOUS ||
                            (flags & PyBUF_ANY_CONTIGUOUS) == PyBUF_ANY_CONTIGUOUS ||
                            !wants_strides;
  const bool wants_columns = (flags & PyBUF_F_CONTIGUOUS) == PyBUF_F_CONTIGUOUS;
  if ((wants_packed && !packed) || (wants_columns && a.ndim() > 1)) {
    PyErr_SetString(PyExc_BufferError,
                    "[buffer] the array is not contiguous; use mx.contiguous(a)");
    return -1;
  }
  const bool read_only = a.node()->buffer->read_only();
  if (read_only && (flags & PyBUF_WRITABLE) != 0) {
    PyErr_SetString(PyExc_BufferError,
                    "[buffer] the array shares read-only memory; use copy=True to write");
    return -1;
  }
  auto exported = std::make_unique<Exported>(a);
  const auto bytes = static_cast<Py_ssize_t>(a.itemsize());
  for (int i = 0; i < a.ndim(); i++) {
    exported->shape.push_back(a.shape(i));
    exported->strides.push_back(a.node()->layout.strides[static_cast<size_t>(i)] * bytes);
  }
  view->buf = const_cast<void*>(a.data());
  view->len = static_cast<Py_ssize_t>(a.nbytes());
  view->readonly = read_only ? 1 : 0;
  view->itemsize = bytes;
  view->format = const_cast<char*>(format);
  view->ndim = a.ndim();
  view->shape = (flags & PyBUF_ND) != 0 ? exported->shape.data() : nullptr;
  view->strides = wants_strides ? exported->strides.data() : nullptr;
  view->suboffsets = nullptr;
  view->internal = exported.release();
  view->obj = Py_NewRef(owner);
  return 0;
}

// Exceptions must not leave a slot.
template <typename F>
int guarded(F&& f) {
  try {
    return f();
  } catch (const nb::python_error& error) {
    nb::python_error(error).restore();
  } catch (const std::bad_cast&) {
    set_python_error(std::current_exception());
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_BufferError, error.what());
  }
  return -1;
}

// What ended the last buffer, without its traceback, which would keep the caller's values. NumPy drops it,
// Ctrl-C, too, and goes on to __array__, which may not evaluate once more.
struct Dropped {
  PyObject* of = nullptr;
  nb::object type = {}, args = {};
};
Dropped& dropped() {
  static Dropped* last = new Dropped;
  return *last;
}

void raise_dropped(nb::handle self) {
  const Dropped last = std::exchange(dropped(), {});
  if (last.of != self.ptr()) return;
  PyErr_SetObject(last.type.ptr(), last.args.ptr());
  nb::raise_python_error();
}

int get_buffer(PyObject* self, Py_buffer* view, int flags) {
  view->obj = nullptr;
  dropped() = {};
  std::optional<array> a;  // what it is now
  try {
    a = nb::cast<array>(nb::handle(self));
    evaluate(*a);
  } catch (...) {
    set_python_error(std::current_exception());
    nb::python_error error;
    dropped() = {self, nb::borrow(error.type()), error.value().attr("args")};
    error.restore();
    return -1;
  }
  return guarded([&] {
    const char* format = (flags & PyBUF_FORMAT) != 0 ? format_of(a->dtype()) : nullptr;
    return fill_buffer(self, *a, format, view, flags);
  });
}

int get_bits_buffer(PyObject* self, Py_buffer* view, int flags) {
  view->obj = nullptr;
  return guarded([&] {
    const array a = nb::cast<BitsView&>(nb::handle(self)).a;
    return fill_buffer(self, a, (flags & PyBUF_FORMAT) != 0 ? "H" : nullptr, view, flags);
  });
}

void release_buffer(PyObject*, Py_buffer* view) { delete static_cast<Exported*>(view->internal); }

PyType_Slot bits_slots[] = {{Py_bf_getbuffer, reinterpret_cast<void*>(get_bits_buffer)},
                            {Py_bf_releasebuffer, reinterpret_cast<void*>(release_buffer)},
                            {0, nullptr}};

nb::object ml_dtypes_bfloat16() {
  try {
    return nb::module_::import_("ml_dtypes").attr("bfloat16");
  } catch (nb::python_error&) {
    fail(ErrorKind::type, "array",
         "NumPy has no bfloat16 of its own; install ml_dtypes or use astype");
  }
}

// --- DLPack ---

nb::dlpack::dtype dlpack_dtype(Dtype dtype) {
  using Code = nb::dlpack::dtype_code;
  const auto bits = static_cast<uint8_t>(8 * size_of(dtype));
  const Code code = dtype == Dtype::boolean    ? Code::Bool
                    : dtype == Dtype::bfloat16 ? Code::Bfloat
                    : is_complex(dtype)        ? Code::Complex
                    : is_floating(dtype)       ? Code::Float
                    : is_signed(dtype)         ? Code::Int
                                               : Code::UInt;
  return {static_cast<uint8_t>(code), bits, 1};
}

nb::object dlpack_tensor(const array& a) {
  evaluate(a);
  auto exported = std::make_unique<Exported>(a);
  const nb::capsule owner(exported.release(),
                          [](void* p) noexcept { delete static_cast<Exported*>(p); });
  std::vector<size_t> shape;
  for (int64_t size : a.shape()) shape.push_back(static_cast<size_t>(size));
  const Strides& own = a.node()->layout.strides;
  const std::vector<int64_t> strides(own.begin(), own.end());
  const auto tensor = [&]<typename... Access>(auto* data, Access...) {
    return nb::cast(nb::ndarray<nb::array_api, Access...>(data, shape.size(), shape.data(), owner,
                                                          strides.data(), dlpack_dtype(a.dtype()),
                                                          nb::device::cpu::value, 0));
  };
  return a.node()->buffer->read_only() ? tensor(a.data(), nb::ro())
                                       : tensor(const_cast<void*>(a.data()));
}

nb::object dlpack_capsule(const array& a, nb::handle stream, nb::handle max_version,
                          nb::handle device, nb::handle copy) {
  const bool wants_copy = to_flag(copy);
  nb::dict keywords;
  if (!stream.is_none()) keywords["stream"] = stream;
  if (!max_version.is_none()) keywords["max_version"] = max_version;
  if (!device.is_none()) keywords["dl_device"] = device;
  return dlpack_tensor(wants_copy ? copy_of(a) : a).attr("__dlpack__")(**keywords);
}

// --- asarray, from_dlpack ---

enum class Copy { always, never, if_needed };

Copy to_copy(nb::handle copy) {
  if (copy.is_none()) return Copy::if_needed;
  return to_flag(copy) ? Copy::always : Copy::never;
}

array shared_or_copied(const ForeignView& view, Copy copy) {
  if (copy == Copy::always) return copy_view(view, false);
  if (copy == Copy::never) return share_view(view);
  try {
    return share_view(view);
  } catch (const Error&) {
    return copy_view(view, false);
  }
}

bool is_foreign(nb::handle object) {
  return !is_array(object) && !is_scalar(object) && !nb::hasattr(object, "__mlx_array__") &&
         (PyObject_CheckBuffer(object.ptr()) != 0 || nb::hasattr(object, "__dlpack__"));
}

// Without being asked, asarray copies: the source may change before a lazy result is computed.
array asarray(nb::handle object, OptionalDtype dtype, nb::handle copy_argument) {
  const Copy copy = to_copy(copy_argument);
  const std::optional<Dtype> wanted = to_dtype(dtype);
  if (copy != Copy::never && !is_foreign(object) && is_numpy_scalar(object)) {
    const nb::object with_dtype = nb::module_::import_("numpy").attr("asarray")(object);
    return asarray(with_dtype, dtype, copy_argument);
  }
  if (is_foreign(object)) {
    array a = shared_or_copied(view_of(object), copy == Copy::never ? copy : Copy::always);
    if (!wanted || a.dtype() == *wanted) return a;
    CERMET_CHECK(copy != Copy::never, value, "asarray",
                 "{} data cannot become {} without a copy; use copy=None, or leave out the dtype",
                 name_of(a.dtype()), name_of(*wanted));
    return astype(a, *wanted);
  }
  CERMET_CHECK(copy != Copy::never || is_array(object), value, "asarray",
               "{} has no memory to share; use copy=None or copy=True", type_of(object));
  const array a = to_array(object, is_array(object) ? std::nullopt : wanted);
  if (wanted && a.dtype() != *wanted) {
    CERMET_CHECK(copy != Copy::never, value, "asarray",
                 "{} data cannot become {} without a copy; use copy=None, or leave out the dtype",
                 name_of(a.dtype()), name_of(*wanted));
    return astype(a, *wanted);
  }
  return copy == Copy::always && is_array(object) ? copy_of(a) : a;
}

}  // namespace

PyType_Slot array_slots[] = {{Py_bf_getbuffer, reinterpret_cast<void*>(get_buffer)},
                             {Py_bf_releasebuffer, reinterpret_cast<void*>(release_buffer)},
                             {0, nullptr}};

array copy_of(const array& a) {
  evaluate(a);
  ForeignView view;
  view.data = static_cast<char*>(const_cast<void*>(a.data()));
  for (int64_t size : a.shape()) view.shape.push_back(size);
  for (int64_t stride : a.node()->layout.strides)
    view.strides.push_back(stride * static_cast<int64_t>(a.itemsize()));
  view.dtype = a.dtype();
  return copy_view(view, false, true);
}

nb::bytes bytes_of(const array& a) {
  evaluate(a);
  const array packed = is_contiguous(a.shape(), a.node()->layout) ? a : copy_of(a);
  return nb::bytes(packed.data(), packed.nbytes());
}

nb::object to_numpy(const array& a, bool copy) {
  evaluate(a);
  const nb::object numpy = nb::module_::import_("numpy");
  const bool bits = a.dtype() == Dtype::bfloat16;
  const nb::object source = bits ? nb::cast(BitsView{a}) : nb::cast(a);
  const nb::object memory = nb::steal(PyMemoryView_FromObject(source.ptr()));
  if (!memory.is_valid()) nb::raise_python_error();
  nb::object result = numpy.attr("asarray")(memory);
  if (bits) result = result.attr("view")(ml_dtypes_bfloat16());
  return copy ? nb::object(result.attr("copy")()) : result;
}

array from_buffer_object(nb::handle object, std::optional<Dtype> dtype) {
  // A dtype that is asked for takes the data as it is, not by way of a narrower one.
  std::optional<array> a = copy_numpy_array(object, !dtype);
  if (!a) a = copy_view(view_of(object), !dtype);
  return dtype && a->dtype() != *dtype ? astype(*a, *dtype) : *std::move(a);
}

void init_numpy(nb::module_& m) {
  // NOLINTNEXTLINE(bugprone-unused-raii): the constructor registers the class
  nb::class_<BitsView>(m, "_BitsView", nb::type_slots(bits_slots));
  m.def("asarray", &asarray, nb::arg("a"), nb::arg("dtype") = nb::none(), nb::kw_only(),
        nb::arg("copy") = nb::none(),
        "An array of the source's dtype. copy=False shares memory with a NumPy array, a buffer or "
        "a DLPack "
        "tensor, or raises ValueError.");
  m.def(
      "from_dlpack",
      [](nb::handle x, nb::handle copy) {
        CERMET_CHECK(nb::hasattr(x, "__dlpack__"), type, "from_dlpack",
                     "{} has no __dlpack__; mx.array and mx.asarray take other objects",
                     type_of(x));
        if (is_array(x)) return asarray(x, {}, copy);
        return shared_or_copied(view_of(x), to_copy(copy));
      },
      nb::arg("x"), nb::kw_only(), nb::arg("copy") = nb::none(),
      "An array from an object with __dlpack__; memory is shared where it can be, unless "
      "copy=True.");
}

void def_exchange(nb::class_<array>& c) {
  c.def(
      "__array__",
      [](nb::handle_t<array> self, nb::object dtype, nb::object copy) {
        raise_dropped(self);
        const array a = nb::cast<array>(self);
        const bool wants_copy = to_flag(copy);
        nb::object result = to_numpy(a, wants_copy);
        return dtype.is_none() ? result
                               : nb::object(result.attr("astype")(dtype, nb::arg("copy") = false));
      },
      nb::arg("dtype") = nb::none(), nb::arg("copy") = nb::none());
  c.def("__dlpack__", &dlpack_capsule, nb::kw_only(), nb::arg("stream") = nb::none(),
        nb::arg("max_version") = nb::none(), nb::arg("dl_device") = nb::none(),
        nb::arg("copy") = nb::none());
  c.def("__dlpack_device__",
        [](const array&) { return nb::make_tuple(nb::device::cpu::value, 0); });
  c.def("__bytes__", &bytes_of);
  c.def("__copy__", [](const array& a) { return a; });
  c.def("__deepcopy__", [](const array& a, nb::handle) { return a; }, nb::arg("memo"));
  c.def("__getstate__", [](const array& a) {
    return nb::make_tuple(std::string(name_of(a.dtype())), shape_tuple(a.shape()), bytes_of(a));
  });
  c.def("__setstate__", [](array& a, nb::tuple state) {
    CERMET_CHECK(state.size() == 3, value, "array", "a pickled array has {} parts; 3 are needed",
                 state.size());
    std::string name;
    CERMET_CHECK(nb::try_cast(state[0], name) && nb::isinstance<nb::bytes>(state[2]), type, "array",
                 "a pickled array holds {} and {}; it must be the dtype's name, the shape and "
                 "the bytes",
                 type_of(nb::object(state[0])), type_of(nb::object(state[2])));
    const auto dtype = dtype_from_name(name);
    CERMET_CHECK(dtype.has_value(), value, "array",
                 "a pickled array has the unknown dtype '{}'; it must be one that cermet.core has",
                 name);
    const Shape shape = to_shape("array", state[1]);
    const nb::bytes data = nb::cast<nb::bytes>(state[2]);
    check_size("array", shape, *dtype);
    CERMET_CHECK(data.size() == static_cast<size_t>(shape.size()) * size_of(*dtype), value, "array",
                 "a pickled array of shape {} has {} bytes; it needs {}", shape.to_string(),
                 data.size(), static_cast<size_t>(shape.size()) * size_of(*dtype));
    new (&a) array(array::from_data(data.data(), shape, *dtype));
  });
}

}  // namespace cermet::python
