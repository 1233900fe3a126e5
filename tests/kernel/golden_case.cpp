// SPDX-License-Identifier: MIT
#include "kernel/golden_case.h"

#include <cstring>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>

#include "kernel/random_input.h"
#include "kernel/run.h"

namespace cermet {

namespace {

using Numbers = std::vector<int64_t>;
using Change = std::function<void(KernelInput&, const Numbers& extents)>;

struct Row {
  const char* name;
  std::vector<Numbers> extents;
  Numbers strides;
  Change change = nullptr;  // of what cannot be any number
};

constexpr int64_t kElements = 6400;  // of each buffer
constexpr int64_t kRow = 200;        // rows lie so far apart
const std::vector<Numbers> kRows = {{1, 1}, {5, 33}, {3, 200}, {0, 7}, {20, 64}};
const std::vector<Numbers> kFullRows = {{1, 1}, {5, 33}, {20, 64}};
const std::vector<Numbers> kLines = {{1}, {100}, {0}, {3000}};

void set(KernelInput& input, size_t param, Dtype dtype, double value) {
  input.scalars[param] = ir::from_double(dtype, value);
}

// Numbers of [-count, count) in place of any, and what such indices are held against. At 5 rows two are wrong.
Change indices(size_t buffer, size_t scalar, std::function<int64_t(const Numbers&)> count) {
  return [=](KernelInput& input, const Numbers& extents) {
    const int64_t n = std::max<int64_t>(1, count(extents));
    std::vector<char>& bytes = input.bytes[buffer];
    for (size_t at = 0; at < bytes.size(); at += sizeof(int32_t)) {
      int32_t index;
      std::memcpy(&index, &bytes[at], sizeof index);
      const int64_t wrapped = (index % n + n) % n;
      index = static_cast<int32_t>(index % 2 == 0 ? wrapped : wrapped - n);
      if (extents[0] == 5 && (at == 8 || at == 16)) index = static_cast<int32_t>(n + at);
      std::memcpy(&bytes[at], &index, sizeof index);
    }
    input.scalars[scalar] = static_cast<uint64_t>(n);
    input.scalars[scalar + 1] = static_cast<uint64_t>(n - 1);
  };
}

int64_t table_rows(const Numbers&) { return kElements / kRow; }

std::vector<Row> rows() {
  constexpr int64_t kCount = 3, kHeads = 4, kHalf = 6, kLine = 2 * kHalf;
  return {
      {"layer_norm", kRows, {kRow, kRow}},
      {"layer_norm_gradient", kRows, {kRow, kRow}},
      {"rms_norm_bf16", kRows, {kRow, kRow}},
      {"arg_reductions", kFullRows, {kRow}},
      {"cumsum", kRows, {kRow, kRow}},
      {"adam", kLines, {}},
      {"dropout", kLines, {}},
      {"integers", kLines, {}},
      {"complex_chain", kLines, {2, 2, 2}},
      {"cross_entropy",
       kFullRows,
       {kRow, kRow},
       indices(2, 3, [](const Numbers& e) { return e[1]; })},
      {"embedding", kRows, {kRow, kRow}, indices(0, 1, table_rows)},
      {"scatter_add", kRows, {kRow, kRow}, indices(1, 2, table_rows)},
      {"rotated_pairs", {{1, 1}, {5, 33}, {2, 100}, {0, 7}, {20, 64}}, {300, 3, kRow, 300, 2}},
      {"joined_columns",
       {{1, 1}, {300, 3}, {64, 5}, {0, 2}, {1100, 5}},
       {4, 5, 5},
       [](KernelInput& input, const Numbers&) {
         input.scalars[0] = 1;
         input.scalars[1] = 3;
       }},
      {"copied_columns", {{1}, {300}, {0}, {355}}, {}},
      {"rope",
       {{kHeads, kHalf, kCount, kHeads, kLine}},
       {kHalf, kHalf, kHeads * kLine, kLine, kHalf, kHeads * kLine, kLine, kHalf, kHeads * kLine,
        kLine, kHalf, kHeads * kLine, kLine, kHalf, kHeads * kLine, kLine},
       [](KernelInput& input, const Numbers&) {
         input.scalars[8] = input.scalars[9] = kHalf;
         input.scalars[11] = input.scalars[13] = static_cast<uint64_t>(-kHalf);
       }},
  };
}

// Of attention: batch, head and row of each operand lie so far apart.
constexpr int64_t kFeatures = 40, kHead = 40 * kFeatures, kBatch = 2 * kHead;

Numbers places(int64_t operands) {
  Numbers strides;
  for (int64_t i = 0; i < operands; ++i) strides.insert(strides.end(), {kBatch, kHead, kFeatures});
  return strides;
}

Numbers joined(Numbers first, const Numbers& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

// A causal mask: the scalars count rows; p3 scales, those given are 0 and 1.
Change causal(size_t zero, size_t one) {
  return [=](KernelInput& input, const Numbers&) {
    input.scalars[0] = 1;
    input.scalars[1] = 0;
    set(input, 3, Dtype::float32, 0.25);
    set(input, zero, Dtype::float32, 0);
    set(input, one, Dtype::float32, 1);
  };
}

std::vector<Row> product_rows() {
  const Numbers without_rows = {kBatch, kHead};
  const Numbers sums = joined(joined(places(4), without_rows), joined(places(1), without_rows));
  const Numbers mask = joined(places(4), {kHead, kFeatures});
  return {
      {"product_gelu", {{1, 1, 1}, {5, 33, 17}, {20, 64, 29}, {3, 4, 0}}, {kRow, kRow, kRow}},
      {"attention", {{2, 2, 37, 16, 29, 8}, {1, 1, 1, 1, 1, 1}}, places(4), causal(5, 7)},
      {"attention_gradient", {{2, 2, 29, 16, 37, 8, 8, 16}}, places(9), causal(5, 6)},
      {"attention_mask_gradient", {{2, 2, 37, 29, 8, 16}}, mask, causal(5, 6)},
      {"attention_sums", {{2, 2, 37, 29, 8, 16}}, sums, causal(5, 6)},
  };
}

std::vector<GoldenCase> cases_of(const std::vector<Row>& rows) {
  std::vector<GoldenCase> cases;
  unsigned seed = 0;
  for (const Row& row : rows) {
    std::stringstream text;
    text
        << std::ifstream(fmt::format("{}/kernel/golden/{}.ir", CERMET_TESTS_DIR, row.name)).rdbuf();
    GoldenCase c{ir::parse(text.str()), {}};
    const Numbers elements(c.kernel.params.size(), kElements);
    for (const Numbers& extents : row.extents) {
      c.inputs.push_back(random_input(c.kernel, elements, extents, row.strides, ++seed, true));
      if (row.change) row.change(c.inputs.back(), extents);
    }
    cases.push_back(std::move(c));
  }
  return cases;
}

}  // namespace

std::vector<GoldenCase> golden_cases() { return cases_of(rows()); }
std::vector<GoldenCase> golden_products() { return cases_of(product_rows()); }

}  // namespace cermet
