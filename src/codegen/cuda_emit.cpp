// SPDX-License-Identifier: MIT
// Expressions, and the statements that are no loops. (Loops and folds: cuda_fold.cpp.)
#include "codegen/cuda_emit.h"

#include <algorithm>

#include "base/error.h"
#include "codegen/cuda_op.h"
#include "codegen/cuda_source.h"
#include "codegen/lane_analysis.h"
#include "kernel/carries.h"
#include "kernel/complex_update.h"
#include "kernel/micro.h"
#include "kernel/walk.h"

namespace cermet::codegen {

using namespace ir;

namespace {

bool holds(const std::vector<Stmt>& stmts, bool (*wanted)(const Stmt&)) {
  bool found = false;
  for_each_stmt(stmts, [&](const Stmt& stmt) { found = found || wanted(stmt); });
  return found;
}

// Nothing in an item that several threads could share, nor memory of its own.
bool is_for_one_thread(const Kernel& kernel, const For& chunk) {
  const auto shared = [](const Stmt& stmt) {
    const For* loop = std::get_if<For>(&stmt);
    return (loop != nullptr && loop->kind == ForKind::lane) ||
           std::holds_alternative<Merge>(stmt) || std::holds_alternative<Micro>(stmt);
  };
  bool own_memory = false;
  const auto look = [&](BufferRef buffer) {
    own_memory |= buffer.local && kernel.locals[buffer.id].scope == LocalScope::thread;
  };
  for_each_stmt(chunk.body, [&](const Stmt& stmt) {
    if (const Store* s = std::get_if<Store>(&stmt)) look(s->buffer);
    if (const Update* s = std::get_if<Update>(&stmt)) look(s->buffer);
  });
  return !holds(chunk.body, shared) && !own_memory;
}

}  // namespace

CudaEmitter::CudaEmitter(const Kernel& kernel)
    : kernel_(kernel),
      reads_(kernel.exprs.size()),
      stateful_(kernel.exprs.size()),
      folded_(kernel.values.size()),
      order_(kernel) {
  for_each_stmt(kernel.body, [&](const Stmt& stmt) {
    if (!std::holds_alternative<Let>(stmt))
      if (const ValueId* value = value_of(stmt)) folded_[*value] = true;
  });
  for (size_t id = 0; id < kernel.exprs.size(); ++id) {
    const Expr& e = kernel.exprs[id];
    stateful_[id] = e.kind == ExprKind::state || e.kind == ExprKind::other;
    if (e.kind == ExprKind::load) reads_[id].insert(buffer_number(kernel, e.buffer));
    for_each_operand(e, [&](ExprId operand) {
      stateful_[id] = stateful_[id] || stateful_[operand];
      reads_[id].insert(reads_[operand].begin(), reads_[operand].end());
    });
  }
}

std::string CudaEmitter::structs() const {
  std::string text;
  for (const auto& [name, definition] : structs_) text += definition;
  return text;
}

std::string CudaEmitter::entry(const For& chunk, const std::string& symbol, int number,
                               bool may_have_failed) {
  text_.clear(), prologue_.clear(), declared_.clear(), scopes_.assign(1, {}), order_.clear();
  next_ = exchange_bytes_ = tree_bytes_ = 0;
  depth_ = 1;
  number_ = number;
  item_ = fmt::format("a{}", chunk.axes[0]);
  const bool spans = chunk.axes.size() == 2;
  alone_ = !spans && is_for_one_thread(kernel_, chunk);
  if (may_have_failed) line("if (failed_before({}, {})) return;", status(), number);
  if (spans) {
    const auto bound = [&](ir::AxisId axis, const char* block) {
      line("const i64 a{} = begin + (end - begin) * (i64)({}) / gridDim.x;", axis, block);
    };
    if (ir::is_in_order(chunk)) {
      line("const i64 a{} = begin;", chunk.axes[0]);
      line("const i64 a{} = blockIdx.x == 0 ? end : begin;", chunk.axes[1]);
    } else if (chunk.turn != 0) {  // all turns of a share, without a pause
      const auto share = [&](const char* block) {
        return fmt::format("{} * (i64)({}) / gridDim.x", chunk.turn, block);
      };
      line("const i64 share = {}, next = {};", share("blockIdx.x"), share("blockIdx.x + 1"));
      line("const i64 a{} = begin + share;", chunk.axes[0]);
      line("const i64 a{} = share < next ? end - {} + next : begin;", chunk.axes[1], chunk.turn);
    } else {
      bound(chunk.axes[0], "blockIdx.x");
      bound(chunk.axes[1], "blockIdx.x + 1");
    }
    open("if (a{} < a{}) {{", chunk.axes[0], chunk.axes[1]);
  } else {
    open("for (i64 {0} = begin + {1}; {0} < end; {0} += {2}) {{", item_,
         alone_ ? "(i64)blockIdx.x * blockDim.x + threadIdx.x" : "blockIdx.x",
         alone_ ? "(i64)gridDim.x * blockDim.x" : "gridDim.x");
  }
  // Of other items only the block's own memory is left behind.
  Touches before = order_.around(chunk);
  std::erase_if(before, [&](const Touch& t) {
    const int local = t.buffer - static_cast<int>(kernel_.params.size());
    return local < 0 || kernel_.locals[static_cast<size_t>(local)].scope != LocalScope::thread;
  });
  order_.add(before);
  statements(chunk.body);
  close();
  std::string head = fmt::format(
      "\nextern \"C\" __global__ void __launch_bounds__({}) {}(const __grid_constant__ Record "
      "record, "
      "const i64 begin, const i64 end, char* const scratch, const i64 scratch_stride) {{\n",
      kCudaThreads, symbol);
  if (exchange_bytes_ > 0)
    head += fmt::format("  static __shared__ __align__(16) char exchange[{}];\n", exchange_bytes_);
  return head + prologue_ + text_ + "}\n";
}

void CudaEmitter::add_line(const std::string& text) {
  text_.append(2 * static_cast<size_t>(depth_), ' ');
  text_ += text + '\n';
}

void CudaEmitter::close(const char* end) {
  scopes_.pop_back();
  --depth_;
  line("{}", end);
}

// --- The record.

std::string CudaEmitter::declared(std::string name, const std::string& declaration) {
  if (declared_.insert(name).second) prologue_ += "  " + declaration + ";\n";
  return name;
}

std::string CudaEmitter::scalar(ParamId id) {
  const Dtype dtype = kernel_.params[id].dtype;
  const size_t number = static_cast<size_t>(id);
  std::string read = fmt::format("({}){}", cuda_type(dtype), word(number));
  if (dtype == Dtype::float32) read = fmt::format("bits_as<float>((u32){})", word(number));
  if (dtype == Dtype::float64) read = fmt::format("bits_as<double>({})", word(number));
  const std::string name = fmt::format("p{}", id);
  return declared(name, fmt::format("const {} {} = {}", cuda_type(dtype), name, read));
}

std::string CudaEmitter::extent(AxisId id) {
  size_t number = kernel_.params.size();
  for (AxisId a = 0; a < id; ++a) number += kernel_.axes[a].has_extent ? 1 : 0;
  const std::string name = fmt::format("n{}", id);
  return declared(name, fmt::format("const i64 {} = (i64){}", name, word(number)));
}

std::string CudaEmitter::size(const Size& size) {
  std::string text = fmt::format("{}LL", size.constant);
  for (const SizeTerm& term : size.terms)
    text += fmt::format(" * (({} + {}) / {})", extent(term.axis), term.tile - 1, term.tile);
  return text;
}

Dtype CudaEmitter::dtype_of(BufferRef buffer) const {
  return buffer.local ? kernel_.locals[buffer.id].dtype : kernel_.params[buffer.id].dtype;
}

std::string CudaEmitter::buffer(BufferRef ref) {
  const char* type = cuda_memory_type(dtype_of(ref));
  if (!ref.local) {
    const bool constant = kernel_.params[ref.id].access == ir::Access::in;
    const std::string name = fmt::format("b{}", ref.id);
    const std::string pointer = fmt::format("{}{}*", constant ? "const " : "", type);
    return declared(name, fmt::format("{0} const {1} = ({0}){2}", pointer, name,
                                      word(static_cast<size_t>(ref.id))));
  }
  std::string name = fmt::format("l{}", ref.id);
  if (kernel_.locals[ref.id].scope == LocalScope::thread) {
    thread_locals();
    return name;
  }
  size_t number = kernel_.params.size() + static_cast<size_t>(kernel_.stride_count);
  for (const Axis& axis : kernel_.axes) number += axis.has_extent ? 1 : 0;
  for (LocalId l = 0; l < ref.id; ++l)
    number += kernel_.locals[l].scope == LocalScope::kernel ? 1 : 0;
  return declared(name, fmt::format("{0}* const {1} = ({0}*){2}", type, name, word(number)));
}

// All of them: each begins where those before it end.
void CudaEmitter::thread_locals() {
  if (declared_.contains("local")) return;
  declared(
      "local",
      "char* local = scratch_stride > 0 ? scratch + scratch_stride * blockIdx.x : dynamic_shared");
  for (const Local& l : kernel_.locals) {
    if (l.scope != LocalScope::thread) continue;
    const std::string name = fmt::format("l{}", l.local), elements = size(l.size);
    declared(name, fmt::format("{0}* const {1} = ({0}*)local", cuda_memory_type(l.dtype), name));
    declared(name + " end",
             fmt::format("local += ({} * {} + 63) / 64 * 64", elements, size_of(l.dtype)));
  }
}

std::string CudaEmitter::status() {
  const auto found = std::ranges::find(kernel_.params, ParamKind::status, &Param::kind);
  return declared("status", fmt::format("Status* const status = (Status*){}",
                                        word(static_cast<size_t>(found - kernel_.params.begin()))));
}

// --- Expressions.

std::string CudaEmitter::value(ExprId id) {
  const Expr& e = kernel_[id];
  switch (e.kind) {
    case ExprKind::constant: return cuda_constant(e.dtype, e.bits);
    case ExprKind::scalar: return scalar(e.id);
    case ExprKind::axis: return fmt::format("a{}", e.id);
    case ExprKind::extent: return extent(e.id);
    case ExprKind::stride: return stride(e.id);
    case ExprKind::ref: return fmt::format("v{}{}", e.id, folded_[e.id] ? ".s0" : "");
    case ExprKind::state: return fmt::format("{}.s{}", state_, e.id);
    case ExprKind::other: return fmt::format("{}.s{}", other_, e.id);
    case ExprKind::get: {
      const Expr& tuple = kernel_[e.operands[0]];
      if (tuple.kind == ExprKind::ref) return fmt::format("v{}.s{}", tuple.id, e.id);
      return fmt::format("{}.x{}", value(e.operands[0]), e.id);
    }
    default: break;
  }
  for (const Scope& scope : scopes_)
    if (const auto it = scope.names.find(id); it != scope.names.end()) return it->second;
  std::string name = compute(e);
  scopes_.back().names[id] = name;
  return name;
}

std::string CudaEmitter::defined(Dtype dtype, const std::string& text) {
  std::string name = fresh('x');
  line("const {} {} = {};", cuda_type(dtype), name, text);
  return name;
}

std::string CudaEmitter::compute(const Expr& e) {
  if (e.kind == ExprKind::rare) return rare(e);
  if (e.kind == ExprKind::load) return load(e);
  std::vector<std::string> v;
  for (ExprId operand : e.operands) v.push_back(value(operand));
  if (e.code == Code::threefry) {
    std::string name = fresh('x');
    line("const Pair {} = threefry({}, {}, {}, {});", name, v[0], v[1], v[2], v[3]);
    return name;
  }
  CERMET_INTERNAL_CHECK(!is_math(e.code), "math code {} reached codegen", name_of(e.code));
  const Dtype from = kernel_[e.operands[e.code == Code::select ? 1 : 0]].dtype;
  return defined(e.dtype, cuda_op(e.code, e.dtype, from, v));
}

std::string CudaEmitter::rare(const Expr& e) {
  const std::string pred = value(e.operands[0]), fast = value(e.operands[1]);
  std::string name = fresh('x');
  line("{} {} = {};", cuda_type(e.dtype), name, fast);
  open("if ({}) {{", pred);
  line("{} = {};", name, value(e.operands[2]));
  close();
  return name;
}

std::string CudaEmitter::stride(int32_t stride) {
  size_t number = kernel_.params.size() + static_cast<size_t>(stride);
  for (const Axis& axis : kernel_.axes) number += axis.has_extent ? 1 : 0;
  const std::string name = fmt::format("s{}", stride);
  return declared(name, fmt::format("const i64 {} = (i64){}", name, word(number)));
}

std::string CudaEmitter::element(BufferRef ref, const Index& index) {
  std::string at;
  for (const IndexTerm& term : index) {
    at += (at.empty() ? "" : " + ") + value(term.expr);
    if (term.stride != kUnit) at += " * " + stride(term.stride);
  }
  return fmt::format("{}[{}]", buffer(ref), at.empty() ? "0" : at);
}

std::string CudaEmitter::load(const Expr& e) {
  const char* as_bool = e.dtype == Dtype::boolean ? " != 0" : "";
  if (e.operands[0] == kNone) return defined(e.dtype, element(e.buffer, e.index) + as_bool);
  const std::string mask = value(e.operands[0]);
  const std::string otherwise =
      e.operands[1] == kNone ? cuda_constant(e.dtype, 0) : value(e.operands[1]);
  std::string name = fresh('x');
  line("{} {} = {};", cuda_type(e.dtype), name, otherwise);
  open("if ({}) {{", mask);
  line("{} = {}{};", name, element(e.buffer, e.index), as_bool);
  close();
  return name;
}

void CudaEmitter::prepare(ExprId id) {
  const Expr& e = kernel_[id];
  if (!stateful_[id]) {
    value(id);
  } else if (e.kind == ExprKind::rare) {
    prepare(e.operands[0]), prepare(e.operands[1]);
  } else if (e.kind == ExprKind::op) {
    for (ExprId operand : e.operands) prepare(operand);
  }
}

void CudaEmitter::forget(const std::set<int>& buffers) {
  for (Scope& scope : scopes_)
    std::erase_if(scope.names, [&](const auto& known) {
      return std::ranges::any_of(buffers, [&](int b) { return reads_[known.first].contains(b); });
    });
}

// --- Statements.

void CudaEmitter::statements(const std::vector<Stmt>& stmts) {
  for (const Stmt& stmt : stmts) statement(stmt);
}

void CudaEmitter::statement(const Stmt& stmt) {
  const For* loop = std::get_if<For>(&stmt);
  const bool serial =
      loop != nullptr && !(loop->kind == ForKind::lane && is_shared_loop(kernel_, *loop));
  if (!alone_ && !serial && order_.needs_barrier(order_.of(stmt))) line("__syncthreads();");
  if (loop != nullptr) {
    CERMET_INTERNAL_CHECK(loop->kind == ForKind::serial || loop->kind == ForKind::lane,
                          "a loop for another target in kernel {}", kernel_.name);
    serial || alone_ ? serial_loop(*loop) : lane_loop(*loop);
  } else if (const Let* s = std::get_if<Let>(&stmt)) {
    const std::string text = value(s->expr);
    line("const {} v{} = {};", cuda_type(kernel_[s->expr].dtype), s->value, text);
  } else if (const Fold* s = std::get_if<Fold>(&stmt)) {
    fold_step(*s);
  } else if (const Check* s = std::get_if<Check>(&stmt)) {
    check(*s);
  } else if (const Store* s = std::get_if<Store>(&stmt)) {
    store(*s);
  } else if (const Update* s = std::get_if<Update>(&stmt)) {
    update(*s);
  } else if (const Merge* s = std::get_if<Merge>(&stmt)) {
    merge(*s);
  } else if (const Micro* s = std::get_if<Micro>(&stmt)) {
    micro(*s);
  } else {
    CERMET_INTERNAL_CHECK(
        std::holds_alternative<Local>(stmt) || std::holds_alternative<Fetch>(stmt),
        "a statement for another target in {}", kernel_.name);
  }
}

// f() where the mask holds, by one thread.
template <typename F>
void CudaEmitter::write(BufferRef target, ExprId mask, F&& f) {
  const bool outer = std::exchange(alone_, true);
  if (!outer) open("if (threadIdx.x == 0) {{");
  if (mask != kNone) open("if ({}) {{", value(mask));
  f();
  if (mask != kNone) close();
  if (!outer) close();
  alone_ = outer;
  forget({buffer_number(kernel_, target)});
}

void CudaEmitter::store(const Store& s) {
  // What later statements of the iteration need as well is left where they find it.
  if (alone_) value(s.value);
  write(s.buffer, s.mask, [&] {
    const std::string stored = value(s.value);
    line("{} = {};", element(s.buffer, s.index), stored);
  });
}

void CudaEmitter::update(const Update& s) {
  const Dtype dtype = dtype_of(s.buffer);
  if (alone_) value(s.value);
  write(s.buffer, s.mask, [&] {
    const std::string operand = value(s.value), place = element(s.buffer, s.index);
    if (s.imag != kNone) return update_complex_at(s, place, operand);
    const std::string old = defined(dtype, place + (dtype == Dtype::boolean ? " != 0" : ""));
    line("{} = {};", place, cuda_op(s.code, dtype, dtype, std::array{old, operand}));
  });
}

void CudaEmitter::update_complex_at(const Update& s, const std::string& place,
                                    const std::string& re) {
  const Dtype part = dtype_of(s.buffer);
  const std::string at = fmt::format("(&{})", place);
  const Parts<std::string> old{defined(part, at + "[0]"), defined(part, at + "[1]")};
  const auto op = [&](Code code, Dtype result, Dtype operand, const auto& operands) {
    return defined(result, cuda_op(code, result, operand, operands));
  };
  const Parts<std::string> parts =
      update_complex(s.code, part, old, Parts<std::string>{re, value(s.imag)}, op);
  line("{}[0] = {};", at, parts[0]);
  line("{}[1] = {};", at, parts[1]);
}

void CudaEmitter::check(const Check& s) {
  const std::string ok = value(s.ok);
  open("if (!{}) {{", ok);
  const std::string index = value(s.index);
  if (escape_ != nullptr) {
    line("{}.note({}, {}, {});", escape_->failure, escape_->iteration, s.site, index);
    line("goto {};", escape_->label);
  } else {
    line("{}report({}, {}, {}, {});", alone_ ? "" : "if (threadIdx.x == 0) ", status(), item_key(),
         s.site, index);
    line("return;");
  }
  close();
}

void CudaEmitter::micro(const Micro& s) {
  const auto operand = [&](ExprId id) { return value(id); };
  const char* type = cuda_memory_type(dtype_of(s.buffers[0]));
  const int64_t group = s.kind == MicroKind::transpose ? TransposeMicro::of(s).group
                                                       : group_of(dtype_of(s.buffers.back()));
  CERMET_INTERNAL_CHECK(group == 1, "kernel '{}': groups are packed for a dot instruction",
                        kernel_.name);
  if (s.kind == MicroKind::gemm) {
    const GemmMicro m = GemmMicro::of(s);
    const std::string c = operand(m.c_at), a = operand(m.a_at), b = operand(m.b_at),
                      rows = operand(m.rows), columns = operand(m.columns),
                      depth = operand(m.depth), a_row = operand(m.a_row), b_row = operand(m.b_row),
                      add = operand(m.add);
    line("gemm<{}>({} + {}, {} + {}, {} + {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {} != 0);", type,
         buffer(m.c), c, buffer(m.a), a, buffer(m.b), b, rows, columns, depth, m.tile_columns,
         a_row, b_row, m.a_column, m.b_panel, m.c_row, add);
  } else if (s.kind == MicroKind::pack) {
    const PackMicro m = PackMicro::of(s);
    const std::string to = operand(m.to_at), from = operand(m.from_at), rows = operand(m.rows),
                      columns = operand(m.columns), from_row = operand(m.from_row);
    line("pack<{}>({} + {}, {} + {}, {}, {}, {}, {}, {});", type, buffer(m.to), to, buffer(m.from),
         from, rows, columns, m.tile_columns, m.to_panel, from_row);
  } else {
    const TransposeMicro m = TransposeMicro::of(s);
    const std::string to = operand(m.to_at), from = operand(m.from_at), rows = operand(m.rows),
                      columns = operand(m.columns);
    line("transpose<{}>({} + {}, {} + {}, {}, {}, {}, {});", type, buffer(m.to), to, buffer(m.from),
         from, rows, columns, m.to_row, m.from_row);
  }
  forget({buffer_number(kernel_, s.buffers[0])});
}

}  // namespace cermet::codegen
