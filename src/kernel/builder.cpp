// SPDX-License-Identifier: MIT
#include "kernel/builder.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "base/error.h"
#include "kernel/scalar_ops.h"

namespace cermet::ir {

namespace {

// The 64-bit finaliser of SplitMix64.
uint64_t mix(uint64_t h, uint64_t v) {
  h ^= v + 0x9e3779b97f4a7c15u + (h << 6) + (h >> 2);
  h = (h ^ (h >> 30)) * 0xbf58476d1ce4e5b9u;
  h = (h ^ (h >> 27)) * 0x94d049bb133111ebu;
  return h ^ (h >> 31);
}

uint64_t hash_expr(const Expr& expr) {
  uint64_t h = mix(static_cast<uint64_t>(expr.kind) << 16 | static_cast<uint64_t>(expr.dtype) << 8 |
                       static_cast<uint64_t>(expr.code),
                   static_cast<uint32_t>(expr.id));
  h = mix(h, expr.bits);
  for (ExprId operand : expr.operands) h = mix(h, static_cast<uint32_t>(operand));
  if (expr.kind != ExprKind::load) return h;
  h = mix(h,
          static_cast<uint64_t>(expr.buffer.local) << 32 | static_cast<uint32_t>(expr.buffer.id));
  for (const IndexTerm& term : expr.index)
    h = mix(h, static_cast<uint64_t>(static_cast<uint32_t>(term.expr)) << 32 |
                   static_cast<uint32_t>(term.stride));
  return h;
}

}  // namespace

Builder::Builder(std::string name) { kernel_.name = std::move(name); }

Builder::Builder(Kernel kernel) : kernel_(std::move(kernel)) { grow_table(); }

void Builder::grow_table() {
  const size_t size = std::max<size_t>(64, std::bit_ceil(4 * kernel_.exprs.size()));
  table_.assign(size, kNone);
  for (size_t i = 0; i < kernel_.exprs.size(); ++i) {
    size_t place = hash_expr(kernel_.exprs[i]) & (size - 1);
    while (table_[place] != kNone) place = (place + 1) & (size - 1);
    table_[place] = static_cast<ExprId>(i);
  }
}

ParamId Builder::buffer(Dtype dtype, Access access, std::string name) {
  kernel_.params.push_back({ParamKind::buffer, dtype, access, std::move(name)});
  return static_cast<ParamId>(kernel_.params.size()) - 1;
}

ParamId Builder::scalar(Dtype dtype, std::string name) {
  kernel_.params.push_back({ParamKind::scalar, dtype, Access::in, std::move(name)});
  return static_cast<ParamId>(kernel_.params.size()) - 1;
}

ParamId Builder::status() {
  for (size_t i = 0; i < kernel_.params.size(); ++i)
    if (kernel_.params[i].kind == ParamKind::status) return static_cast<ParamId>(i);
  kernel_.params.push_back({ParamKind::status, Dtype::int64, Access::in, "status"});
  return static_cast<ParamId>(kernel_.params.size()) - 1;
}

AxisId Builder::axis(std::string name, bool has_extent, int64_t most) {
  kernel_.axes.push_back({std::move(name), has_extent, most});
  return static_cast<AxisId>(kernel_.axes.size()) - 1;
}

ValueId Builder::value(std::vector<Dtype> dtypes, std::string name) {
  CERMET_INTERNAL_CHECK(!dtypes.empty(), "value '{}' has no dtype", name);
  kernel_.values.push_back({std::move(name), std::move(dtypes)});
  return static_cast<ValueId>(kernel_.values.size()) - 1;
}

LocalId Builder::local(Dtype dtype, Size size, LocalScope scope) {
  const LocalId id = static_cast<LocalId>(kernel_.locals.size());
  kernel_.locals.push_back({id, dtype, std::move(size), scope});
  return id;
}

ExprId Builder::constant_bits(Dtype dtype, uint64_t bits) {
  CERMET_INTERNAL_CHECK(!is_complex(dtype), "a constant of dtype {}", name_of(dtype));
  Expr expr{.kind = ExprKind::constant, .dtype = dtype};
  const size_t size = size_of(dtype);
  expr.bits = size == 8 ? bits : bits & ((uint64_t{1} << (8 * size)) - 1);
  return intern(std::move(expr));
}

ExprId Builder::constant(Dtype dtype, double v) {
  CERMET_INTERNAL_CHECK(!is_complex(dtype), "a constant of dtype {}", name_of(dtype));
  return constant_bits(dtype, from_double(dtype, v));
}

ExprId Builder::integer(Dtype dtype, int64_t v) {
  CERMET_INTERNAL_CHECK(is_integer(dtype) || dtype == Dtype::boolean, "an integer of dtype {}",
                        name_of(dtype));
  return constant_bits(dtype, dtype == Dtype::boolean ? v != 0 : static_cast<uint64_t>(v));
}

ExprId Builder::scalar_ref(ParamId param) {
  return intern({.kind = ExprKind::scalar, .dtype = kernel_.params.at(param).dtype, .id = param});
}

ExprId Builder::axis_ref(AxisId axis) {
  return intern({.kind = ExprKind::axis, .dtype = Dtype::int64, .id = axis});
}

ExprId Builder::extent(AxisId axis) {
  return intern({.kind = ExprKind::extent, .dtype = Dtype::int64, .id = axis});
}

ExprId Builder::stride_ref(int32_t stride) {
  return intern({.kind = ExprKind::stride, .dtype = Dtype::int64, .id = stride});
}

ExprId Builder::ref(ValueId value) {
  return intern({.kind = ExprKind::ref, .dtype = kernel_.values.at(value).dtypes[0], .id = value});
}

ExprId Builder::state(int i, Dtype dtype) {
  return intern({.kind = ExprKind::state, .dtype = dtype, .id = i});
}

ExprId Builder::other(int i, Dtype dtype) {
  return intern({.kind = ExprKind::other, .dtype = dtype, .id = i});
}

ExprId Builder::get(int i, ExprId tuple) {
  const Expr& from = kernel_.exprs.at(tuple);
  Dtype dtype = from.dtype;
  if (from.kind == ExprKind::ref) {
    const std::vector<Dtype>& dtypes = kernel_.values[from.id].dtypes;
    if (dtypes.size() == 1 && i == 0) return tuple;
    dtype = dtypes.at(i);
  }
  return intern({.kind = ExprKind::get, .dtype = dtype, .id = i, .operands = {tuple}});
}

ExprId Builder::op(Code code, Dtype dtype, std::span<const ExprId> operands) {
  CERMET_INTERNAL_CHECK(static_cast<int>(operands.size()) == arity_of(code),
                        "{} with {} operands; it takes {}", name_of(code), operands.size(),
                        arity_of(code));
  return intern(
      {.kind = ExprKind::op, .dtype = dtype, .code = code, .operands = Operands(operands)});
}

ExprId Builder::op(Code code, Dtype dtype, std::initializer_list<ExprId> operands) {
  return op(code, dtype, std::span<const ExprId>(operands.begin(), operands.size()));
}

ExprId Builder::rare(ExprId pred, ExprId fast, ExprId slow) {
  return intern({.kind = ExprKind::rare, .dtype = dtype(fast), .operands = {pred, fast, slow}});
}

ExprId Builder::load(BufferRef buffer, Index index, ExprId mask, ExprId otherwise) {
  const Dtype dtype =
      buffer.local ? kernel_.locals.at(buffer.id).dtype : kernel_.params.at(buffer.id).dtype;
  return intern({.kind = ExprKind::load,
                 .dtype = dtype,
                 .operands = {mask, otherwise},
                 .buffer = buffer,
                 .index = std::move(index)});
}

ExprId Builder::fma(ExprId a, ExprId b, ExprId c) { return op(Code::fma, dtype(a), {a, b, c}); }
ExprId Builder::unary(Code code, ExprId a) { return op(code, dtype(a), {a}); }
ExprId Builder::compare(Code code, ExprId a, ExprId b) { return op(code, Dtype::boolean, {a, b}); }
ExprId Builder::select(ExprId cond, ExprId a, ExprId b) {
  return op(Code::select, dtype(a), {cond, a, b});
}

ExprId Builder::logical_not(ExprId a) { return op(Code::bit_not, Dtype::boolean, {a}); }

ExprId Builder::cast(ExprId a, Dtype to) {
  const Dtype from = dtype(a);
  if (from == to) return a;
  const bool through_float =
      (is_half(from) && to != Dtype::float32) || (is_half(to) && from != Dtype::float32);
  return op(Code::cast, to, {through_float ? cast(a, Dtype::float32) : a});
}

ExprId Builder::bitcast(ExprId a, Dtype to) {
  CERMET_INTERNAL_CHECK(size_of(dtype(a)) == size_of(to), "bitcast from {} to {}",
                        name_of(dtype(a)), name_of(to));
  return dtype(a) == to ? a : op(Code::bitcast, to, {a});
}

ExprId Builder::intern(Expr expr) {
  for (ExprId operand : expr.operands)
    CERMET_INTERNAL_CHECK(operand < static_cast<ExprId>(kernel_.exprs.size()) &&
                              (operand >= 0 || expr.kind == ExprKind::load),
                          "operand {} of {} expressions", operand, kernel_.exprs.size());
  if (2 * kernel_.exprs.size() >= table_.size()) grow_table();
  size_t place = hash_expr(expr) & (table_.size() - 1);
  for (; table_[place] != kNone; place = (place + 1) & (table_.size() - 1))
    if (kernel_.exprs[table_[place]] == expr) return table_[place];
  const ExprId id = static_cast<ExprId>(kernel_.exprs.size());
  kernel_.exprs.push_back(std::move(expr));
  table_[place] = id;
  return id;
}

}  // namespace cermet::ir
