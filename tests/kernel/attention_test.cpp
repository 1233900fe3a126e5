// SPDX-License-Identifier: MIT
// Products of products: causal attention and its gradients as kernels, in the interpreter before and after
// `tile` and compiled against inaccessible pages, beside sums in double;
// as AArch64 code, too. The same of bfloat16 operands, by dot and tile instructions and by what stands for
// these.
#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <list>
#include <random>
#include <regex>
#include <sstream>

#include "codegen/target.h"
#include "kernel/aarch64_run.h"
#include "kernel/compiled.h"
#include "kernel/run.h"
#include "kernel/tile.h"

namespace cermet::ir {
namespace {

using Numbers = std::vector<float>;

std::string text_of(const std::string& name) {
  std::ifstream file(fmt::format("{}/kernel/golden/{}.ir", CERMET_TESTS_DIR, name));
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

Kernel given(const std::string& name) { return parse(text_of(name)); }

// batch x heads, queries, keys, features of keys and of values.
struct Sizes {
  int64_t batch, heads, queries, keys, features, outputs;
};

uint32_t bits(float x) { return std::bit_cast<uint32_t>(x); }

// One head: q[T, D], k[U, D], v[U, E], g[T, E], with what attention and its gradients are. narrow: these are
// bfloat16.
class Problem {
 public:
  Problem(const Sizes& sizes, bool are_narrow) : n(sizes), narrow(are_narrow) {
    const int64_t all = n.batch * n.heads;
    std::mt19937 generator(7);
    std::normal_distribution<float> normal;
    const auto fill = [&](Numbers& to, int64_t size) {
      to.resize(static_cast<size_t>(all * size));
      for (float& x : to) {
        x = normal(generator);
        if (narrow) x = std::bit_cast<float>(bits(x) & 0xffff0000U);
      }
    };
    fill(q, n.queries * n.features);
    fill(k, n.keys * n.features);
    fill(v, n.keys * n.outputs);
    fill(g, n.queries * n.outputs);
    for (int64_t head = 0; head < all; ++head) add_head(head);
    dmask.resize(static_cast<size_t>(n.heads * n.queries * n.keys));
    for (size_t at = 0; at < ds.size(); ++at) dmask[at % dmask.size()] += ds[at];
  }

  Sizes n;
  bool narrow;
  Numbers q, k, v, g;
  std::vector<double> out, dq, dk, dv;
  // Of the scores; summed over batches, and over queries; and the sums of weights times their derivatives.
  std::vector<double> ds, dmask, dkeys, means;
  static constexpr float kScale = 0.4f;

  std::vector<int64_t> rows(int64_t length, int64_t width) const {  // strides of batch, head, row
    return {n.heads * length * width, length * width, width};
  }

 private:
  void add_head(int64_t head) {
    const int64_t T = n.queries, U = n.keys, D = n.features, E = n.outputs;
    const auto at = [&](const Numbers& a, int64_t length, int64_t width, int64_t row, int64_t j) {
      return static_cast<double>(a[static_cast<size_t>((head * length + row) * width + j)]);
    };
    std::vector<double> p(static_cast<size_t>(T * U)), o(static_cast<size_t>(T * E)),
        gq(static_cast<size_t>(T * D)), gk(static_cast<size_t>(U * D)),
        gv(static_cast<size_t>(U * E)), gs(static_cast<size_t>(T * U)),
        sums(static_cast<size_t>(U));
    for (int64_t i = 0; i < T; ++i) {
      const int64_t seen = std::min(U, i + 1);
      double* row = &p[static_cast<size_t>(i * U)];
      double largest = -INFINITY, total = 0, mean = 0;
      for (int64_t j = 0; j < seen; ++j) {
        for (int64_t d = 0; d < D; ++d) row[j] += at(q, T, D, i, d) * kScale * at(k, U, D, j, d);
        largest = std::max(largest, row[j]);
      }
      for (int64_t j = 0; j < seen; ++j) total += row[j] = std::exp(row[j] - largest);
      std::vector<double> dp(static_cast<size_t>(U));
      for (int64_t j = 0; j < seen; ++j) {
        row[j] /= total;
        for (int64_t e = 0; e < E; ++e) {
          o[static_cast<size_t>(i * E + e)] += row[j] * at(v, U, E, j, e);
          gv[static_cast<size_t>(j * E + e)] += row[j] * at(g, T, E, i, e);
          dp[static_cast<size_t>(j)] += at(g, T, E, i, e) * at(v, U, E, j, e);
        }
        mean += row[j] * dp[static_cast<size_t>(j)];
      }
      means.push_back(mean);
      for (int64_t j = 0; j < seen; ++j) {
        const double of_score = row[j] * (dp[static_cast<size_t>(j)] - mean);
        gs[static_cast<size_t>(i * U + j)] = of_score;
        sums[static_cast<size_t>(j)] += of_score;
        for (int64_t d = 0; d < D; ++d) {
          gq[static_cast<size_t>(i * D + d)] += of_score * kScale * at(k, U, D, j, d);
          gk[static_cast<size_t>(j * D + d)] += of_score * kScale * at(q, T, D, i, d);
        }
      }
    }
    const auto append = [](std::vector<double>& to, const std::vector<double>& more) {
      to.insert(to.end(), more.begin(), more.end());
    };
    append(out, o), append(dq, gq), append(dk, gk), append(dv, gv);
    append(ds, gs), append(dkeys, sums);
  }
};

// A kernel with what one launch is given, and what it should write.
struct Launch {
  Kernel kernel;
  std::vector<std::pair<const Numbers*, uint64_t>> arguments;  // buffers in, or bits of scalars
  std::vector<const std::vector<double>*> results;             // of the last parameters
  std::vector<int64_t> extents, strides;
  bool narrow = false;
};

void append(std::vector<int64_t>& to, const std::vector<int64_t>& more, std::vector<int> order) {
  for (int i : order) to.push_back(more[static_cast<size_t>(i)]);
}

// The operands are read as bfloat16.
void take_bfloat16(Launch& l) {
  std::string text = print(l.kernel);
  for (size_t i = 0; i < l.arguments.size(); ++i) {
    if (l.arguments[i].first == nullptr) continue;
    const std::regex param(fmt::format("param p{} float32", i));
    const std::regex load(fmt::format(R"(load\(p{}\[[^\]]*\]\))", i));
    text = std::regex_replace(text, param, fmt::format("param p{} bfloat16", i));
    text = std::regex_replace(text, load, "cast.float32($&)");
  }
  l.kernel = parse(text);
  l.narrow = true;
}

Launch forward(const Problem& p) {
  const Sizes& n = p.n;
  Launch l{given("attention"), {}, {&p.out}, {}, {}};
  l.arguments = {{nullptr, 1}, {nullptr, 0}, {&p.q, 0}, {nullptr, bits(p.kScale)},
                 {&p.k, 0},    {nullptr, 0}, {&p.v, 0}, {nullptr, bits(1)}};
  l.extents = {n.batch, n.heads, n.queries, n.outputs, n.keys, n.features};
  append(l.strides, p.rows(n.queries, n.features), {0, 1, 2});
  append(l.strides, p.rows(n.keys, n.features), {0, 1, 2});
  append(l.strides, p.rows(n.keys, n.outputs), {0, 1, 2});
  append(l.strides, p.rows(n.queries, n.outputs), {0, 1, 2});
  if (p.narrow) take_bfloat16(l);
  return l;
}

Launch backward(const Problem& p) {
  const Sizes& n = p.n;
  Launch l{given("attention_gradient"), {}, {&p.dv, &p.dk, &p.dq}, {}, {}};
  l.arguments = {{nullptr, 1}, {nullptr, 0}, {&p.q, 0},          {nullptr, bits(p.kScale)},
                 {&p.k, 0},    {nullptr, 0}, {nullptr, bits(1)}, {&p.g, 0},
                 {&p.v, 0}};
  l.extents = {n.batch, n.heads, n.keys, n.outputs, n.queries, n.features, n.features, n.outputs};
  const std::vector<int64_t> q = p.rows(n.queries, n.features), k = p.rows(n.keys, n.features);
  const std::vector<int64_t> v = p.rows(n.keys, n.outputs), g = p.rows(n.queries, n.outputs);
  for (const auto& rows : {q, k, g, g, v, k, v, k, q}) append(l.strides, rows, {0, 1, 2});
  if (p.narrow) take_bfloat16(l);
  return l;
}

// Of the scores' derivatives: with what is made of them, into arrays that have or lack some axes.
Launch of_scores(const Problem& p, const std::string& name,
                 std::vector<const std::vector<double>*> results,
                 const std::vector<std::vector<int64_t>>& strides) {
  const Sizes& n = p.n;
  Launch l{given(name), {}, std::move(results), {}, {}};
  l.arguments = {{nullptr, 1}, {nullptr, 0}, {&p.q, 0},          {nullptr, bits(p.kScale)},
                 {&p.k, 0},    {nullptr, 0}, {nullptr, bits(1)}, {&p.g, 0},
                 {&p.v, 0}};
  l.extents = {n.batch, n.heads, n.queries, n.keys, n.features, n.outputs};
  append(l.strides, p.rows(n.queries, n.features), {0, 1, 2});
  append(l.strides, p.rows(n.keys, n.features), {0, 1, 2});
  append(l.strides, p.rows(n.queries, n.outputs), {0, 1, 2});
  append(l.strides, p.rows(n.keys, n.outputs), {0, 1, 2});
  for (const auto& of_result : strides)
    l.strides.insert(l.strides.end(), of_result.begin(), of_result.end());
  if (p.narrow) take_bfloat16(l);
  return l;
}

Launch mask_gradient(const Problem& p) {
  return of_scores(p, "attention_mask_gradient", {&p.dmask}, {{p.n.queries * p.n.keys, p.n.keys}});
}

Launch sums(const Problem& p) {
  const std::vector<int64_t> of_rows = p.rows(p.n.queries, 1);
  return of_scores(
      p, "attention_sums", {&p.dkeys, &p.ds, &p.means},
      {{p.n.heads * p.n.keys, p.n.keys}, p.rows(p.n.queries, p.n.keys), {of_rows[0], of_rows[1]}});
}

// Of bfloat16, weights (and their derivatives) are rounded to 2^-9 of themselves.
std::string fault(const Numbers& got, const std::vector<double>& want, bool narrow) {
  const double tolerance = narrow ? 0x1p-8 : 2e-6;
  double largest = 0;
  for (double x : want) largest = std::max(largest, std::abs(x));
  for (size_t i = 0; i < want.size(); ++i)
    if (!(std::abs(got[i] - want[i]) <= tolerance * largest))
      return fmt::format("element {}: {} for {}", i, got[i], want[i]);
  return "";
}

std::vector<char> bytes_of(const Numbers& numbers, bool narrow) {
  std::vector<char> bytes(numbers.size() * (narrow ? 2 : 4));
  for (size_t i = 0; i < numbers.size(); ++i) {
    if (narrow) {
      const auto upper = static_cast<uint16_t>(bits(numbers[i]) >> 16);
      std::memcpy(&bytes[2 * i], &upper, 2);
    } else {
      std::memcpy(&bytes[4 * i], &numbers[i], 4);
    }
  }
  return bytes;
}

void expect_results(const Launch& l, const std::vector<Numbers>& made) {
  for (size_t i = 0; i < made.size(); ++i) EXPECT_EQ(fault(made[i], *l.results[i], l.narrow), "");
}

std::vector<Numbers> check_interpreted(const Launch& l, const Kernel& kernel) {
  std::vector<Argument> arguments;
  std::list<std::vector<char>> inputs;
  for (const auto& [buffer, scalar] : l.arguments) {
    Argument a;
    a.bits = scalar;
    if (buffer != nullptr) {
      a.data = inputs.emplace_back(bytes_of(*buffer, l.narrow)).data();
      a.elements = static_cast<int64_t>(buffer->size());
    }
    arguments.push_back(a);
  }
  std::vector<Numbers> made;
  for (const auto* result : l.results) made.emplace_back(result->size(), NAN);
  for (Numbers& one : made) arguments.push_back(argument(one));
  interpret(kernel, arguments, l.extents, l.strides);
  expect_results(l, made);
  return made;
}

KernelInput input_of(const Launch& l) {
  KernelInput input;
  input.extents = l.extents;
  input.strides = l.strides;
  for (const auto& [buffer, scalar] : l.arguments) {
    input.bytes.push_back(buffer == nullptr ? std::vector<char>() : bytes_of(*buffer, l.narrow));
    input.scalars.push_back(scalar);
  }
  for (const auto* result : l.results) {
    input.bytes.push_back(bytes_of(Numbers(result->size(), NAN), false));
    input.scalars.push_back(0);
  }
  input.before.assign(input.bytes.size(), 0);
  return input;
}

std::vector<Numbers> check_output(const Launch& l, const KernelOutput& output) {
  std::vector<Numbers> made;
  for (size_t i = 0; i < l.results.size(); ++i) {
    Numbers& got = made.emplace_back(l.results[i]->size());
    std::memcpy(got.data(), output.bytes[l.arguments.size() + i].data(),
                got.size() * sizeof(float));
  }
  expect_results(l, made);
  return made;
}

std::vector<Numbers> check_compiled(const Launch& l, const Kernel& tiled, CpuLevel level,
                                    bool at_end) {
  SCOPED_TRACE(name_of(level));
  const std::shared_ptr<LoadedKernel> code = load_kernel(compile_cpu(tiled, level));
  return check_output(l, run_compiled(*code, tiled, input_of(l), at_end, at_end ? 1 : 3));
}

const TargetFacts kTargets[] = {
    {.name = "cpu", .vector_bytes = 16},
    {.name = "cpu", .vector_bytes = 64, .fma = true},
};
constexpr TargetFacts kDots = {.name = "cpu", .vector_bytes = 64, .fma = true, .dot_bf16 = true};
constexpr TargetFacts kTiles = {.name = "cpu", .vector_bytes = 64, .fma = true, .amx_bf16 = true};
constexpr TargetFacts kScaledTiles = {
    .name = "cpu", .vector_bytes = 64, .fma = true, .amx_bf16 = true, .scales = true};

bool is_small(const Sizes& n, int64_t limit) { return n.queries * n.keys < limit; }

void check(const std::function<Launch(const Problem&)>& make, const Sizes& sizes) {
  SCOPED_TRACE(fmt::format("{} queries, {} keys, {} features, {} outputs", sizes.queries,
                           sizes.keys, sizes.features, sizes.outputs));
  const Problem problem(sizes, false);
  const Launch launch = make(problem);
  verify(launch.kernel);
  ASSERT_EQ(form_of(simplify(launch.kernel), kTargets[0]), "attention");
  if (is_small(sizes, 4000)) check_interpreted(launch, launch.kernel);
  for (const TargetFacts& target : kTargets) {
    const Kernel tiled = lower(launch.kernel, target);
    const std::string text = print(tiled);
    EXPECT_NE(text.find("micro gemm"), std::string::npos);
    EXPECT_EQ(print(parse(text)), text);
    if (is_small(sizes, 40000)) check_interpreted(launch, tiled);
  }
  for (CpuLevel level : host_levels()) {
    const Kernel tiled = lower(launch.kernel, cpu_facts(level));
    for (bool at_end : {false, true}) check_compiled(launch, tiled, level, at_end);
  }
}

// Products by tile instructions have one order, so that all give the same bits.
void check_narrow(const std::function<Launch(const Problem&)>& make, const Sizes& sizes) {
  SCOPED_TRACE(fmt::format("{} queries, {} keys, {} features, {} outputs", sizes.queries,
                           sizes.keys, sizes.features, sizes.outputs));
  const Problem problem(sizes, true);
  const Launch launch = make(problem);
  for (const TargetFacts& target : {kDots, kTiles, kScaledTiles}) {
    EXPECT_EQ(scheme_of(simplify(launch.kernel), target),
              target.amx_bf16 ? "amx_bf16" : "dot_bf16");
    const Kernel tiled = lower(launch.kernel, target);
    const std::string text = print(tiled);
    EXPECT_EQ(text.find("micro tile_gemm") != std::string::npos, target.amx_bf16);
    EXPECT_EQ(print(parse(text)), text);
    std::vector<Numbers> expected;
    if (is_small(sizes, 40000)) expected = check_interpreted(launch, tiled);
    for (CpuLevel level : host_levels()) {
      if (level < (target.amx_bf16 ? CpuLevel::avx512 : CpuLevel::avx512_bf16)) continue;
      for (bool at_end : {false, true}) {
        const std::vector<Numbers> made = check_compiled(launch, tiled, level, at_end);
        if (!target.amx_bf16) continue;
        if (expected.empty()) expected = made;
        EXPECT_EQ(made, expected);
      }
    }
  }
}

constexpr Sizes kSizes[] = {
    {1, 1, 2, 3, 2, 2},     {2, 3, 20, 20, 8, 5},    {1, 2, 50, 70, 65, 70},
    {1, 1, 97, 96, 16, 16}, {1, 1, 49, 400, 9, 130}, {1, 1, 1600, 30, 4, 3},
};

// The choice between a score and -inf of the golden kernel in other words: a comparison that holds where
// nothing is seen, one that is negated, and one of two conditions (the other always holds).
std::vector<std::string> other_choices() {
  const std::string row = "add(p1, mul(cast.int32(a2), p0))";
  const std::string column = "add(p1, mul(cast.int32(a4), p0))";
  const std::string seen = fmt::format("le({}, {})", column, row);
  const std::string hidden = fmt::format("lt({}, {})", row, column);
  return {fmt::format("select({}, v0, float32(-inf))", seen),
          fmt::format("select({}, float32(-inf), v0)", hidden),
          fmt::format("select(bit_not({}), v0, float32(-inf))", hidden),
          fmt::format("select(bit_and({}, le(p1, {})), v0, float32(-inf))", seen, row),
          fmt::format("select(bit_or({}, lt({}, p1)), float32(-inf), v0)", hidden, row)};
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
    text.replace(at, from.size(), to);
  return text;
}

TEST(Attention, MasksInOtherWords) {
  const std::string text = text_of("attention");
  const auto loops = [](const Kernel& kernel) {
    const std::string lowered = print(lower(kernel, kTargets[0]));
    size_t n = 0;
    for (size_t at = 0; (at = lowered.find("for ", at)) != std::string::npos; ++at) ++n;
    return n;
  };
  const std::string choice = "select(%0, v0, float32(-inf))";
  for (const std::string& other : other_choices()) {
    SCOPED_TRACE(other);
    const Kernel kernel = parse(replaced(text, choice, other));
    const auto make = [&](const Problem& p) {
      Launch l = forward(p);
      l.kernel = kernel;
      return l;
    };
    check(make, {1, 2, 50, 70, 65, 70});
    // Columns that no row of a block sees are left out: there is a loop that finds them.
    // What the comparison alone chooses is put in the scores' place once, else in each pass.
    const bool alone =
        other.find("bit_and") == std::string::npos && other.find("bit_or") == std::string::npos;
    EXPECT_EQ(loops(kernel) == loops(given("attention")), alone);
    EXPECT_GT(loops(kernel), loops(parse(replaced(text, choice, "v0"))));
  }
}

TEST(Attention, Forward) {
  for (const Sizes& sizes : kSizes) check(forward, sizes);
}

TEST(Attention, Gradient) {
  for (const Sizes& sizes : kSizes) check(backward, sizes);
}

TEST(Attention, MaskGradient) {
  for (const Sizes& sizes : kSizes) check(mask_gradient, sizes);
}

TEST(Attention, Sums) {
  for (const Sizes& sizes : kSizes) check(sums, sizes);
}

TEST(Attention, Bfloat16) {
  for (const Sizes& sizes : kSizes) check_narrow(forward, sizes);
}

// As bfloat16 attention is lowered: weights by an exponential of its accuracy, shifted by the largest number.
Launch weighed_narrow(Launch l) {
  std::string text = print(l.kernel);
  text = replaced(text, "exp(", "exp_nonpositive_bfloat16(");
  const std::regex largest(R"(max\(state\(0, float32\), (.*)\) merge max\(.*\)\n)");
  const auto choice = [](const std::string& x) {
    return fmt::format("select(lt(state(0, float32), {0}), {0}, state(0, float32))", x);
  };
  text = std::regex_replace(text, largest,
                            choice("$1") + " merge " + choice("other(0, float32)") + "\n");
  l.kernel = parse(text);
  return l;
}

TEST(Attention, Bfloat16Weights) {
  const auto forwards = [](const Problem& p) { return weighed_narrow(forward(p)); };
  const auto backwards = [](const Problem& p) { return weighed_narrow(backward(p)); };
  for (const Sizes& sizes : kSizes) {
    check_narrow(forwards, sizes);
    check_narrow(backwards, sizes);
  }
}

// What no row of a block sees is left out, however the largest score is found.
TEST(Attention, Bfloat16WeightsAreLimited) {
  const Problem problem({1, 1, 20, 20, 8, 5}, true);
  for (const TargetFacts& target : {kDots, kTiles, kScaledTiles}) {
    const std::string text = print(lower(weighed_narrow(forward(problem)).kernel, target));
    EXPECT_NE(text.find("\"tile\""), std::string::npos) << text;
    EXPECT_EQ(text.find("scale2") != std::string::npos, target.scales);
  }
}

TEST(Attention, Bfloat16Gradient) {
  for (const Sizes& sizes : kSizes) check_narrow(backward, sizes);
}

TEST(Attention, Bfloat16Sums) {
  for (const Sizes& sizes : kSizes) {
    check_narrow(mask_gradient, sizes);
    check_narrow(sums, sizes);
  }
}

TEST(Attention, Aarch64) {
  Aarch64Batch batch;
  std::list<Problem> problems;
  std::vector<Launch> launches;
  for (const Sizes& sizes : kSizes) {
    problems.emplace_back(sizes, false);
    for (Launch (*make)(const Problem&) : {forward, backward, mask_gradient, sums}) {
      launches.push_back(make(problems.back()));
      const Kernel tiled = lower(launches.back().kernel, cpu_facts(CpuLevel::neon));
      batch.launch(batch.add(tiled), input_of(launches.back()));
    }
  }
  const std::vector<KernelOutput> outputs = batch.run();
  ASSERT_EQ(outputs.size(), launches.size());
  for (size_t i = 0; i < outputs.size(); ++i) {
    SCOPED_TRACE(i);
    check_output(launches[i], outputs[i]);
  }
}

}  // namespace
}  // namespace cermet::ir
