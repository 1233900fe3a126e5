// SPDX-License-Identifier: MIT
#include "foreign.h"

#include <nanobind/ndarray.h>

#include <algorithm>
#include <cstring>
#include <mutex>

#include "base/format.h"
#include "runtime/fork.h"
#include "runtime/poll.h"

namespace cermet::python {

namespace {

// --- references dropped without the GIL ---

struct Released {
  std::mutex mutex;
  std::vector<PyObject*> objects;
};

Released& released() {
  static constinit ForkSafe<Released> released(ForkLevel::leaf);
  return released.get();
}

void give_up(PyObject* object) {
  if (Py_IsInitialized() == 0) return;
  if (PyGILState_Check() != 0) {
    Py_DECREF(object);
    return;
  }
  {
    const std::lock_guard lock(released().mutex);
    released().objects.push_back(object);
  }
  // Best effort: should the list of pending calls be full, the next import drops it.
  Py_AddPendingCall([](void*) { return drop_released(), 0; }, nullptr);
}

// --- the buffer protocol ---

std::optional<Dtype> dtype_of_format(std::string_view format, size_t itemsize) {
  if (format == "?") return Dtype::boolean;
  if (format == "e") return Dtype::float16;
  if (format == "f") return Dtype::float32;
  if (format == "d") return Dtype::float64;
  if (format == "Zf") return Dtype::complex64;
  if (format == "Zd") return Dtype::complex128;
  if (format.size() != 1) return std::nullopt;
  const bool is_signed = std::string_view("bhilqn").find(format[0]) != std::string_view::npos;
  if (!is_signed && std::string_view("BHILQN").find(format[0]) == std::string_view::npos)
    return std::nullopt;
  switch (itemsize) {
    case 1: return is_signed ? Dtype::int8 : Dtype::uint8;
    case 2: return is_signed ? Dtype::int16 : Dtype::uint16;
    case 4: return is_signed ? Dtype::int32 : Dtype::uint32;
    default: return is_signed ? Dtype::int64 : Dtype::uint64;
  }
}

struct HeldBuffer {
  Py_buffer* view;
  ~HeldBuffer() {
    if (view == nullptr) return;
    PyBuffer_Release(view);
    delete view;
  }
};

// NumPy gives the bytes of a date or a string, and says so nowhere in the buffer.
bool is_of_bytes(nb::handle object, size_t itemsize) {
  if (!nb::hasattr(object, "dtype") || !nb::hasattr(object.attr("dtype"), "itemsize")) return true;
  return object.attr("dtype").attr("itemsize").equal(nb::int_(itemsize));
}

// Objects whose elements have no buffer, or whose memory is gone, say so by ValueError; numbers of other
// libraries by TypeError.
[[noreturn]] void refuse_buffer(nb::handle object) {
  nb::python_error error;
  const bool is_type = error.matches(PyExc_TypeError);
  if (!is_type && !error.matches(PyExc_ValueError)) {
    error.restore();
    nb::raise_python_error();
  }
  fail(is_type ? ErrorKind::type : ErrorKind::value, "array",
       "{} gives no buffer ({}); give numbers", type_of(object), nb::str(error.value()).c_str());
}

// Without an owner.
ForeignView read_py_buffer(nb::handle object, const Py_buffer* raw) {
  std::string_view format = raw->format == nullptr ? "B" : raw->format;
  bool big = false;
  if (!format.empty() && std::string_view("@=<>!").find(format[0]) != std::string_view::npos) {
    big = format[0] == '>' || format[0] == '!';
    format.remove_prefix(1);
  }
  const auto dtype = dtype_of_format(format, static_cast<size_t>(raw->itemsize));
  CERMET_CHECK(
      dtype.has_value() && (is_numpy_array(object) || is_of_bytes(object, size_of(*dtype))), type,
      "array",
      "the elements of {} have the format '{}'; they must be booleans, integers, floats or "
      "complex numbers",
      type_of(object), format);
  CERMET_CHECK(
      raw->suboffsets == nullptr, value, "array",
      "a buffer of pointers to rows was given; it must be one block of memory, as NumPy's are");
  ForeignView view;
  view.data = static_cast<char*>(raw->buf);
  if (raw->shape != nullptr) view.shape.append({raw->shape, static_cast<size_t>(raw->ndim)});
  else if (raw->ndim == 1) view.shape.push_back(raw->len / raw->itemsize);
  view.strides.resize(view.shape.size());
  for (size_t i = view.shape.size(), step = static_cast<size_t>(raw->itemsize); i-- > 0;) {
    view.strides[i] = raw->strides != nullptr ? raw->strides[i] : static_cast<int64_t>(step);
    step *= static_cast<size_t>(view.shape[i]);
  }
  view.dtype = *dtype;
  view.swapped = big && size_of(*dtype) > 1;
  view.read_only = raw->readonly != 0;
  return view;
}

ForeignView from_py_buffer(nb::handle object) {
  auto* raw = new Py_buffer;
  if (PyObject_GetBuffer(object.ptr(), raw, PyBUF_FULL_RO) != 0) {
    delete raw;
    refuse_buffer(object);
  }
  HeldBuffer held{raw};
  ForeignView view = read_py_buffer(object, raw);
  held.view = nullptr;
  // The release runs Python code, so it is deferred like a reference: a capsule does it.
  view.owner = keep_alive(nb::capsule(
      raw, [](void* p) noexcept { const HeldBuffer last{static_cast<Py_buffer*>(p)}; }));
  return view;
}

// --- DLPack ---

std::optional<Dtype> dtype_of_dlpack(nb::dlpack::dtype d) {
  using Code = nb::dlpack::dtype_code;
  if (d.lanes != 1) return std::nullopt;
  const int bits = d.bits;
  switch (static_cast<Code>(d.code)) {
    case Code::Bool: return Dtype::boolean;
    case Code::Int:
      return bits == 8    ? Dtype::int8
             : bits == 16 ? Dtype::int16
             : bits == 32 ? Dtype::int32
                          : Dtype::int64;
    case Code::UInt:
      return bits == 8    ? Dtype::uint8
             : bits == 16 ? Dtype::uint16
             : bits == 32 ? Dtype::uint32
                          : Dtype::uint64;
    case Code::Float:
      return bits == 16   ? std::optional(Dtype::float16)
             : bits == 32 ? std::optional(Dtype::float32)
             : bits == 64 ? std::optional(Dtype::float64)
                          : std::nullopt;
    case Code::Bfloat: return bits == 16 ? std::optional(Dtype::bfloat16) : std::nullopt;
    case Code::Complex:
      return bits == 64    ? std::optional(Dtype::complex64)
             : bits == 128 ? std::optional(Dtype::complex128)
                           : std::nullopt;
    default: return std::nullopt;
  }
}

template <typename Tensor>
ForeignView from_tensor(const Tensor& tensor, nb::handle object, bool read_only) {
  CERMET_CHECK(tensor.device_type() == nb::device::cpu::value ||
                   tensor.device_type() == nb::device::cuda_host::value,
               value, "from_dlpack",
               "the data of {} lies on another device (DLPack type {}); move it to the CPU",
               type_of(object), tensor.device_type());
  const auto dtype = dtype_of_dlpack(tensor.dtype());
  CERMET_CHECK(dtype.has_value(), type, "from_dlpack",
               "the dtype (DLPack code {}, {} bits) is not supported; convert the tensor to a "
               "dtype that cermet.core has",
               tensor.dtype().code, tensor.dtype().bits);
  ForeignView view;
  view.data = static_cast<char*>(const_cast<void*>(static_cast<const void*>(tensor.data())));
  view.dtype = *dtype;
  for (size_t i = 0; i < tensor.ndim(); i++) {
    view.shape.push_back(static_cast<int64_t>(tensor.shape(i)));
    view.strides.push_back(tensor.stride(i) * static_cast<int64_t>(size_of(*dtype)));
  }
  view.read_only = read_only;
  auto* kept = new Tensor(tensor);
  view.owner =
      keep_alive(nb::capsule(kept, [](void* p) noexcept { delete static_cast<Tensor*>(p); }));
  return view;
}

ForeignView from_dlpack(nb::handle object) {
  nb::ndarray<> writable;
  if (nb::try_cast(object, writable)) return from_tensor(writable, object, false);
  nb::ndarray<nb::ro> readable;
  if (nb::try_cast(object, readable)) return from_tensor(readable, object, true);
  // Ask the object itself: its own error says why (a gradient, a device).
  object.attr("__dlpack__")();
  fail(ErrorKind::type, "from_dlpack",
       "{} gives no tensor that can be read; its __dlpack__() must give a capsule of a tensor on "
       "the CPU",
       type_of(object));
}

bool is_numpy_bfloat16(nb::handle object) {
  return nb::hasattr(object, "dtype") && nb::hasattr(object, "view") &&
         nb::hasattr(object.attr("dtype"), "name") &&
         std::string_view(nb::str(object.attr("dtype").attr("name")).c_str()) == "bfloat16" &&
         nb::hasattr(object, "__array_interface__");
}

// --- copying ---

struct CopyPlan {
  InlineVector<int64_t, 4> shape, strides;  // collapsed: the last axis contiguous where it can be
};

// Without axes of size 1; neighbours joined where one step of the outer is all of the inner.
CopyPlan collapse(const ForeignView& view) {
  CopyPlan plan;
  for (size_t i = 0; i < view.shape.size(); i++) {
    if (view.shape[i] == 1) continue;
    if (!plan.shape.empty() && plan.strides.back() == view.shape[i] * view.strides[i]) {
      plan.shape.back() *= view.shape[i];
      plan.strides.back() = view.strides[i];
    } else {
      plan.shape.push_back(view.shape[i]);
      plan.strides.push_back(view.strides[i]);
    }
  }
  return plan;
}

template <size_t bytes>
void copy_line(char* to, const char* from, int64_t n, int64_t stride) {
  for (int64_t i = 0; i < n; i++)
    std::memcpy(to + i * static_cast<int64_t>(bytes), from + i * stride, bytes);
}

void copy_part(char* to, const char* from, int64_t n, int64_t stride, size_t bytes) {
  if (stride == static_cast<int64_t>(bytes)) {
    std::memcpy(to, from, static_cast<size_t>(n) * bytes);
    return;
  }
  switch (bytes) {
    case 1: return copy_line<1>(to, from, n, stride);
    case 2: return copy_line<2>(to, from, n, stride);
    case 4: return copy_line<4>(to, from, n, stride);
    case 8: return copy_line<8>(to, from, n, stride);
    default: return copy_line<16>(to, from, n, stride);
  }
}

// f(first, count) for parts of n elements, between which Ctrl-C is seen.
template <typename F>
void in_parts(int64_t n, F&& f) {
  constexpr int64_t kPart = 1 << 20, kShort = 1 << 12;
  for (int64_t first = 0; first < n; first += kPart) {
    if (n > kShort) check_cancelled("array");
    f(first, std::min(kPart, n - first));
  }
}

void copy_line(char* to, const char* from, int64_t n, int64_t stride, size_t bytes) {
  in_parts(n, [&](int64_t first, int64_t count) {
    copy_part(to + first * static_cast<int64_t>(bytes), from + first * stride, count, stride,
              bytes);
  });
}

char* copy_axis(const CopyPlan& plan, size_t axis, const char* from, char* to, size_t bytes,
                SparsePoll& poll) {
  poll.turn();
  if (axis == plan.shape.size()) {
    std::memcpy(to, from, bytes);
    return to + bytes;
  }
  const int64_t n = plan.shape[axis];
  if (axis + 1 == plan.shape.size()) {
    copy_line(to, from, n, plan.strides[axis], bytes);
    return to + n * static_cast<int64_t>(bytes);
  }
  for (int64_t i = 0; i < n; i++)
    to = copy_axis(plan, axis + 1, from + i * plan.strides[axis], to, bytes, poll);
  return to;
}

void swap_bytes(char* data, int64_t size, Dtype dtype) {
  const auto bytes = static_cast<int64_t>(is_complex(dtype) ? size_of(dtype) / 2 : size_of(dtype));
  const int64_t n = size * static_cast<int64_t>(size_of(dtype)) / bytes;
  for (int64_t i = 0; i < n; i++) std::reverse(data + i * bytes, data + (i + 1) * bytes);
}

// MLX takes NumPy's default floats as its own.
Dtype narrowed(Dtype dtype) {
  if (dtype == Dtype::float64) return Dtype::float32;
  return dtype == Dtype::complex128 ? Dtype::complex64 : dtype;
}

bool is_aligned(const char* data, Dtype dtype) {
  return reinterpret_cast<uintptr_t>(data) % std::min<size_t>(size_of(dtype), 8) == 0;
}

template <typename From, typename To>
void convert_elements(const char* from, char* to, int64_t n) {
  for (int64_t i = 0; i < n; i++) {
    From x;
    std::memcpy(&x, from + i * static_cast<int64_t>(sizeof(From)), sizeof(From));
    const To y(x);
    std::memcpy(to + i * static_cast<int64_t>(sizeof(To)), &y, sizeof(To));
  }
}

// Where the elements fill one block of memory in some order of the axes: they lie so in a copy of it.
std::optional<Layout> block_layout(const ForeignView& view, const Shape& shape) {
  Layout layout = Layout::contiguous(shape);
  const auto bytes = static_cast<int64_t>(size_of(view.dtype));
  InlineVector<size_t, 4> axes;
  for (size_t i = 0; i < view.shape.size(); i++)
    if (view.shape[i] > 1) axes.push_back(i);
  if (shape.size() == 0) return layout;
  std::ranges::sort(axes, [&](size_t a, size_t b) { return view.strides[a] < view.strides[b]; });
  int64_t step = 1;
  for (size_t axis : axes) {
    if (view.strides[axis] != step * bytes) return std::nullopt;
    layout.strides[axis] = step;
    step *= view.shape[axis];
  }
  return layout;
}

// By a kernel, with all threads and wide vectors. Takes longer than a loop to begin.
array cast_block(const char* from, const Shape& shape, Layout layout, Dtype dtype, Dtype to_dtype) {
  BufferRef given =
      Buffer::wrap(const_cast<char*>(from), static_cast<size_t>(shape.size()) * size_of(dtype), {},
                   Device::cpu, true);
  given->pin();
  const Shape line{shape.size()};
  const array cast =
      astype(array::from_buffer(std::move(given), line, Layout::contiguous(line), dtype), to_dtype,
             Device(Device::cpu));
  cast.eval();
  layout.offset = cast.node()->layout.offset;
  return array::from_buffer(cast.node()->buffer, shape, std::move(layout), to_dtype);
}

array block_copy(const char* from, const Shape& shape, Layout layout, Dtype dtype, Dtype to_dtype) {
  const int64_t n = shape.size();
  const auto bytes = static_cast<int64_t>(size_of(dtype)),
             to_bytes = static_cast<int64_t>(size_of(to_dtype));
  constexpr int64_t kMany = 1 << 13;
  if (dtype != to_dtype && n >= kMany && is_aligned(from, dtype))
    return cast_block(from, shape, std::move(layout), dtype, to_dtype);
  BufferRef buffer =
      allocator(default_device()).allocate(static_cast<size_t>(n * to_bytes), "array");
  char* to = static_cast<char*>(buffer->data());
  in_parts(n, [&](int64_t first, int64_t count) {
    const char* part = from + first * bytes;
    char* at = to + first * to_bytes;
    if (dtype == to_dtype) std::memcpy(at, part, static_cast<size_t>(count * bytes));
    else if (dtype == Dtype::float64) convert_elements<double, float>(part, at, count);
    else convert_elements<std::complex<double>, std::complex<float>>(part, at, count);
  });
  return array::from_buffer(std::move(buffer), shape, std::move(layout), to_dtype);
}

array packed_copy(const ForeignView& view, const Shape& shape) {
  const size_t bytes = size_of(view.dtype);
  BufferRef buffer =
      allocator(default_device()).allocate(static_cast<size_t>(shape.size()) * bytes, "array");
  if (shape.size() > 0) {
    char* to = static_cast<char*>(buffer->data());
    SparsePoll poll("array");
    copy_axis(collapse(view), 0, view.data, to, bytes, poll);
    if (view.swapped) swap_bytes(to, shape.size(), view.dtype);
  }
  return array::from_buffer(std::move(buffer), shape, Layout::contiguous(shape), view.dtype);
}

}  // namespace

bool is_numpy_array(nb::handle object) {
  return std::strcmp(Py_TYPE(object.ptr())->tp_name, "numpy.ndarray") == 0;
}

void drop_released() {
  std::vector<PyObject*> objects;
  {
    const std::lock_guard lock(released().mutex);
    objects.swap(released().objects);
  }
  for (PyObject* object : objects) Py_DECREF(object);
}

std::shared_ptr<void> keep_alive(nb::object object) {
  PyObject* pointer = object.release().ptr();
  return {pointer, [](void* p) { give_up(static_cast<PyObject*>(p)); }};
}

ForeignView view_of(nb::handle object) {
  drop_released();
  if (is_numpy_bfloat16(object)) {
    const nb::object bits =
        nb::module_::import_("numpy").attr("asarray")(object).attr("view")("uint16");
    ForeignView view = from_py_buffer(bits);
    view.dtype = Dtype::bfloat16;
    return view;
  }
  const bool has_tensor = nb::hasattr(object, "__dlpack__");
  if (PyObject_CheckBuffer(object.ptr()) != 0) {
    try {
      return from_py_buffer(object);
    } catch (nb::python_error& error) {  // jax's bfloat16 has no buffer, but a tensor
      if (!has_tensor || !error.matches(PyExc_BufferError)) throw;
    }
  }
  CERMET_CHECK(
      has_tensor, type, "array",
      "{} was given; it must be a number, a nested list of numbers, an array, or an object "
      "with the buffer protocol, __dlpack__ or __mlx_array__",
      type_of(object));
  return from_dlpack(object);
}

array copy_view(const ForeignView& view, bool narrow, bool by_rows) {
  const Shape shape{std::span<const int64_t>(view.shape)};
  check_size("array", shape, view.dtype);
  const Dtype dtype = narrow ? narrowed(view.dtype) : view.dtype;
  const auto copy = [&] {
    auto block = view.swapped ? std::nullopt : block_layout(view, shape);
    if (block && (!by_rows || is_contiguous(shape, *block)))
      return block_copy(view.data, shape, std::move(*block), view.dtype, dtype);
    array packed = packed_copy(view, shape);
    if (dtype == view.dtype) return packed;
    return block_copy(static_cast<const char*>(packed.data()), shape, Layout::contiguous(shape),
                      view.dtype, dtype);
  };
  constexpr int64_t kShort = 1 << 12;  // such a copy is no longer than to let others run
  return shape.size() <= kShort ? copy() : without_gil(copy);
}

std::optional<array> copy_numpy_array(nb::handle object, bool narrow) {
  if (!is_numpy_array(object)) return std::nullopt;
  Py_buffer raw;
  if (PyObject_GetBuffer(object.ptr(), &raw, PyBUF_FULL_RO) != 0) {
    PyErr_Clear();
    return std::nullopt;
  }
  const std::unique_ptr<Py_buffer, void (*)(Py_buffer*)> held(&raw, PyBuffer_Release);
  return copy_view(read_py_buffer(object, &raw), narrow);
}

array share_view(const ForeignView& view) {
  const auto bytes = static_cast<int64_t>(size_of(view.dtype));
  CERMET_CHECK(!view.swapped, value, "asarray",
               "the bytes are swapped; memory can be shared in native order only");
  const Shape shape{std::span<const int64_t>(view.shape)};
  check_size("asarray", shape, view.dtype);
  Layout layout;
  for (int64_t stride : view.strides) {
    CERMET_CHECK(stride % bytes == 0, value, "asarray",
                 "a stride of {} bytes is no multiple of the element's {}; use copy=True", stride,
                 bytes);
    layout.strides.push_back(stride / bytes);
  }
  CERMET_CHECK(is_aligned(view.data, view.dtype), value, "asarray",
               "the memory is not aligned to its elements; use copy=True");
  const auto [low, high] = reach_of(shape, layout);
  layout.offset = -low;
  BufferRef buffer = Buffer::wrap(
      view.data + low * bytes, static_cast<size_t>((high - low) * bytes),
      [owner = view.owner](void*) {}, Device::cpu, view.read_only);
  buffer->pin();
  return array::from_buffer(std::move(buffer), shape, std::move(layout), view.dtype);
}

}  // namespace cermet::python
