// SPDX-License-Identifier: MIT
// Functions whose arguments are more than arrays and axes; those that are methods of array, too, are
// bound to both from one definition.
#include "ops/nonzero.h"
#include "selection.h"

namespace cermet::python {

namespace {

using nb::arg;
using nb::handle;
using nb::kw_only;

constexpr auto none = [] { return nb::none(); };

S st(handle stream) { return to_stream_arg(stream); }

PadWidths pad_widths(handle width, int ndim) {
  if (is_index(width)) {
    const Dim n = to_size("pad", "pad_width", width);
    return PadWidths(static_cast<size_t>(ndim), {n, n});
  }
  const auto pair_of = [](handle pair) {
    const ShapeList n = to_sizes("pad", "a part of pad_width", pair);
    CERMET_CHECK(n.size() == 1 || n.size() == 2, value, "pad",
                 "a part of pad_width has {} numbers; give one, or one before and one after",
                 n.size());
    return std::pair(n.front(), n.back());
  };
  PadWidths widths;
  const nb::tuple list = items_of("pad", "pad_width", width);
  if (list.size() > 0 && is_index(nb::object(list[0])))
    return PadWidths(static_cast<size_t>(ndim), pair_of(list));
  for (handle pair : list) widths.push_back(pair_of(pair));
  if (widths.size() == 1) widths.assign(static_cast<size_t>(ndim), widths[0]);
  return widths;
}

Arrays array_list(const char* op, handle arrays) {
  if (is_array(arrays)) {
    const array a = to_array(arrays);
    constexpr int64_t kMostParts = 1 << 20;
    CERMET_CHECK(a.ndim() > 0 && a.shape(0) <= kMostParts, value, op,
                 "an array of shape {} was given; give a sequence of at most {} arrays",
                 a.shape().to_string(), kMostParts);
    return unstack(a, 0);
  }
  Arrays list;
  for (handle item : items_of(op, "arrays", arrays)) list.push_back(to_array(item));
  return list;
}

nb::list to_pylist(const Arrays& arrays) {
  nb::list list;
  for (const array& a : arrays) list.append(nb::cast(a));
  return list;
}

nb::object split_arg(const array& a, handle sections, int64_t axis, handle stream) {
  constexpr const char* what = "indices_or_sections";
  if (is_index(sections)) {
    constexpr int64_t kMostParts = 1 << 20;  // an empty axis has as many as are asked for
    const int64_t count = to_int("split", what, sections);
    CERMET_CHECK(count <= kMostParts, value, "split", "{} sections are asked for; give at most {}",
                 count, kMostParts);
    return to_pylist(split(a, count, axis, st(stream)));
  }
  return to_pylist(split(a, to_sizes("split", what, sections), axis, st(stream)));
}

// f as a function of the module and as a method of array.
template <typename F, typename... Extra>
void def_both(nb::module_& m, const char* name, F f, const nb::arg& self, const Extra&... extra) {
  m.def(name, f, self, extra...);
  nb::object c = m.attr("array");
  c.attr(name) = nb::cpp_function(f, nb::scope(c), nb::name(name), nb::is_method(), extra...);
}

// Varargs methods take `*axes`; the function takes one sequence.
nb::object unpack(const nb::args& args) {
  if (args.size() == 1 && !is_index(nb::object(args[0]))) return args[0];
  return nb::borrow(args);
}

void def_movement(nb::module_& m) {
  m.def(
      "reshape",
      [](handle a, handle shape, handle s) {
        return reshape(to_array(a), to_shape_list("reshape", shape), st(s));
      },
      arg("a"), arg("shape"), kw_only(), arg("stream") = none(),
      "The same elements in another shape; one size may be -1.");
  m.def(
      "transpose",
      [](handle a, handle axes, handle s) {
        return transpose(to_array(a), to_axes("transpose", axes), st(s));
      },
      arg("a"), arg("axes") = none(), kw_only(), arg("stream") = none(),
      "Axes permuted (reversed without axes).");
  m.attr("permute_dims") = m.attr("transpose");
  nb::object c = m.attr("array");
  c.attr("reshape") = nb::cpp_function(
      [](const array& a, nb::args shape, handle stream) {
        return reshape(a, to_shape_list("reshape", unpack(shape)), st(stream));
      },
      nb::scope(c), nb::name("reshape"), nb::is_method(), arg("shape"), arg("stream") = none());
  c.attr("transpose") = nb::cpp_function(
      [](const array& a, nb::args axes, handle stream) {
        const nb::object list = unpack(axes);
        const bool reversed =
            list.is_none() || (nb::isinstance<nb::tuple>(list) && nb::len(list) == 0);
        return transpose(a, reversed ? OptionalAxes() : to_axes("transpose", list), st(stream));
      },
      nb::scope(c), nb::name("transpose"), nb::is_method(), arg("axes"), arg("stream") = none());
  def_both(
      m, "flatten",
      [](const array& a, int64_t start, int64_t end, handle s) {
        return flatten(a, start, end, st(s));
      },
      arg("a"), arg("start_axis") = 0, arg("end_axis") = -1, kw_only(), arg("stream") = none(),
      "Axes start_axis .. end_axis joined into one.");
  m.def(
      "unflatten",
      [](const array& a, int64_t axis, handle shape, handle s) {
        return unflatten(a, axis, to_shape_list("unflatten", shape), st(s));
      },
      arg("a"), arg("axis"), arg("shape"), kw_only(), arg("stream") = none(),
      "One axis cut into several.");
  def_both(
      m, "squeeze",
      [](const array& a, handle axis, handle s) {
        return squeeze(a, to_axes("squeeze", axis), st(s));
      },
      arg("a"), arg("axis") = none(), kw_only(), arg("stream") = none(), "Without axes of size 1.");
  m.def(
      "expand_dims",
      [](const array& a, handle axis, handle s) {
        return expand_dims(a, *to_axes("expand_dims", axis), st(s));
      },
      arg("a"), arg("axis"), kw_only(), arg("stream") = none(), "With new axes of size 1.");
  def_both(
      m, "swapaxes",
      [](const array& a, int64_t x, int64_t y, handle s) { return swapaxes(a, x, y, st(s)); },
      arg("a"), arg("axis1"), arg("axis2"), kw_only(), arg("stream") = none(), "Two axes swapped.");
  m.def(
      "matrix_transpose", [](const array& a, handle s) { return swapaxes(a, -1, -2, st(s)); },
      arg("a"), kw_only(), arg("stream") = none());
  def_both(
      m, "moveaxis",
      [](const array& a, int64_t x, int64_t y, handle s) { return moveaxis(a, x, y, st(s)); },
      arg("a"), arg("source"), arg("destination"), kw_only(), arg("stream") = none(),
      "One axis moved.");
}

// Broadcasting, joining, splitting, repeating.
void def_sharing(nb::module_& m) {
  m.def(
      "broadcast_to",
      [](handle a, handle shape, handle s) {
        return broadcast_to(to_array(a), to_shape("broadcast_to", shape), st(s));
      },
      arg("a"), arg("shape"), kw_only(), arg("stream") = none(), "A view in a larger shape.");
  m.def(
      "broadcast_arrays",
      [](nb::args arrays, handle s) {
        return nb::tuple(
            to_pylist(broadcast_arrays(array_list("broadcast_arrays", arrays), st(s))));
      },
      arg("arrays"), arg("stream") = none());
  m.def("broadcast_shapes", [](nb::args shapes) {
    Shape result;
    for (handle shape : shapes)
      result = broadcast_shapes("broadcast_shapes", result, to_shape("broadcast_shapes", shape));
    return shape_tuple(result);
  });
  m.def(
      "concatenate",
      [](handle arrays, handle axis, handle s) {
        return concatenate(array_list("concatenate", arrays),
                           to_optional_int("concatenate", "axis", axis), st(s));
      },
      arg("arrays"), arg("axis").none() = 0, kw_only(), arg("stream") = none(),
      "Arrays joined along an axis.");
  m.attr("concat") = m.attr("concatenate");
  m.def(
      "stack",
      [](handle arrays, handle axis, handle s) {
        return stack(array_list("stack", arrays),
                     to_optional_int("stack", "axis", axis).value_or(0), st(s));
      },
      arg("arrays"), arg("axis").none() = 0, kw_only(), arg("stream") = none(),
      "Arrays joined along a new axis.");
  def_both(m, "split", &split_arg, arg("a"), arg("indices_or_sections"), arg("axis") = 0,
           arg("stream") = none(), "Parts along an axis: equal sections, or cut at indices.");
  m.def(
      "pad",
      [](handle a, handle width, const std::string& mode, handle value, handle s) {
        const array x = to_array(a);
        return pad(x, pad_widths(width, x.ndim()), to_array_like("pad", value, x), mode, st(s));
      },
      arg("a"), arg("pad_width"), arg("mode") = "constant", arg("constant_values") = 0, kw_only(),
      arg("stream") = none());
  m.def(
      "flip",
      [](const array& a, handle axis, handle s) { return flip(a, to_axes("flip", axis), st(s)); },
      arg("a"), arg("axis") = none(), kw_only(), arg("stream") = none(),
      "Elements in reverse order along the axes.");
  m.def(
      "tile",
      [](handle a, handle reps, handle s) {
        return tile(to_array(a), to_shape_list("tile", reps, "reps"), st(s));
      },
      arg("a"), arg("reps"), kw_only(), arg("stream") = none(), "The array repeated as a whole.");
  m.def(
      "repeat",
      [](handle a, const Dim& repeats, handle axis, handle s) {
        return repeat(to_array(a), repeats, to_optional_int("repeat", "axis", axis), st(s));
      },
      arg("array"), arg("repeats"), arg("axis") = none(), kw_only(), arg("stream") = none(),
      "Each element repeated along an axis.");
  m.def(
      "contiguous", [](const array& a, bool, handle s) { return contiguous(a, st(s)); }, arg("a"),
      arg("allow_col_major") = false, kw_only(), arg("stream") = none(),
      "The array in row-major order without gaps: a copy where its memory is not; with "
      "allow_col_major too.");
}

// Rolling, cutting and rearranging.
void def_rearranging(nb::module_& m) {
  m.def(
      "roll",
      [](handle a, handle shift, handle axis, handle s) {
        return roll(to_array(a), to_shape_list("roll", shift, "shift"), to_axes("roll", axis),
                    st(s));
      },
      arg("a"), arg("shift"), arg("axis") = none(), kw_only(), arg("stream") = none(),
      "Elements moved along the axes, those past the end to the front; without axes, of the "
      "flattened array.");
  m.def(
      "meshgrid",
      [](nb::args arrays, std::optional<bool> sparse, const std::optional<std::string>& indexing,
         handle s) {
        return nb::tuple(to_pylist(meshgrid(array_list("meshgrid", arrays), sparse.value_or(false),
                                            indexing.value_or("xy"), st(s))));
      },
      arg("arrays"), kw_only(), arg("sparse") = false, arg("indexing") = "xy",
      arg("stream") = none(), "Coordinate arrays of the grid that the arrays span.");
  m.def(
      "unstack",
      [](const array& x, int64_t axis, handle s) {
        return nb::tuple(to_pylist(unstack(x, axis, st(s))));
      },
      arg("x"), kw_only(), arg("axis") = 0, arg("stream") = none(),
      "The slices along an axis, without it.");
  auto def_atleast = [&](const char* name, auto f, const char* doc) {
    m.def(
        name,
        [f](nb::args arrays, handle stream) -> nb::object {
          const S s = st(stream);
          if (arrays.size() == 1) return nb::cast(f(to_array(nb::object(arrays[0])), s));
          nb::list list;
          for (handle a : arrays) list.append(nb::cast(f(to_array(a), s)));
          return list;
        },
        arg("arys"), kw_only(), arg("stream") = none(), doc);
  };
  def_atleast("atleast_1d", &atleast_1d, "With at least one axis; several arrays give a list.");
  def_atleast("atleast_2d", &atleast_2d, "With at least two axes; several arrays give a list.");
  def_atleast("atleast_3d", &atleast_3d, "With at least three axes; several arrays give a list.");
  m.def(
      "diff",
      [](const array& a, int64_t n, int64_t axis, handle s) { return diff(a, n, axis, st(s)); },
      arg("a"), arg("n") = 1, arg("axis") = -1, kw_only(), arg("stream") = none(),
      "Differences of neighbours along an axis, n times; of bools, whether they differ.");
  def_both(
      m, "diagonal",
      [](const array& a, int64_t offset, int64_t axis1, int64_t axis2, handle s) {
        return diagonal(a, offset, axis1, axis2, st(s));
      },
      arg("a"), arg("offset") = 0, arg("axis1") = 0, arg("axis2") = 1, arg("stream") = none(),
      "The elements whose indices along axis2 and axis1 differ by offset; the last axis runs along "
      "them.");
  def_both(
      m, "diag", [](const array& a, int64_t k, handle s) { return diag(a, k, st(s)); }, arg("a"),
      arg("k") = 0, kw_only(), arg("stream") = none(),
      "The matrix of a diagonal, or the diagonal of a matrix.");
  m.def(
      "trace",
      [](const array& a, int64_t offset, int64_t axis1, int64_t axis2, OptionalDtype dtype,
         handle s) { return trace(a, offset, axis1, axis2, to_dtype(dtype), st(s)); },
      arg("a"), arg("offset") = 0, arg("axis1") = 0, arg("axis2") = 1, arg("dtype") = none(),
      kw_only(), arg("stream") = none(), "The sum of a diagonal.");
  m.def(
      "as_strided",
      [](const array& a, handle shape, const std::optional<ShapeList>& strides, const Dim& offset,
         handle s) {
        const auto size =
            shape.is_none() ? std::nullopt : std::optional(to_shape("as_strided", shape));
        const auto steps = strides ? std::optional(PerAxis(*strides)) : std::nullopt;
        return as_strided(a, size, steps, offset, st(s));
      },
      arg("a"), arg("shape") = none(), arg("strides") = none(), arg("offset") = 0, kw_only(),
      arg("stream") = none(),
      "Element [i, j, ...] is element offset + i * strides[0] + j * strides[1] + ... of the array "
      "in "
      "row-major order.");
  m.def(
      "view", [](handle a, PyDtype dtype, handle s) { return view(to_array(a), dtype, st(s)); },
      arg("a"), arg("dtype"), arg("stream") = none(),
      "The bytes as another dtype; another element size changes the last axis.");
  nb::object c = m.attr("array");
  c.attr("view") = nb::cpp_function(
      [](const array& a, PyDtype dtype, handle s) { return view(a, dtype, st(s)); }, nb::scope(c),
      nb::name("view"), nb::is_method(), arg("dtype"), kw_only(), arg("stream") = none(),
      "The bytes as another dtype; another element size changes the last axis.");
}

void def_elementwise(nb::module_& m) {
  def_both(
      m, "astype", [](const array& a, PyDtype dtype, handle s) { return astype(a, dtype, st(s)); },
      arg("a"), arg("dtype"), arg("stream") = none(), "Elements converted to a dtype.");
  def_both(
      m, "round",
      [](handle a, int decimals, handle s) { return round(to_array(a), decimals, st(s)); },
      arg("a"), arg("decimals") = 0, arg("stream") = none(),
      "Rounded to decimals, halves to even.");
  m.def(
      "where",
      [](handle condition, handle x, handle y, handle s) {
        const auto chosen = [&](handle c, handle yes, handle no) {
          auto [a, b] = to_operands("where", yes, no);
          return where(to_array(c), a, b, st(s));
        };
        return element_wise(chosen, condition, x, y);
      },
      arg("condition"), arg("x"), arg("y"), kw_only(), arg("stream") = none(),
      "x where the condition holds, else y.");
  m.def(
      "clip",
      [](handle a, handle low, handle high, handle s) {
        const auto limited = [&](handle value, handle least, handle most) {
          const array x = to_array(value);
          auto bound = [&](handle b) {
            return b.is_none() ? std::optional<array>() : to_array_like("clip", b, x);
          };
          return clip(x, bound(least), bound(most), st(s));
        };
        return element_wise(limited, a, low, high);
      },
      arg("a"), arg("a_min").none(), arg("a_max").none(), kw_only(), arg("stream") = none(),
      "Elements limited to [a_min, a_max].");
  m.def(
      "divmod",
      [](handle a, handle b, handle s) {
        auto [x, y] = to_operands("divmod", a, b);
        return to_pylist(divmod(x, y, st(s)));
      },
      arg("a"), arg("b"), arg("stream") = none());
  m.def(
      "positive", [](const array& a, handle) { return a; }, arg("a"), kw_only(),
      arg("stream") = none());
  m.def(
      "nan_to_num",
      [](handle a, double nan, std::optional<double> posinf, std::optional<double> neginf,
         handle s) { return nan_to_num(to_array(a), nan, posinf, neginf, st(s)); },
      arg("a"), arg("nan") = 0, arg("posinf") = none(), arg("neginf") = none(), kw_only(),
      arg("stream") = none(),
      "NaN and the infinities replaced, the latter by the largest and the lowest number of the "
      "dtype unless given.");
}

using Binary = array (*)(const array&, const array&, const S&);

// Of real numbers; integers count as the default floating dtype.
template <Binary f>
void def_of_reals(nb::module_& m, const char* name, const char* doc) {
  m.def(
      name,
      [name](handle a, handle b, handle s) {
        auto [x, y] = to_operands(name, a, b);
        return f(x, y, st(s));
      },
      arg("a"), arg("b"), kw_only(), arg("stream") = none(), doc);
}

void def_floats(nb::module_& m) {
  m.def(
      "signbit", [](handle a, handle s) { return signbit(to_array(a), st(s)); }, arg("a"),
      kw_only(), arg("stream") = none(),
      "Whether the sign is minus, that of zeros and NaN included.");
  def_of_reals<&copysign>(m, "copysign", "The size of a with the sign of b.");
  def_of_reals<&nextafter>(
      m, "nextafter",
      "The next number of the dtype after a in the direction of b; b if they are equal.");
  def_of_reals<&hypot>(
      m, "hypot",
      "sqrt(a * a + b * b) without overflow; inf if either is infinite. Accurate to "
      "2 ULP.");
}

void def_comparisons(nb::module_& m) {
  m.def(
      "isin",
      [](handle a, handle values, bool invert, handle s) {
        auto [x, y] = to_operands("isin", a, values);
        return isin(x, y, invert, st(s));
      },
      arg("a"), arg("test_elements"), kw_only(), arg("invert") = false, arg("stream") = none(),
      "Whether each element of a is among test_elements (invert: is not). Compares each with "
      "each.");
  m.def(
      "nonzero",
      [](handle a) {
        const array x = to_array(a);
        CERMET_CHECK(x.ndim() > 0, value, "nonzero",
                     "the array has no axes; test it with `a != 0`, or give it one with `a[None]`");
        const array mask = not_equal(x, full({}, Number(), x.dtype()));
        return nb::tuple(nb::cast(without_gil([&] { return nonzero(mask); })));
      },
      arg("a"),
      "For each axis the positions of the elements that are not zero, in row-major order: int32, "
      "or int64 of arrays larger than that counts. Evaluates the array.");
  m.def(
      "isclose",
      [](handle a, handle b, double rtol, double atol, bool equal_nan, handle s) {
        auto [x, y] = to_operands("isclose", a, b);
        return isclose(x, y, rtol, atol, equal_nan, st(s));
      },
      arg("a"), arg("b"), arg("rtol") = 1e-5, arg("atol") = 1e-8, kw_only(),
      arg("equal_nan") = false, arg("stream") = none(),
      "Whether |a - b| <= atol + rtol * |b|, element by element; infinities equal themselves.");
  m.def(
      "allclose",
      [](handle a, handle b, double rtol, double atol, bool equal_nan, handle s) {
        auto [x, y] = to_operands("allclose", a, b);
        return allclose(x, y, rtol, atol, equal_nan, st(s));
      },
      arg("a"), arg("b"), arg("rtol") = 1e-5, arg("atol") = 1e-8, kw_only(),
      arg("equal_nan") = false, arg("stream") = none(), "Whether isclose holds everywhere.");
  m.def(
      "array_equal",
      [](handle a, handle b, bool equal_nan, handle s) {
        auto [x, y] = to_operands("array_equal", a, b);
        return array_equal(x, y, equal_nan, st(s));
      },
      arg("a"), arg("b"), arg("equal_nan") = false, arg("stream") = none(),
      "Whether both have one shape and equal elements.");
}

void def_reductions(nb::module_& m) {
  auto def_reduce = [&](const char* name, auto f) {
    def_both(
        m, name,
        [name, f](const array& a, handle axis, bool keepdims, handle s) {
          return f(a, to_axes(name, axis), keepdims, st(s));
        },
        arg("a"), arg("axis") = none(), arg("keepdims") = false, kw_only(), arg("stream") = none());
  };
  def_reduce("mean", [](const array& a, const OptionalAxes& x, bool k, const S& s) {
    return mean(a, x, k, s);
  });
  auto def_var = [&](const char* name, auto f) {
    def_both(
        m, name,
        [name, f](const array& a, handle axis, bool keepdims, int ddof, handle correction,
                  handle s) {
          const int64_t subtracted = to_optional_int(name, "correction", correction).value_or(ddof);
          CERMET_CHECK(
              subtracted == static_cast<int>(subtracted), overflow, name,
              "correction is {}, which does not fit 32 bits; it must be from -2**31 to 2**31 - 1",
              subtracted);
          return f(a, to_axes(name, axis), keepdims, static_cast<int>(subtracted), st(s));
        },
        arg("a"), arg("axis") = none(), arg("keepdims") = false, arg("ddof") = 0, kw_only(),
        arg("correction") = none(), arg("stream") = none());
  };
  def_var("var", [](const array& a, const OptionalAxes& x, bool k, int d, const S& s) {
    return var(a, x, k, d, s);
  });
  def_var("std", [](const array& a, const OptionalAxes& x, bool k, int d, const S& s) {
    return std_dev(a, x, k, d, s);
  });
  auto def_arg = [&](const char* name, auto f) {
    def_both(
        m, name,
        [name, f](const array& a, handle axis, bool keepdims, handle s) {
          return f(a, to_optional_int(name, "axis", axis), keepdims, st(s));
        },
        arg("a"), arg("axis") = none(), arg("keepdims") = false, kw_only(), arg("stream") = none());
  };
  def_arg("argmin", [](const array& a, std::optional<int64_t> x, bool k, const S& s) {
    return argmin(a, x, k, s);
  });
  def_arg("argmax", [](const array& a, std::optional<int64_t> x, bool k, const S& s) {
    return argmax(a, x, k, s);
  });
  m.def(
      "softmax",
      [](const array& a, handle axis, bool precise, handle s) {
        return softmax(a, to_axes("softmax", axis), precise, st(s));
      },
      arg("a"), arg("axis") = none(), kw_only(), arg("precise") = false, arg("stream") = none(),
      "exp(a) / sum(exp(a)) along the axes, without overflow; halves are computed in float32. It "
      "is made by "
      "products with the reciprocal of the sum (4 ULP at most); precise=True divides, which is "
      "about one "
      "rounding less, and takes longer.");
  m.def(
      "count_nonzero",
      [](handle a, handle axis, bool keepdims, handle s) {
        return count_nonzero(to_array(a), to_axes("count_nonzero", axis), keepdims, st(s));
      },
      arg("a"), arg("axis") = none(), kw_only(), arg("keepdims") = false, arg("stream") = none(),
      "The number of elements that are not zero.");
  m.def(
      "minmax",
      [](handle a, handle axis, bool keepdims, handle s) {
        return minmax(to_array(a), to_axes("minmax", axis), keepdims, st(s));
      },
      arg("a"), arg("axis") = none(), arg("keepdims") = false, kw_only(), arg("stream") = none(),
      "The smallest and the largest element.");
}

void def_indexing(nb::module_& m) {
  m.def(
      "take",
      [](handle a, handle indices, handle axis, handle s) {
        return take(to_array(a), to_array(indices), to_optional_int("take", "axis", axis), st(s));
      },
      arg("a"), arg("indices"), arg("axis") = none(), kw_only(), arg("stream") = none(),
      "Elements (or slices along the axis) at the indices.");
  m.def(
      "take_along_axis",
      [](const array& a, const array& i, handle axis, handle s) {
        return take_along_axis(a, i, to_optional_int("take_along_axis", "axis", axis), st(s));
      },
      arg("a"), arg("indices"), arg("axis").none() = -1, kw_only(), arg("stream") = none());
  m.def(
      "put_along_axis",
      [](const array& a, const array& i, handle values, handle axis, handle s) {
        return put_along_axis(a, i, to_array_like("put_along_axis", values, a),
                              to_optional_int("put_along_axis", "axis", axis), st(s));
      },
      arg("a"), arg("indices"), arg("values"), arg("axis") = none(), kw_only(),
      arg("stream") = none());
  m.def(
      "slice",
      [](const array& a, const array& start, handle axes, handle sizes, handle s) {
        return dynamic_slice(a, start, to_ints("slice", "axes", axes), to_shape("slice", sizes),
                             st(s));
      },
      arg("a"), arg("start_indices"), arg("axes"), arg("slice_size"), kw_only(),
      arg("stream") = none(),
      "A slice of the given size that starts, along the axes, at computed indices.");
  m.def(
      "slice_update",
      [](const array& a, handle update, const array& start, handle axes, handle s) {
        return dynamic_slice_update(a, to_array_like("slice_update", update, a), start,
                                    to_ints("slice_update", "axes", axes), st(s));
      },
      arg("a"), arg("update"), arg("start_indices"), arg("axes"), kw_only(), arg("stream") = none(),
      "The array with a slice, starting at computed indices, replaced.");
  m.def(
      "matmul", [](const array& a, const array& b, handle s) { return matmul(a, b, st(s)); },
      arg("a"), arg("b"), kw_only(), arg("stream") = none(), rows::matmul.doc.value);
  m.def(
      "addmm",
      [](const array& c, const array& a, const array& b, double alpha, double beta, handle s) {
        return addmm(c, a, b, alpha, beta, st(s));
      },
      arg("c"), arg("a"), arg("b"), arg("alpha") = 1.0, arg("beta") = 1.0, kw_only(),
      arg("stream") = none(), "alpha * (a @ b) + beta * c.");
}

array arange_of(handle start, handle stop, handle step, OptionalDtype dtype, handle s) {
  const Number zero = number(int64_t{0}), one = number(int64_t{1});
  if (nb::isinstance<PyDtype>(step)) {  // arange(stop, step, dtype)
    CERMET_CHECK(!dtype, type, "arange",
                 "two dtypes are given; the third of three arguments is the dtype if the first two "
                 "are stop and step");
    dtype = nb::cast<PyDtype>(step);
    step = std::exchange(stop, nb::handle(Py_None));
  }
  CERMET_CHECK(
      !start.is_none() || !stop.is_none(), type, "arange",
      "neither start nor stop is given; give one of them, which is where it ends, or both");
  const bool single = start.is_none() || stop.is_none();
  return arange(single ? zero : to_symbolic_number("arange", start),
                to_symbolic_number("arange", stop.is_none() ? start : stop),
                step.is_none() ? one : to_symbolic_number("arange", step), to_dtype(dtype), st(s));
}

void def_creation(nb::module_& m) {
  auto def_fill = [&](const char* name, double value) {
    m.def(
        name,
        [name, value](handle shape, OptionalDtype dtype, handle s) {
          return full(to_shape(name, shape), number(value),
                      to_dtype(dtype).value_or(Dtype::float32), st(s));
        },
        arg("shape"), arg("dtype") = none(), kw_only(), arg("stream") = none());
    m.def((std::string(name) + "_like").c_str(),
          [value](const array& a, OptionalDtype dtype, handle s) {
            return full(a.shape(), number(value), to_dtype(dtype).value_or(a.dtype()), st(s));
          },
          arg("a"), arg("dtype") = none(), kw_only(), arg("stream") = none());
  };
  def_fill("zeros", 0);
  def_fill("ones", 1);
  m.attr("empty") = m.attr("zeros");
  m.attr("empty_like") = m.attr("zeros_like");
  auto fill = [](const Shape& shape, handle value, std::optional<Dtype> dtype, const S& s) {
    if (is_scalar(value)) {
      const TypedNumber n = to_typed_number("full", value, dtype);
      return full(shape, n.number, n.dtype, s);
    }
    return full(shape, to_array(value), dtype, s);
  };
  m.def(
      "full",
      [fill](handle shape, handle vals, OptionalDtype dtype, handle s) {
        return fill(to_shape("full", shape), vals, to_dtype(dtype), st(s));
      },
      arg("shape"), arg("vals"), arg("dtype") = none(), kw_only(), arg("stream") = none(),
      "An array of one value.");
  m.def(
      "full_like",
      [fill](const array& a, handle vals, OptionalDtype dtype, handle s) {
        return fill(a.shape(), vals, to_dtype(dtype).value_or(a.dtype()), st(s));
      },
      arg("a"), arg("vals"), arg("dtype") = none(), kw_only(), arg("stream") = none());
  m.def("arange", arange_of, arg("start") = none(), arg("stop") = none(), arg("step") = none(),
        arg("dtype") = none(), kw_only(), arg("stream") = none(),
        "start, start + step, ... before stop; from 0 if one of the two is given.");
  m.def(
      "linspace",
      [](const Number& start, const Number& stop, const Dim& num, bool endpoint,
         OptionalDtype dtype, handle s) {
        return linspace(start, stop, num, endpoint, to_dtype(dtype).value_or(Dtype::float32),
                        st(s));
      },
      arg("start"), arg("stop"), arg("num") = 50, arg("endpoint") = true, arg("dtype") = none(),
      arg("stream") = none());
  m.def(
      "eye",
      [](const Dim& n, handle cols, const Dim& k, OptionalDtype dtype, handle s) {
        return eye(n, to_optional_size("eye", "m", cols), k,
                   to_dtype(dtype).value_or(Dtype::float32), st(s));
      },
      arg("n"), arg("m") = none(), arg("k") = 0, arg("dtype") = none(), kw_only(),
      arg("stream") = none());
  m.def(
      "identity",
      [](const Dim& n, OptionalDtype dtype, handle s) {
        return eye(n, n, 0, to_dtype(dtype).value_or(Dtype::float32), st(s));
      },
      arg("n"), arg("dtype") = none(), kw_only(), arg("stream") = none());
  m.def(
      "tri",
      [](const Dim& n, handle cols, const Dim& k, OptionalDtype dtype, handle s) {
        return tri(n, to_optional_size("tri", "m", cols), k,
                   to_dtype(dtype).value_or(Dtype::float32), st(s));
      },
      arg("n"), arg("m") = none(), arg("k") = 0, arg("dtype") = none(), kw_only(),
      arg("stream") = none());
  m.def(
      "tril", [](const array& x, const Dim& k, handle s) { return tril(x, k, st(s)); }, arg("x"),
      arg("k") = 0, kw_only(), arg("stream") = none());
  m.def(
      "triu", [](const array& x, const Dim& k, handle s) { return triu(x, k, st(s)); }, arg("x"),
      arg("k") = 0, kw_only(), arg("stream") = none());
}

}  // namespace

void init_shape_ops(nb::module_& m) {
  def_movement(m);
  def_sharing(m);
  def_rearranging(m);
  def_elementwise(m);
  def_floats(m);
  def_comparisons(m);
  def_reductions(m);
  def_indexing(m);
  def_creation(m);
}

}  // namespace cermet::python
