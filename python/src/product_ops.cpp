// SPDX-License-Identifier: MIT
// Products of arrays (inner, outer, tensordot, einsum, ...), scans and windows.
#include "bind.h"

namespace cermet::python {

namespace {

using nb::arg;
using nb::handle;
using nb::kw_only;

S st(handle stream) { return to_stream_arg(stream); }

array tensordot_arg(const array& a, const array& b, handle axes, handle stream) {
  constexpr const char* op = "tensordot";
  if (is_index(axes)) return tensordot(a, b, to_int(op, "axes", axes), st(stream));
  const nb::tuple pair = items_of(op, "axes", axes);
  CERMET_CHECK(pair.size() == 2, type, op,
               "axes has {} parts; give a number of axes, or a list of axes for each of the two "
               "arrays",
               pair.size());
  const auto axes_of = [&](handle part) {
    const std::vector<int64_t> list = is_index(part) ? std::vector{to_int(op, "axes", part)}
                                                     : to_ints(op, "a list of axes", part);
    return AxisList(list.begin(), list.end());
  };
  return tensordot(a, b, axes_of(pair[0]), axes_of(pair[1]), st(stream));
}

Arrays operands_of(const nb::args& operands) {
  Arrays list;
  for (handle operand : operands) list.push_back(to_array(operand));
  return list;
}

void def_products(nb::module_& m) {
  using Product = array (*)(const array&, const array&, const S&);
  auto def = [&](const char* name, Product f, const char* doc) {
    m.def(
        name, [f](const array& a, const array& b, handle stream) { return f(a, b, st(stream)); },
        arg("a"), arg("b"), kw_only(), arg("stream") = nb::none(), doc);
  };
  def("inner", &inner, "The sum of products over the last axes of both.");
  def("outer", &outer, "The products of every element of a with every one of b.");
  def("kron", &kron, "The Kronecker product: b, times each element of a.");
  m.def(
      "vecdot",
      [](const array& a, const array& b, int64_t axis, handle s) {
        return vecdot(a, b, axis, st(s));
      },
      arg("a"), arg("b"), kw_only(), arg("axis") = -1, arg("stream") = nb::none(),
      "The sum of conj(a) * b along an axis.");
  m.def("tensordot", &tensordot_arg, arg("a"), arg("b"), arg("axes") = 2, kw_only(),
        arg("stream") = nb::none(),
        "The sum of products over axes: the last of a with the first of b, or two lists of axes.");
  m.def(
      "gather_mm",
      [](const array& a, const array& b, const std::optional<array>& lhs,
         const std::optional<array>& rhs, bool sorted,
         handle s) { return gather_mm(a, b, lhs, rhs, sorted, st(s)); },
      arg("a"), arg("b"), arg("lhs_indices") = nb::none(), arg("rhs_indices") = nb::none(),
      kw_only(), arg("sorted_indices") = false, arg("stream") = nb::none(),
      "Products of the matrices of a with those of b that indices choose: take and matmul, but no "
      "chosen matrix is copied. Indices are integer arrays that count the matrices along all axes "
      "but "
      "the last two, negative ones from the end; without them all matrices stand in turn. They "
      "broadcast together, and the result has their shape before its last two axes. Rows that "
      "choose "
      "the same matrix are multiplied by it together; sorted_indices says that equal indices "
      "follow "
      "each other, so that rows need no sorting. An index out of range raises IndexError.");
  m.def(
      "segmented_mm",
      [](const array& a, const array& b, const array& segments, handle s) {
        return segmented_mm(a, b, segments, st(s));
      },
      arg("a"), arg("b"), arg("segments"), kw_only(), arg("stream") = nb::none(),
      "a[:, i:j] @ b[i:j] for each pair (i, j) of segments, an integer array of shape (..., 2): "
      "the "
      "result has shape (..., m, n). Places outside the axis are left out.");
  m.def(
      "block_masked_mm",
      [](const array& a, const array& b, int block_size, const std::optional<array>& mask_out,
         const std::optional<array>& mask_lhs, const std::optional<array>& mask_rhs, handle s) {
        return block_masked_mm(a, b, block_size, mask_out, mask_lhs, mask_rhs, st(s));
      },
      arg("a"), arg("b"), arg("block_size") = 64, arg("mask_out") = nb::none(),
      arg("mask_lhs") = nb::none(), arg("mask_rhs") = nb::none(), kw_only(),
      arg("stream") = nb::none(),
      "a @ b with whole blocks of block_size x block_size masked. A mask of a matrix (..., r, c) "
      "has "
      "shape (..., ceil(r / block_size), ceil(c / block_size)): a bool one keeps or clears blocks, "
      "numbers multiply them.");
  m.def(
      "einsum",
      [](const std::string& subscripts, nb::args operands, handle s) {
        return einsum(subscripts, operands_of(operands), st(s));
      },
      arg("subscripts"), arg("operands"), kw_only(), arg("stream") = nb::none(),
      "The sum of products that Einstein's notation names, contracted pair by pair.");
  m.def(
      "einsum_path",
      [](const std::string& subscripts, nb::args operands) {
        const auto [steps, text] = einsum_path(subscripts, operands_of(operands));
        nb::list path;
        for (const std::vector<int>& step : steps) path.append(nb::tuple(nb::cast(step)));
        return nb::make_tuple(path, text);
      },
      arg("subscripts"), arg("operands"),
      "The order in which einsum contracts, and a text on what it saves.");
}

// A function of the module and a method of array, which has no dtype.
template <typename F>
void def_scan(nb::module_& m, const char* name, F f, const char* doc, bool has_dtype) {
  const auto optional_axis = [name](handle axis) { return to_optional_int(name, "axis", axis); };
  if (has_dtype) {
    m.def(
        name,
        [f, optional_axis](const array& a, handle axis, bool reverse, bool inclusive,
                           OptionalDtype dtype, handle s) {
          return f(a, optional_axis(axis), reverse, inclusive, to_dtype(dtype), st(s));
        },
        arg("a"), arg("axis") = nb::none(), kw_only(), arg("reverse") = false,
        arg("inclusive") = true, arg("dtype") = nb::none(), arg("stream") = nb::none(), doc);
  }
  const auto plain = [f, optional_axis](const array& a, handle axis, bool reverse, bool inclusive,
                                        handle s) {
    return f(a, optional_axis(axis), reverse, inclusive, std::nullopt, st(s));
  };
  if (!has_dtype)
    m.def(name, plain, arg("a"), arg("axis") = nb::none(), kw_only(), arg("reverse") = false,
          arg("inclusive") = true, arg("stream") = nb::none(), doc);
  nb::object c = m.attr("array");
  c.attr(name) = nb::cpp_function(plain, nb::scope(c), nb::name(name), nb::is_method(),
                                  arg("axis") = nb::none(), kw_only(), arg("reverse") = false,
                                  arg("inclusive") = true, arg("stream") = nb::none(), doc);
}

void def_scans(nb::module_& m) {
  using Axis = std::optional<int64_t>;
  using Type = std::optional<Dtype>;
  def_scan(m, "cumsum", &cumsum,
           "The sums of the elements up to each, in the dtype of the array; bools count in int32.",
           true);
  def_scan(m, "cumprod", &cumprod,
           "The products of the elements up to each, in the dtype of the array.", true);
  const auto without_dtype = [](auto f) {
    return [f](const array& a, Axis axis, bool reverse, bool inclusive, Type, const S& s) {
      return f(a, axis, reverse, inclusive, s);
    };
  };
  def_scan(m, "cummax", without_dtype(&cummax),
           "The largest of the elements up to each, NaN from the first one on.", false);
  def_scan(m, "cummin", without_dtype(&cummin),
           "The smallest of the elements up to each, NaN from the first one on.", false);
  def_scan(m, "logcumsumexp", without_dtype(&logcumsumexp),
           "log(sum(exp(a))) of the elements up to each, without overflow.", false);
  m.attr("cumulative_sum") = m.attr("cumsum");
  m.attr("cumulative_prod") = m.attr("cumprod");
}

void def_windows(nb::module_& m) {
  using Window = array (*)(const Dim&, const S&);
  auto def = [&](const char* name, Window f, const char* doc) {
    m.def(
        name, [f](const Dim& size, handle stream) { return f(size, st(stream)); }, arg("M"),
        kw_only(), arg("stream") = nb::none(), doc);
  };
  def("bartlett", &bartlett, "The triangular window of M samples.");
  def("hanning", &hanning, "The Hann window of M samples: 0.5 - 0.5 cos(2 pi i / (M - 1)).");
  def("hamming", &hamming, "The Hamming window of M samples: 0.54 - 0.46 cos(2 pi i / (M - 1)).");
  def("blackman", &blackman, "The Blackman window of M samples.");
}

}  // namespace

void init_product_ops(nb::module_& m) {
  def_products(m);
  def_scans(m);
  def_windows(m);
}

}  // namespace cermet::python
