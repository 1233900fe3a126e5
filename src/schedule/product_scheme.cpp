// SPDX-License-Identifier: MIT
// Which row of the table a product takes. Of large products a row gives way to a scheme that costs less, where
// costs are known (product_costs.h).
#include "schedule/product_scheme.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/env.h"
#include "kernel/micro.h"
#include "kernel/text.h"
#include "kernel/walk.h"
#include "schedule/product_costs.h"
#include "schedule/product_table.h"

namespace cermet::schedule {

namespace {

using ir::Scheme;
using Row = ProductRow;
using Kind = Row::Kind;

// Sums much longer than the rows and columns, unless their pieces would take more memory than the operands.
bool is_long(const ProductShape& p) {
  constexpr int64_t kLongSum = 2048, kLongestSum = 32768, kPiece = 512;
  return p.k >= kLongSum && p.k <= kLongestSum && p.k >= 4 * std::max(p.m, p.n) &&
         p.m * p.n <= kPiece * (p.m + p.n);
}

bool is_byte(Dtype dtype) { return is_integer(dtype) && size_of(dtype) == 1; }

// float32 or float64, as what is multiplied.
bool is_plain_real(const ProductShape& p) {
  return is_floating(p.dtype) && !is_half(p.dtype) && p.a.dtype == p.dtype && p.b.dtype == p.dtype;
}

bool is_all(const ProductShape& p, Dtype d) { return p.a.dtype == d && p.b.dtype == d; }

bool is_of(Kind kind, const ProductShape& p, const ir::TargetFacts& facts) {
  const bool tiles = facts.amx_bf16, wide = facts.vector_bytes == 64;
  const bool dots = !tiles && facts.dot_bf16 && is_all(p, Dtype::bfloat16);
  const bool is_converted =
      is_all(p, Dtype::float16) || (!tiles && !dots && is_all(p, Dtype::bfloat16));
  const bool large_l2 = processor_of(facts) == Processor::large_l2;
  switch (kind) {
    case Kind::any: return true;
    case Kind::complex: return is_complex(p.dtype);
    case Kind::floating: return is_floating(real_of(p.dtype));
    case Kind::real: return is_plain_real(p);
    case Kind::full: return wide && (is_plain_real(p) || is_converted);
    case Kind::full_real: return wide && is_plain_real(p);
    case Kind::whole: return facts.full_width && wide && (is_plain_real(p) || dots);
    case Kind::whole_half: return facts.full_width && wide && is_converted;
    case Kind::whole_real: return facts.full_width && wide && is_plain_real(p);
    case Kind::large_l2_real: return large_l2 && is_plain_real(p);
    case Kind::large_l2_half: return large_l2 && is_converted && !tiles;
    case Kind::narrow: return is_of(Kind::real, p, facts) && facts.vector_bytes < 64;
    case Kind::half: return is_half(p.dtype) || is_half(p.a.dtype) || is_half(p.b.dtype);
    case Kind::narrow_half: return facts.vector_bytes == 32 && is_of(Kind::half, p, facts);
    case Kind::bfloat16: return tiles && is_all(p, Dtype::bfloat16);
    case Kind::bfloat16_dot: return dots;
    case Kind::packed:
      if (!wide) return !tiles;
      return is_converted || (dots && !p.a.along_k);
    case Kind::bfloat16_whole:
      return is_of(Kind::bfloat16, p, facts) && p.k % ir::tile_depth_of(Dtype::bfloat16) == 0;
    case Kind::parts:
      return tiles && (p.dtype == Dtype::float16 ||
                       (real_of(p.dtype) == Dtype::float32 && env::matmul_f32() == "auto"));
    case Kind::real_parts: return is_of(Kind::parts, p, facts) && !is_complex(p.dtype);
    case Kind::bytes: return facts.amx_int8 && is_byte(p.a.dtype) && is_byte(p.b.dtype);
  }
  return false;
}

bool fits(const Row& row, const ProductShape& p, const ir::TargetFacts& facts) {
  const auto count = [](int64_t size) { return (size + ir::kTiledRows - 1) / ir::kTiledRows; };
  const bool wide = p.m < p.n;
  const auto lies = [](Row::Lies wanted, const ProductOperand& operand) {
    return wanted == Row::Lies::any || operand.along_k == (wanted == Row::Lies::along_k);
  };
  return (row.form == Row::Form::any || wide == (row.form == Row::Form::wide)) &&
         lies(row.a, p.a) && lies(row.larger_lies, wide ? p.b : p.a) && row.m.holds(p.m) &&
         row.few.holds(std::min(p.m, p.n)) && row.many.holds(std::max(p.m, p.n)) &&
         row.k.holds(p.k) && row.batch.holds(p.batch) &&
         row.larger.holds(p.k * std::max(p.m, p.n)) &&
         row.blocks.holds(p.batch * count(p.m) * count(p.n)) &&
         (!row.loads || (wide ? p.b : p.a).is_load) && (row.sum == Row::Sum::any || is_long(p)) &&
         (row.work == Row::Work::any || is_small(p)) && is_of(row.kind, p, facts);
}

// That of CERMET_MATMUL_SCHEME, where it can make the product.
std::optional<Scheme> wanted_scheme(const ProductShape& p, const ir::TargetFacts& facts) {
  for (const auto table : {batch_table(), tile_table(), product_table(), kept_table()})
    for (const Row& row : table)
      if (env::matmul_scheme() == ir::text_of(row.scheme) && is_of(row.kind, p, facts))
        return row.scheme;
  return std::nullopt;
}

// Whether a product made by `kept` has the bits of one made by `scheme`, and an operand that it can pack. Of panels all
// sum across k in one order; along k those do whose columns become lanes, where there is a vector of them.
bool is_same(Scheme scheme, Scheme kept, const ProductShape& p, const ir::TargetFacts& facts) {
  if (!is_packed(kept)) return scheme == Scheme::fma_local;
  const ProductOperand& larger = p.m < p.n ? p.b : p.a;
  const int64_t lanes = facts.vector_bytes / std::max<int64_t>(4, size_of(p.dtype));
  if (!is_panel(scheme) || !larger.is_load) return false;
  return !larger.along_k || (is_long(scheme) && facts.full_width && std::max(p.m, p.n) >= lanes);
}

std::optional<Scheme> kept_scheme(Scheme scheme, const ProductShape& p,
                                  const ir::TargetFacts& facts) {
  for (const Row& row : kept_table())
    if (fits(row, p, facts) && is_same(scheme, row.scheme, p, facts)) return row.scheme;
  return std::nullopt;
}

Scheme first_that_fits(const ProductShape& p, const ir::TargetFacts& facts) {
  for (const auto table : {batch_table(), tile_table(), product_table()})
    for (const Row& row : table)
      if (fits(row, p, facts)) return row.scheme;
  return Scheme::fma;
}

// That of a product of all the rows, by items that pack what they need; nullopt: each row alone is better.
std::optional<Scheme> scheme_of_runs(const ProductShape& p, const ir::TargetFacts& facts) {
  constexpr int64_t kFewRows = 8;
  ProductShape rows = p;
  std::swap(rows.batch, rows.m);
  rows.in_runs = false;
  const Scheme scheme = scheme_of(rows, facts).scheme;
  if (ir::is_panel(scheme) && rows.m <= kFewRows) return std::nullopt;
  switch (scheme) {
    case Scheme::amx_split:
    case Scheme::amx_split_local:
    case Scheme::amx_split_k: return Scheme::amx_split_local;
    default: return Scheme::fma_local;
  }
}

}  // namespace

ProductScheme scheme_of(const ProductShape& p, const ir::TargetFacts& facts) {
  if (p.batch * p.m * p.n == 0) return {};
  if (p.in_runs && p.m == 1)
    if (const std::optional<Scheme> scheme = scheme_of_runs(p, facts)) return {.scheme = *scheme};
  Scheme scheme = cheapest_of(p, first_that_fits(p, facts), facts);
  std::optional<Scheme> kept = kept_scheme(scheme, p, facts);
  if (env::matmul_scheme() != "auto")
    if (const auto wanted = wanted_scheme(p, facts)) scheme = *wanted, kept = std::nullopt;
  // Panels are few rows beside B, those of tile instructions few columns beside A.
  const bool exchanged =
      (is_panel(scheme) && p.n < p.m) || (scheme == Scheme::amx_panel && p.m < p.n);
  return {scheme, exchanged, kept};
}

ir::Kernel with_scheme(const ir::Kernel& kernel, ir::Scheme scheme) {
  ir::Kernel made = kernel;
  ir::for_each_stmt(made.body, [&](ir::Stmt& stmt) {
    if (auto* product = std::get_if<ir::Contract>(&stmt)) product->scheme = scheme;
  });
  return made;
}

}  // namespace cermet::schedule
