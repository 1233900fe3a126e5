// SPDX-License-Identifier: MIT
// The submodule random. Without a key, each draw splits the default key: state[0] moves on, and the draw
// takes the other half, as in MLX. `state` is a plain list of one array, so trees, eval and compile treat
// it like any other state. An advance is one step, whatever the thread: the state is as it was read when
// it is written, or the draw begins again.
#include <chrono>

#include "bind.h"
#include "compile.h"

namespace cermet::python {

namespace {

using nb::arg;
using nb::handle;

nb::handle state;  // the list; the module owns it

uint64_t to_seed(const char* op, handle seed) {
  const nb::object index = nb::steal(PyNumber_Index(seed.ptr()));
  if (!index.is_valid()) {
    if (PyErr_ExceptionMatches(PyExc_TypeError) == 0) nb::raise_python_error();
    PyErr_Clear();
    fail(ErrorKind::type, op, "seed is {}; it must be an int", type_of(seed));
  }
  const unsigned long long value = PyLong_AsUnsignedLongLong(index.ptr());
  if (PyErr_Occurred() != nullptr) {
    PyErr_Clear();
    fail(ErrorKind::overflow, op, "seed {} is out of range; it must be from 0 to 2**64 - 1",
         nb::str(index).c_str());
  }
  return value;
}

// The list, which is not another thread's trace's any more.
nb::list own_state() {
  const nb::list list = nb::borrow<nb::list>(state);
  if (nb::len(list) == 1 && is_array(list[0]) && content_of(list[0]).node()->is_traced())
    await_trace();
  return list;
}

array next_key() {
  for (;;) {
    const nb::list list = own_state();
    CERMET_CHECK(
        nb::len(list) == 1 && is_array(list[0]), value, "random",
        "random.state must hold one array, the key; set it with seed() or state[0] = key(n)");
    const nb::object holder = list[0];
    const array key = array_of(holder);
    const Arrays halves = random::split_pair(key);  // may evaluate, while other threads draw
    const nb::object next = nb::cast(halves[0]);
    if (nb::len(list) != 1 || !holder.is(list[0]) || content_of(holder).node() != key.node())
      continue;
    list[0] = next;
    return halves[1];
  }
}

array key_or_next(handle key) { return key.is_none() ? next_key() : to_array(key); }

// Numbers beside the dtype of the draw.
array bound(const char* op, handle value, Dtype dtype) {
  return is_scalar(value) ? weak_scalar(op, to_symbolic_number(op, value), dtype) : to_array(value);
}

std::optional<array> optional_bound(const char* op, handle value, Dtype dtype) {
  return value.is_none() ? std::nullopt : std::optional(bound(op, value, dtype));
}

std::optional<Shape> optional_shape(const char* op, handle shape) {
  return shape.is_none() ? std::nullopt : std::optional(to_shape(op, shape));
}

Dtype float_dtype(const OptionalDtype& dtype) { return to_dtype(dtype).value_or(Dtype::float32); }

void def_keys(nb::module_& m) {
  m.def(
      "seed",
      [](handle seed) {
        const nb::object key = nb::cast(random::key(to_seed("seed", seed)));
        own_state()[0] = key;
      },
      arg("seed"), "Sets the default key to key(seed): the two halves of a 64-bit number.");
  m.def(
      "key", [](handle seed) { return random::key(to_seed("key", seed)); }, arg("seed"),
      "The key [seed >> 32, seed & 0xffffffff].");
  m.def(
      "split",
      [](const array& key, const Dim& num, handle s) {
        return random::split(key, num, to_stream_arg(s));
      },
      arg("key"), arg("num") = 2, arg("stream") = nb::none(), "num new keys, of shape (num, 2).");
  m.def(
      "bits",
      [](handle shape, int width, handle key, handle s) {
        return random::bits(to_shape("bits", shape), width, key_or_next(key), to_stream_arg(s));
      },
      arg("shape") = nb::tuple(), arg("width") = 4, arg("key") = nb::none(),
      arg("stream") = nb::none(),
      "Random bits as unsigned integers of `width` bytes (1, 2 or 4): Threefry in JAX's original "
      "order.");
}

void def_real(nb::module_& m) {
  const PyDtype f32{Dtype::float32};
  m.def(
      "uniform",
      [](handle low, handle high, handle shape, OptionalDtype dtype, handle key, handle s) {
        const Dtype d = float_dtype(dtype);
        return random::uniform(bound("uniform", low, d), bound("uniform", high, d),
                               to_shape("uniform", shape), d, key_or_next(key), to_stream_arg(s));
      },
      arg("low") = 0, arg("high") = 1, arg("shape") = nb::tuple(), arg("dtype").none() = f32,
      arg("key") = nb::none(), arg("stream") = nb::none(), "Uniform in [low, high).");
  m.def(
      "normal",
      [](handle shape, OptionalDtype dtype, handle loc, handle scale, handle key, handle s) {
        const Dtype d = float_dtype(dtype);
        return random::normal(to_shape("normal", shape), d, optional_bound("normal", loc, d),
                              optional_bound("normal", scale, d), key_or_next(key),
                              to_stream_arg(s));
      },
      arg("shape") = nb::tuple(), arg("dtype").none() = f32, arg("loc") = nb::none(),
      arg("scale") = nb::none(), arg("key") = nb::none(), arg("stream") = nb::none(),
      "Normal with mean loc and deviation scale.");
  m.def(
      "truncated_normal",
      [](handle lower, handle upper, handle shape, OptionalDtype dtype, handle key, handle s) {
        const Dtype d = float_dtype(dtype);
        return random::truncated_normal(
            bound("truncated_normal", lower, d), bound("truncated_normal", upper, d),
            optional_shape("truncated_normal", shape), d, key_or_next(key), to_stream_arg(s));
      },
      arg("lower"), arg("upper"), arg("shape") = nb::none(), arg("dtype").none() = f32,
      arg("key") = nb::none(), arg("stream") = nb::none(), "Normal, within [lower, upper].");
  m.def(
      "gumbel",
      [](handle shape, OptionalDtype dtype, handle key, handle s) {
        return random::gumbel(to_shape("gumbel", shape), float_dtype(dtype), key_or_next(key),
                              to_stream_arg(s));
      },
      arg("shape") = nb::tuple(), arg("dtype").none() = f32, arg("key") = nb::none(),
      arg("stream") = nb::none(), "Standard Gumbel.");
  m.def(
      "laplace",
      [](handle shape, OptionalDtype dtype, double loc, double scale, handle key, handle s) {
        return random::laplace(to_shape("laplace", shape), float_dtype(dtype), loc, scale,
                               key_or_next(key), to_stream_arg(s));
      },
      arg("shape") = nb::tuple(), arg("dtype").none() = f32, arg("loc") = 0.0, arg("scale") = 1.0,
      arg("key") = nb::none(), arg("stream") = nb::none(), "Laplace with mean loc and scale.");
}

void def_discrete(nb::module_& m) {
  m.def(
      "randint",
      [](handle low, handle high, handle shape, OptionalDtype dtype, handle key, handle s) {
        const Dtype d = to_dtype(dtype).value_or(Dtype::int32);
        return random::randint(bound("randint", low, d), bound("randint", high, d),
                               to_shape("randint", shape), d, key_or_next(key), to_stream_arg(s));
      },
      arg("low"), arg("high"), arg("shape") = nb::tuple(),
      arg("dtype").none() = PyDtype{Dtype::int32}, arg("key") = nb::none(),
      arg("stream") = nb::none(), "Integers in [low, high).");
  m.def(
      "bernoulli",
      [](handle p, handle shape, handle key, handle s) {
        return random::bernoulli(to_array(p), optional_shape("bernoulli", shape), key_or_next(key),
                                 to_stream_arg(s));
      },
      arg("p") = 0.5, arg("shape") = nb::none(), arg("key") = nb::none(),
      arg("stream") = nb::none(), "True with probability p.");
  m.def(
      "categorical",
      [](const array& logits, int64_t axis, handle shape, const std::optional<Dim>& num_samples,
         handle key, handle s) {
        return random::categorical(logits, axis, optional_shape("categorical", shape), num_samples,
                                   key_or_next(key), to_stream_arg(s));
      },
      arg("logits"), arg("axis") = -1, arg("shape") = nb::none(), arg("num_samples") = nb::none(),
      arg("key") = nb::none(), arg("stream") = nb::none(),
      "Indices along axis, with probability softmax(logits).");
}

}  // namespace

void init_random(nb::module_& parent) {
  nb::module_ m = submodule(parent, "random", "Random numbers from splittable keys (Threefry).");
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  nb::list list;
  list.append(random::key(static_cast<uint64_t>(now.count())));
  m.attr("state") = list;
  state = list;
  def_keys(m);
  def_real(m);
  def_discrete(m);
}

}  // namespace cermet::python
