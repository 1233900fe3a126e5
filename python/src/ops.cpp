// SPDX-License-Identifier: MIT
// Functions and methods of the families unary, binary and reduce: loops over the op list. The docstring
// of each comes from its row.
#include <unordered_set>

#include "selection.h"

namespace cermet::python {

namespace {

using Reduce = array (*)(const array&, const OptionalAxes&, bool, const S&);

struct Scope {
  nb::module_& m;
  nb::object array_class, selection_class;
};

// Names that are methods of array in MLX, too.
bool is_method(const char* name) {
  static const auto& methods = *new std::unordered_set<std::string_view>{
      "abs",  "square", "sqrt", "rsqrt", "reciprocal", "exp",       "log",
      "log2", "log10",  "sin",  "cos",   "log1p",      "conjugate", "sum",
      "prod", "min",    "max",  "any",   "all",        "logsumexp"};
  return methods.contains(name);
}

// Ops of the list that MLX has no function for.
bool is_internal(const char* name) {
  static const auto& internal = *new std::unordered_set<std::string_view>{
      "exp2", "exp_nonpositive", "exp_nonpositive_bfloat16", "exp_below", "max_number",
      "rint", "custom_call"};
  return internal.contains(name);
}

// Of a number they take only whether it is 0, which any dtype holds.
bool is_logical(std::string_view name) { return name.starts_with("logical_"); }

template <typename F, typename... Extra>
void def_method(nb::handle c, const char* name, F f, const char* doc, const Extra&... extra) {
  c.attr(name) = nb::cpp_function(f, nb::scope(c), nb::name(name), nb::is_method(), extra...,
                                  nb::kw_only(), nb::arg("stream") = nb::none(), doc);
}

void def_unary(Scope& s, const char* name, UnaryOp f, const char* doc) {
  if (is_internal(name)) return;
  const auto call = [f](nb::handle a, nb::handle stream) {
    return element_wise([&](nb::handle x) { return f(to_array(x), to_stream_arg(stream)); }, a);
  };
  s.m.def(name, call, nb::arg("a"), nb::kw_only(), nb::arg("stream") = nb::none(), doc);
  if (!is_method(name)) return;
  const auto of_array = [f](const array& a, nb::handle stream) {
    return f(a, to_stream_arg(stream));
  };
  const auto of_selection = [f](const Selection& a, nb::handle stream) {
    return Selection{f(a.values, to_stream_arg(stream)), a.mask};
  };
  def_method(s.array_class, name, of_array, doc);
  def_method(s.selection_class, name, of_selection, doc);
}

void def_binary(Scope& s, const char* name, BinaryOp f, const char* doc) {
  if (is_internal(name)) return;
  s.m.def(
      name,
      [name, f, by_truth = is_logical(name)](nb::handle a, nb::handle b, nb::handle stream) {
        const auto operand = [by_truth](nb::handle x) -> nb::object {
          return by_truth && is_scalar(x) ? nb::bool_(to_flag(x)) : nb::borrow(x);
        };
        return element_wise(
            [&](nb::handle x, nb::handle y) {
              return elementwise(name, f, operand(x), operand(y), to_stream_arg(stream));
            },
            a, b);
      },
      nb::arg("a"), nb::arg("b"), nb::arg("stream") = nb::none(), doc);
}

void def_reduce(Scope& s, const char* name, Reduce f, const char* doc) {
  auto call = [name, f](nb::handle a, nb::handle axis, bool keepdims, nb::handle stream) {
    return f(to_array(a), to_axes(name, axis), keepdims, to_stream_arg(stream));
  };
  s.m.def(name, call, nb::arg("a"), nb::arg("axis") = nb::none(), nb::arg("keepdims") = false,
          nb::kw_only(), nb::arg("stream") = nb::none(), doc);
  if (is_method(name))
    def_method(s.array_class, name, call, doc, nb::arg("axis") = nb::none(),
               nb::arg("keepdims") = false);
}

void def_aliases(nb::module_& m) {
  static constexpr std::pair<const char*, const char*> aliases[] = {
      {"acos", "arccos"},
      {"acosh", "arccosh"},
      {"asin", "arcsin"},
      {"asinh", "arcsinh"},
      {"atan", "arctan"},
      {"atanh", "arctanh"},
      {"atan2", "arctan2"},
      {"pow", "power"},
      {"conj", "conjugate"},
      {"bitwise_left_shift", "left_shift"},
      {"bitwise_right_shift", "right_shift"}};
  for (auto [alias, name] : aliases) m.attr(alias) = m.attr(name);
}

nb::list dtypes_of(DtypeSet set) {
  nb::list list;
  for (int i = 0; i < kDtypeCount; i++)
    if ((set >> i & 1) != 0) list.append(PyDtype{static_cast<Dtype>(i)});
  return list;
}

const char* kind_of(const Derivative& derivative) {
  static constexpr const char* kNames[] = {"elementwise", "linear", "bilinear", "opaque",
                                           "derived",     "zero",   "first"};
  static_assert(std::size(kNames) == std::variant_size_v<Derivative>);
  return kNames[derivative.index()];
}

const char* kind_of(const Vmap& vmap) {
  static constexpr const char* kNames[] = {"broadcast",  "axis shift", "axis map",
                                           "batch axes", "derived",    "custom"};
  static_assert(std::size(kNames) == std::variant_size_v<Vmap>);
  return kNames[vmap.index()];
}

const char* kind_of(const Lowering& lowering) {
  static constexpr const char* kNames[] = {"map",      "move",      "fold",  "scan",
                                           "contract", "composite", "update"};
  static_assert(std::size(kNames) == std::variant_size_v<Lowering>);
  const auto* composite = std::get_if<CompositeLowering>(&lowering);
  if (composite != nullptr && composite->kernel != nullptr) return "kernel";
  return kNames[lowering.index()];
}

nb::dict describe(const OpRow& row, const char* family) {
  const Domain& domain = row.domain;
  nb::dict d;
  d["name"] = row.name.value;
  d["family"] = family;
  d["public"] = !is_internal(row.name.value);
  d["accepts"] = dtypes_of(row.accepts);
  d["domain"] = nb::make_tuple(domain.low, domain.high);
  d["max_ulp"] = row.max_ulp.value;
  d["derivative"] = kind_of(row.derivative.value);
  d["vmap"] = kind_of(row.vmap.value);
  d["lowering"] = kind_of(row.lowering.value);
  d["doc"] = row.doc.value;
  return d;
}

nb::list op_table() {
  nb::list table;
#define X(id, name, family) table.append(describe(rows::name, #family));
  CERMET_OPS(X)
#undef X
  return table;
}

}  // namespace

void init_ops(nb::module_& m) {
  Scope s{m, m.attr("array"), m.attr("Selection")};
#define CERMET_DEF_unary(name) def_unary(s, #name, static_cast<UnaryOp>(&cermet::name), rows::name.doc);
#define CERMET_DEF_binary(name) def_binary(s, #name, static_cast<BinaryOp>(&cermet::name), rows::name.doc);
#define CERMET_DEF_reduce(name) def_reduce(s, #name, static_cast<Reduce>(&cermet::name), rows::name.doc);
#define CERMET_DEF_node(name)
#define X(id, name, family) CERMET_DEF_##family(name)
  CERMET_OPS(X)
#undef X
  def_aliases(m);
  m.def("_op_table", &op_table,
        "What the rows of the built-in ops promise; the table tests run over it.");
  s.array_class.attr("conj") = s.array_class.attr("conjugate");
}

}  // namespace cermet::python
