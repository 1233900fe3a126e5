// SPDX-License-Identifier: MIT
#include "kernel/gemm_case.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernel/builder.h"
#include "kernel/compiled.h"
#include "kernel/scalar_ops.h"
#include "kernel/text.h"

namespace cermet::ir {

namespace {

double element(const GemmCase::Buffer& b, int64_t at) {
  uint64_t bits = 0;
  std::memcpy(&bits, b.data.data() + at * static_cast<int64_t>(size_of(b.dtype)), size_of(b.dtype));
  return to_double(b.dtype, bits);
}

// One value in four is the least or the largest.
uint64_t extreme_or_any(Dtype dtype, uint64_t random) {
  const uint64_t bits = 8 * size_of(dtype), all = (uint64_t{1} << bits) - 1;
  const uint64_t largest = is_signed(dtype) ? all >> 1 : all;
  const uint64_t value = random >> 3 & all;
  if (random % 8 > 1) return is_signed(dtype) && value > largest ? value | ~all : value;
  return random % 8 == 0 ? largest : is_signed(dtype) ? ~largest : 0;
}

}  // namespace

std::string GemmShape::text() const {
  return fmt::format(
      "batch {} m {} n {} most {} k {}{}{}{}{}{} padding {} in {} {} acc {} out {}{}{}{}{} {}",
      batch, m, n, most, k, a_transposed ? " a'" : "", b_transposed ? " b'" : "",
      c_transposed ? " c'" : "", a_shared ? " a shared" : "", b_shared ? " b shared" : "", padding,
      name_of(in), name_of(b_in.value_or(in)), name_of(acc), name_of(out),
      prologue ? " prologue" : "", epilogue ? " epilogue" : "", side ? " side" : "",
      is_complex ? " complex" : "", text_of(scheme));
}

GemmCase::Buffer GemmCase::numbers(Dtype dtype, int64_t elements, uint64_t& state) const {
  Buffer b{dtype, elements, std::vector<char>(static_cast<size_t>(elements) * size_of(dtype))};
  for (int64_t i = 0; i < elements; ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    uint64_t bits = from_double(dtype, static_cast<double>((state >> 33) % 7) - 3);
    if (shape.all_values && is_integer(dtype)) bits = extreme_or_any(dtype, state >> 33);
    std::memcpy(b.data.data() + i * static_cast<int64_t>(size_of(dtype)), &bits, size_of(dtype));
  }
  return b;
}

// A matrix (or its transpose) in a batch, in memory and as an index.
struct GemmCase::Matrix {
  ParamId param;
  int64_t batch_stride, row, column;
  Index index;

  Matrix(GemmCase& c, Builder& b, ParamId param, AxisId batch, AxisId i, AxisId j, bool transposed,
         bool shared, int64_t padding)
      : param(param) {
    const auto size = [&](AxisId axis) { return axis == kNone ? 1 : c.extents[axis]; };
    const int64_t length = (transposed ? size(i) : size(j)) + padding;
    row = i == kNone ? 0 : transposed ? 1 : length;
    column = j == kNone ? 0 : transposed ? length : 1;
    batch_stride = batch == kNone || shared ? 0 : (transposed ? size(j) : size(i)) * length;
    for (auto [axis, stride] : {std::pair{batch, batch_stride}, {i, row}, {j, column}}) {
      if (axis == kNone || stride == 0) continue;
      index.push_back({b.axis_ref(axis), stride == 1 ? kUnit : b.stride()});
      if (stride != 1) c.strides.push_back(stride);
    }
  }

  int64_t at(int64_t batch, int64_t i, int64_t j) const {
    return batch * batch_stride + i * row + j * column;
  }
};

GemmCase::GemmCase(const GemmShape& s, uint64_t seed) : shape(s) {
  Builder b("product");
  AxisId axes[4];  // batch, m, n, k
  std::vector<AxisId> all;
  for (int i = 0; i < 4; ++i) {
    const int64_t size = i == 0 ? s.batch : i == 1 ? s.m : i == 2 ? s.n : s.k;
    const bool is_side = i == 1 || i == 2;
    axes[i] = size == 0 && i < 3 ? kNone : b.axis("", true, is_side ? s.most : 0);
    if (axes[i] == kNone) continue;
    extents.push_back(size);
    all.push_back(axes[i]);
  }
  const auto [batch, m, n, k] = axes;
  const int64_t nb = std::max<int64_t>(s.batch, 1), nm = std::max<int64_t>(s.m, 1),
                nn = std::max<int64_t>(s.n, 1);
  const auto buffer = [&](Dtype dtype, Access access, int64_t elements) {
    buffers.push_back(numbers(dtype, std::max<int64_t>(elements, 1), seed));
    if (access == Access::out)
      buffers.back().expected.assign(buffers.back().elements, std::nan(""));
    return b.buffer(dtype, access);
  };
  const int parts = s.is_complex ? 2 : 1;
  const int64_t a_size = nb * (nm + s.padding) * (s.k + s.padding);
  const int64_t b_size = nb * (nn + s.padding) * (s.k + s.padding);
  const int64_t c_size = nb * nm * nn;
  std::vector<Matrix> as, bs;
  for (int p = 0; p < parts; ++p) {
    as.emplace_back(*this, b, buffer(s.in, Access::in, a_size), batch, m, k, s.a_transposed,
                    s.a_shared, s.padding);
    bs.emplace_back(*this, b, buffer(s.b_in.value_or(s.in), Access::in, b_size), batch, k, n,
                    s.b_transposed, s.b_shared, s.padding);
  }
  const ParamId bias = buffer(Dtype::float32, Access::in, nn);
  std::vector<Matrix> cs;
  for (int p = 0; p < (s.epilogue || s.is_complex ? 2 : 1); ++p)
    cs.emplace_back(*this, b, buffer(s.out, Access::out, c_size), batch, m, n, s.c_transposed,
                    false, 0);

  const auto a_expr = [&](int p) {
    const ExprId e = b.cast(b.load({false, as[p].param}, as[p].index), s.acc);
    return s.prologue ? b.add(b.max(e, b.constant(s.acc, 0)), b.constant(s.acc, 1)) : e;
  };
  const auto b_expr = [&](int p) {
    const ExprId e = b.cast(b.load({false, bs[p].param}, bs[p].index), s.acc);
    return s.prologue ? b.mul(e, b.constant(s.acc, 2)) : e;
  };
  std::vector<AxisId> out_axes = all;
  out_axes.pop_back();
  For products{.kind = ForKind::stage, .axes = all};
  if (s.side) {
    const ParamId copy = buffer(Dtype::float32, Access::out, nb * nm * s.k);
    Matrix side(*this, b, copy, s.a_shared ? kNone : batch, m, k, false, false, 0);
    std::vector<AxisId> side_axes = all;
    std::erase(side_axes, n);
    if (s.a_shared) std::erase(side_axes, batch);
    b.status();
    buffers.push_back({Dtype::int64, 1, std::vector<char>(8)});
    b.kernel().body.push_back(
        For{.kind = ForKind::stage,
            .axes = side_axes,
            .body = {Store{{false, copy}, side.index, b.cast(a_expr(0), Dtype::float32)}}});
    const ExprId at = b.axis_ref(k);
    products.body.push_back(Check{b.compare(Code::le, at, b.extent(k)), 0, at});
    for (int64_t h = 0; h < (s.a_shared ? 1 : nb); ++h)
      for (int64_t i = 0; i < nm; ++i)
        for (int64_t l = 0; l < s.k; ++l) {
          const double v = element(buffers[as[0].param], as[0].at(h, i, l));
          buffers[copy].expected[side.at(h, i, l)] = s.prologue ? std::max(v, 0.0) + 1 : v;
        }
  }
  const auto product = [&](int i, int j) {
    const ValueId value = b.value({s.acc});
    products.body.push_back(Contract{value, {k}, a_expr(i), b_expr(j), s.acc, s.scheme});
    return b.ref(value);
  };
  std::vector<ExprId> results;
  if (s.is_complex) {
    const ExprId rr = product(0, 0), ii = product(1, 1), ri = product(0, 1), ir = product(1, 0);
    results = {b.sub(rr, ii), b.add(ri, ir)};
  } else {
    const ExprId c = product(0, 0);
    results = {c};
    if (s.epilogue) {
      Index place;
      if (n != kNone) place.push_back({b.axis_ref(n), kUnit});
      const ExprId shifted = b.add(c, b.cast(b.load({false, bias}, place), s.acc));
      results = {b.max(shifted, b.constant(s.acc, -3)), c};
    }
  }
  b.kernel().body.push_back(std::move(products));
  For last{.kind = ForKind::stage, .axes = out_axes};
  for (size_t p = 0; p < results.size(); ++p)
    last.body.push_back(Store{{false, cs[p].param}, cs[p].index, b.cast(results[p], s.out)});
  b.kernel().body.push_back(std::move(last));
  kernel = b.take();

  for (int64_t h = 0; h < nb; ++h)
    for (int64_t i = 0; i < nm; ++i)
      for (int64_t j = 0; j < nn; ++j) {
        double sum[2][2] = {};
        for (int p = 0; p < parts; ++p)
          for (int q = 0; q < parts; ++q)
            for (int64_t l = 0; l < s.k; ++l) {
              double x = element(buffers[as[p].param], as[p].at(h, i, l));
              double y = element(buffers[bs[q].param], bs[q].at(h, l, j));
              if (s.prologue) x = std::max(x, 0.0) + 1, y *= 2;
              sum[p][q] += x * y;
            }
        const double c = sum[0][0], moved = c + element(buffers[bias], n == kNone ? 0 : j);
        const int64_t at = cs[0].at(h, i, j);
        if (s.is_complex) {
          buffers[cs[0].param].expected[at] = c - sum[1][1];
          buffers[cs[1].param].expected[at] = sum[0][1] + sum[1][0];
        } else if (s.epilogue) {
          buffers[cs[0].param].expected[at] = std::max(moved, -3.0);
          buffers[cs[1].param].expected[at] = c;
        } else {
          buffers[cs[0].param].expected[at] = c;
        }
      }
}

std::vector<Argument> GemmCase::arguments() {
  std::vector<Argument> list;
  for (Buffer& b : buffers) list.push_back({.data = b.data.data(), .elements = b.elements});
  return list;
}

KernelInput GemmCase::input() const {
  KernelInput input;
  input.extents = extents;
  input.strides = strides;
  for (const Buffer& b : buffers) input.bytes.push_back(b.data);
  input.before.resize(input.bytes.size());
  input.scalars.resize(input.bytes.size());
  return input;
}

std::string GemmCase::wrong() const {
  for (size_t p = 0; p < buffers.size(); ++p)
    for (size_t i = 0; i < buffers[p].expected.size(); ++i) {
      const double want = buffers[p].expected[i],
                   got = element(buffers[p], static_cast<int64_t>(i));
      if (std::isnan(want)) continue;
      // Integers wrap.
      const double stored = to_double(
          shape.out, is_integer(shape.out) ? static_cast<uint64_t>(static_cast<int64_t>(want))
                                           : from_double(shape.out, want));
      if (got != stored) return fmt::format("p{}[{}] is {}, not {}", p, i, got, stored);
    }
  return "";
}

}  // namespace cermet::ir
