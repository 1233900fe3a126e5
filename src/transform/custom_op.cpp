// SPDX-License-Identifier: MIT
#include "transform/custom_op.h"

#include <algorithm>
#include <atomic>
#include <cctype>
#include <list>
#include <memory>
#include <mutex>
#include <unordered_set>

#include "base/error.h"
#include "base/format.h"
#include "base/lazy.h"
#include "kernel/walk.h"
#include "runtime/fork.h"
#include "schedule/analysis.h"
#include "transform/trace.h"
#include "transform/transform.h"

namespace cermet {

namespace {

struct Registered {
  Registered(CustomOp given, OpId id);
  CustomOp op;
  OpRow row;                        // points at strings of the op
  std::atomic<uint64_t> counts{0};  // bit n: n arguments have been given, and are right
};

std::mutex& registry_lock() {
  static constinit ForkSafe<std::mutex> lock(ForkLevel::leaf);
  return lock.get();
}

std::list<Registered>& registry() {
  static constinit Lazy<std::list<Registered>> list;  // rows are pointed to until the very end
  return list.get([] { return std::list<Registered>(); });
}

Registered& registered(const OpRow& row) {
  const std::lock_guard guard(registry_lock());
  for (Registered& r : registry())
    if (&r.row == &row) return r;
  throw_internal(__FILE__, __LINE__, fmt::format("{} is no registered op", row.name.value));
}

const CustomOp& op_of(const OpRow& row) { return registered(row).op; }

bool is_taken(const std::string& name) {
  const auto is_it = [&](const char* other) { return name == other; };
  for (const OpRow* row : all_rows())
    if (is_it(row->name)) return true;
  return std::ranges::any_of(registry(), [&](const Registered& r) { return is_it(r.row.name); });
}

Dtype reference_dtype(const OpCall& c) { return op_of(c.row).reference.value(c).dtype(); }
Shape reference_shape(const OpCall& c) { return op_of(c.row).reference.value(c).shape(); }

// The reference on arguments that stand for the call's, to be differentiated.
struct TracedReference {
  explicit TracedReference(const OpCall& c)
      : inputs(trace_inputs(c.inputs)),
        result(op_of(c.row).reference.value(OpCall{c.row, c.params, inputs})) {}
  Arrays inputs;
  array result;
};

array derived_jvp(const OpCall& c, const array&, int k, const array& tangent) {
  const TracedReference traced(c);
  const array& input = traced.inputs[static_cast<size_t>(k)];
  return jvp_of({&traced.result, 1}, {&input, 1}, {&tangent, 1})[0];
}

array derived_vjp(const OpCall& c, const array&, int k, const array& cotangent) {
  const TracedReference traced(c);
  const array& input = traced.inputs[static_cast<size_t>(k)];
  return vjp_of({&traced.result, 1}, {&cotangent, 1}, {&input, 1})[0];
}

// The last argument that leads to the result, counted from 1.
size_t arguments_read(const OpCall& c) {
  const TraceScope scope;
  const TracedReference traced(c);
  const std::vector<NodeRef> tape = traced_tape({&traced.result, 1}, traced.inputs);
  size_t count = traced.inputs.size();
  while (count > 0 && std::ranges::find(tape, traced.inputs[count - 1].node()) == tape.end())
    --count;
  return count;
}

// Of the arguments that a kernel is given, or that lie behind them in memory, the last one that the
// expression reads, counted from 1.
size_t lanes_read(const ir::Kernel& kernel, const Lane& result, std::span<const Lane> lanes) {
  std::unordered_set<ir::ExprId> seen{ir::kNone};
  std::vector<ir::ExprId> stack{result.re, result.im};
  while (!stack.empty()) {
    const ir::ExprId at = stack.back();
    stack.pop_back();
    if (!seen.insert(at).second) continue;
    ir::for_each_operand(kernel[at], [&](ir::ExprId operand) { stack.push_back(operand); });
  }
  seen.erase(ir::kNone);
  size_t count = lanes.size();
  const auto is_read = [&](const Lane& lane) {
    return seen.contains(lane.re) || seen.contains(lane.im);
  };
  while (count > 0 && !is_read(lanes[count - 1])) --count;
  return count;
}

// A span of arguments says how many there are, but lets a kernel read what lies behind them: here, more
// arguments.
void check_kernel(const CustomOp& op, const OpCall& c, const array& result) {
  constexpr size_t kBehind = 64;
  const std::vector<Dtype> dtypes(c.inputs.size() + kBehind, c.inputs[0].dtype());
  const std::vector<const Shape*> shapes(dtypes.size(), &result.shape());
  const auto view_of = [&](size_t count) {
    return NodeView{c.row,
                    c.params,
                    result.dtype(),
                    result.shape(),
                    {c.row, std::span(dtypes).first(count)},
                    {c.row, std::span(shapes).first(count)}};
  };
  const NodeView all = view_of(dtypes.size()), given = view_of(c.inputs.size());
  schedule::AnalysisContext context(all, [](int, const Coords&, bool) {});
  std::vector<Lane> lanes;
  for (size_t k = 0; k < dtypes.size(); ++k)
    lanes.push_back(context.input(static_cast<int>(k), {}));
  const Lane made = op.kernel(context, given, std::span(lanes).first(c.inputs.size()));
  const size_t reads = lanes_read(context.builder().kernel(), made, lanes);
  CERMET_CHECK(reads <= c.inputs.size(), value, c.row.name,
               "its kernel reads argument {}, counted from 1, of {}; it must read no more than the "
               "op takes",
               reads, c.inputs.size());
}

OpRow row_for(const CustomOp& op, OpId id) {
  const bool has_kernel = op.kernel != nullptr;
  const bool is_derived = has_kernel && std::holds_alternative<Derived>(op.derivative);
  return OpRow{
      .id = id,
      .name = op.name.value.c_str(),
      .accepts = op.accepts,
      .dtype = has_kernel ? ResultDtype(rules::same_dtype) : ResultDtype(reference_dtype),
      .shape = has_kernel ? ResultShape(rules::same_shape) : ResultShape(reference_shape),
      .derivative = is_derived ? Derivative(Opaque{derived_jvp, derived_vjp}) : op.derivative,
      .vmap = has_kernel ? Vmap(BroadcastVmap{}) : Vmap(DerivedVmap{}),
      .lowering = has_kernel ? Lowering(MapLowering{op.kernel})
                             : Lowering(CompositeLowering{op.reference.value}),
      .effect = Effect::none,
      .domain = op.domain,
      .max_ulp = op.max_ulp,
      .doc = op.doc.c_str(),
  };
}

Registered::Registered(CustomOp given, OpId id) : op(std::move(given)), row(row_for(op, id)) {}

}  // namespace

const OpRow& register_op(CustomOp op) {
  const std::string& name = op.name;
  const bool is_name =
      !name.empty() && std::isdigit(static_cast<unsigned char>(name[0])) == 0 &&
      std::ranges::all_of(name, [](unsigned char c) { return std::isalnum(c) != 0 || c == '_'; });
  CERMET_CHECK(is_name, value, "register_op",
               "'{}' is no name for an op; it must be letters, digits and _", name);
  CERMET_CHECK(op.reference.value != nullptr, value, "register_op",
               "{} has no reference; it must say what the op means", name);
  const std::lock_guard guard(registry_lock());
  CERMET_CHECK(!is_taken(name), value, "register_op",
               "there is an op {} already; choose another name", name);
  const auto id = static_cast<OpId>(static_cast<size_t>(OpId::kCount) + registry().size());
  return registry().emplace_back(std::move(op), id).row;
}

const OpRow* find_op(std::string_view name) {
  const std::lock_guard guard(registry_lock());
  for (const Registered& r : registry())
    if (name == r.row.name.value) return &r.row;
  return nullptr;
}

array call_op(const OpRow& row, const Arrays& arguments, const StreamOrDevice& s) {
  CERMET_CHECK(!arguments.empty(), value, row.name,
               "no arguments were given; it takes at least one array");
  Registered& r = registered(row);
  const size_t given = arguments.size();
  const auto check_count = [&](size_t takes) {
    CERMET_CHECK(given == takes, value, row.name, "{} arguments were given; it takes {}", given,
                 takes);
  };
  if (r.op.inputs != 0) check_count(r.op.inputs);
  Arrays inputs = arguments;
  if (r.op.kernel != nullptr) {
    Dtype dtype = arguments[0].dtype();
    for (const array& a : arguments) dtype = promote(dtype, a.dtype());
    inputs = broadcast_arrays(arguments, s);
    for (array& a : inputs) a = astype(a, dtype, s);
  }
  const array result = make_node(row, inputs, NoParams{}, s);
  const uint64_t bit = uint64_t{1} << std::min<size_t>(given, 63);
  if (given >= 63 || (r.counts & bit) == 0) {
    const Params params = NoParams{};
    const OpCall call{row, params, inputs};
    if (r.op.inputs == 0) check_count(arguments_read(call));
    if (r.op.kernel != nullptr) check_kernel(r.op, call, result);
    r.counts |= bit;
  }
  return result;
}

array reference_of(const OpRow& row, const Arrays& arguments) {
  return op_of(row).reference.value(OpCall{row, NoParams{}, arguments});
}

}  // namespace cermet
