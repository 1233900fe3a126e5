// SPDX-License-Identifier: MIT
// The text form. One statement a line; `%n = expr` lines are names for expressions that are used
// more than once or are long, not statements, and hold until the end of the outermost loop that
// they are in. Linear in the size of the kernel. Must print any kernel, also one that `verify` will
// refuse.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "kernel/passes.h"
#include "kernel/text.h"
#include "kernel/walk.h"

namespace cermet::ir {

namespace {

constexpr size_t kInlineLength = 56;

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (c == '\n') {
      out += "\\n";
      continue;
    }
    out += c;
  }
  return out + "\"";
}

template <typename T>
std::string float_text(T value, uint64_t bits) {
  if (std::isnan(value)) return fmt::format("{:#x}", bits);
  return fmt::format("{}", value);
}

std::string constant_text(Dtype dtype, uint64_t bits) {
  if (dtype == Dtype::boolean && bits <= 1) return bits != 0 ? "true" : "false";
  if (dtype == Dtype::int64) return fmt::format("{}", static_cast<int64_t>(bits));
  const std::string_view name = name_of(dtype);
  if (dtype == Dtype::float32)
    return fmt::format("{}({})", name,
                       float_text(std::bit_cast<float>(static_cast<uint32_t>(bits)), bits));
  if (dtype == Dtype::float64)
    return fmt::format("{}({})", name, float_text(std::bit_cast<double>(bits), bits));
  if (is_integer(dtype) && !is_signed(dtype)) return fmt::format("{}({})", name, bits);
  if (is_integer(dtype)) {
    const int shift = 64 - 8 * static_cast<int>(size_of(dtype));
    return fmt::format("{}({})", name, static_cast<int64_t>(bits << shift) >> shift);
  }
  return fmt::format("{}({:#x})", name, bits);
}

std::string size_text(const Size& size) {
  std::string out = fmt::format("{}", size.constant);
  for (const SizeTerm& term : size.terms) out += fmt::format("*ceil(a{}/{})", term.axis, term.tile);
  return out;
}

class Printer {
 public:
  Printer(const Kernel& kernel, bool names)
      : kernel_(kernel), names_(names), uses_(kernel.exprs.size()), text_(kernel.exprs.size()) {}

  std::string kernel() {
    out_ = names_ ? fmt::format("kernel {} {{\n", quoted(kernel_.name)) : "kernel {\n";
    header();
    for (const Stmt& stmt : kernel_.body) block(stmt);
    return std::move(out_) + "}\n";
  }

  // One statement, without what is nested in it.
  std::string head(const Stmt& stmt) {
    count(stmt);
    statement(stmt, 0, false);
    return std::move(out_);
  }

 private:
  bool valid(ExprId id) const { return id >= 0 && id < static_cast<ExprId>(uses_.size()); }
  void line(int depth, std::string_view text) {
    out_ += fmt::format("{:{}}{}\n", "", 2 * depth, text);
  }
  std::string named(const std::string& name) const {
    return names_ && !name.empty() ? " " + quoted(name) : "";
  }

  void header() {
    for (size_t i = 0; i < kernel_.params.size(); ++i) {
      const Param& p = kernel_.params[i];
      const std::string_view kind =
          p.kind == ParamKind::buffer ? text_of(p.access) : text_of(p.kind);
      line(1, fmt::format("param p{} {} {}{}", i, name_of(p.dtype), kind, named(p.name)));
    }
    for (size_t i = 0; i < kernel_.axes.size(); ++i) {
      const Axis& a = kernel_.axes[i];
      line(1, fmt::format("axis a{}{}{}{}", i, a.has_extent ? "" : " variable", named(a.name),
                          a.most == 0 ? "" : fmt::format(" most {}", a.most)));
    }
    if (kernel_.stride_count != 0) line(1, fmt::format("strides {}", kernel_.stride_count));
    for (size_t i = 0; i < kernel_.values.size(); ++i) {
      std::string dtypes;
      for (Dtype dtype : kernel_.values[i].dtypes)
        dtypes += fmt::format("{}{}", dtypes.empty() ? "" : ", ", name_of(dtype));
      line(1, fmt::format("value v{} {}{}", i, dtypes, named(kernel_.values[i].name)));
    }
    for (size_t i = 0; i < kernel_.locals.size(); ++i)
      line(1, fmt::format("scratch {}", local_text(kernel_.locals[i])));
  }

  // A statement of the kernel's body: names of expressions begin anew.
  void block(const Stmt& stmt) {
    count(stmt);
    statement(stmt, 1, true);
    for (ExprId id : seen_) uses_[id] = 0, text_[id].clear();
    seen_.clear();
    next_name_ = 0;
  }

  void count(const Stmt& stmt) {
    for_each_expr(stmt, [&](ExprId id) { count(id); });
    if (const For* loop = std::get_if<For>(&stmt))
      for (const Stmt& inner : loop->body) count(inner);
  }

  void count(ExprId root) {
    std::vector<ExprId> stack = {root};
    while (!stack.empty()) {
      const ExprId id = stack.back();
      stack.pop_back();
      if (!valid(id) || ++uses_[id] > 1) continue;
      seen_.push_back(id);
      for_each_operand(kernel_.exprs[id], [&](ExprId operand) {
        if (operand < id) stack.push_back(operand);
      });
    }
  }

  // Makes the text of an expression ready, with a line for each part that gets a name.
  void prepare(ExprId root, int depth) {
    std::vector<ExprId> stack = {root};
    while (!stack.empty()) {
      const ExprId id = stack.back();
      if (!valid(id) || !text_[id].empty()) {
        stack.pop_back();
        continue;
      }
      const size_t below = stack.size();
      for_each_operand(kernel_.exprs[id], [&](ExprId operand) {
        if (operand < id && valid(operand) && text_[operand].empty()) stack.push_back(operand);
      });
      if (stack.size() != below) {
        std::reverse(stack.begin() + static_cast<ptrdiff_t>(below), stack.end());
        continue;
      }
      stack.pop_back();
      text_[id] = expr_text(kernel_.exprs[id]);
      const bool leaf =
          kernel_.exprs[id].operands.empty() || kernel_.exprs[id].kind == ExprKind::get;
      if ((leaf || uses_[id] < 2) && text_[id].size() <= kInlineLength) continue;
      line(depth, fmt::format("%{} = {}", next_name_, text_[id]));
      text_[id] = fmt::format("%{}", next_name_++);
    }
  }

  std::string text(ExprId id) const {
    if (id == kNone) return "none";
    if (!valid(id) || text_[id].empty()) return fmt::format("<expression {}>", id);
    return text_[id];
  }

  std::string operand(const Expr& e, size_t i) const {
    return text(i < e.operands.size() ? e.operands[i] : kNone);
  }

  std::string expr_text(const Expr& e) const {
    switch (e.kind) {
      case ExprKind::constant: return constant_text(e.dtype, e.bits);
      case ExprKind::scalar: return fmt::format("p{}", e.id);
      case ExprKind::axis: return fmt::format("a{}", e.id);
      case ExprKind::extent: return fmt::format("extent(a{})", e.id);
      case ExprKind::stride: return fmt::format("stride(s{})", e.id);
      case ExprKind::ref: return fmt::format("v{}", e.id);
      case ExprKind::state: return fmt::format("state({}, {})", e.id, name_of(e.dtype));
      case ExprKind::other: return fmt::format("other({}, {})", e.id, name_of(e.dtype));
      case ExprKind::get: return fmt::format("{}.{}", operand(e, 0), e.id);
      case ExprKind::op: return op_text(e);
      case ExprKind::rare: return fmt::format("rare({})", list(e.operands));
      case ExprKind::load: break;
    }
    std::string out = "load(" + access(e.buffer, e.index);
    if (const std::string mask = operand(e, 0); mask != "none") out += ", mask " + mask;
    if (const std::string other = operand(e, 1); other != "none") out += ", else " + other;
    return out + ")";
  }

  std::string op_text(const Expr& e) const {
    const std::optional<Dtype> usual = usual_dtype(kernel_, e);
    if (usual == e.dtype) return fmt::format("{}({})", name_of(e.code), list(e.operands));
    return fmt::format("{}.{}({})", name_of(e.code), name_of(e.dtype), list(e.operands));
  }

  std::string list(std::span<const ExprId> ids) const {
    std::string out;
    for (ExprId id : ids) out += (out.empty() ? "" : ", ") + text(id);
    return out;
  }

  std::string access(BufferRef buffer, const Index& index) const {
    std::string out = fmt::format("{}{}[", buffer.local ? 'l' : 'p', buffer.id);
    for (size_t i = 0; i < index.size(); ++i) {
      out += (i == 0 ? "" : " + ") + text(index[i].expr);
      if (index[i].stride != kUnit) out += fmt::format("*s{}", index[i].stride);
    }
    return out + "]";
  }

  template <typename T>
  std::string ids(char letter, const std::vector<T>& list) const {
    std::string out = "(";
    for (size_t i = 0; i < list.size(); ++i)
      out += fmt::format("{}{}{}", i == 0 ? "" : ", ", letter, list[i]);
    return out + ")";
  }

  std::string local_text(const Local& l) const {
    return fmt::format("l{} {} {} {}", l.local, name_of(l.dtype), size_text(l.size),
                       text_of(l.scope));
  }

  std::string mask(ExprId id) const { return id == kNone ? "" : " mask " + text(id); }

  void statement(const Stmt& stmt, int depth, bool nested) {
    for_each_expr(stmt, [&](ExprId id) { prepare(id, depth); });
    line(depth, std::visit([&](const auto& s) { return stmt_text(s); }, stmt));
    if (const Fold* fold = std::get_if<Fold>(&stmt)) states(fold->states, depth);
    if (const Merge* merge = std::get_if<Merge>(&stmt)) states(merge->states, depth);
    const For* loop = std::get_if<For>(&stmt);
    if (loop == nullptr || !nested) return;
    for (const Stmt& inner : loop->body) statement(inner, depth + 1, true);
    line(depth, "}");
  }

  void states(const std::vector<FoldState>& list, int depth) {
    for (const FoldState& s : list)
      line(depth + 1, fmt::format("{} init {} step {} merge {}", name_of(s.dtype), text(s.init),
                                  text(s.step), text(s.merge)));
    line(depth, "}");
  }

  std::string stmt_text(const Let& s) const {
    return fmt::format("let v{} = {}", s.value, text(s.expr));
  }
  std::string stmt_text(const Fold& s) const {
    return fmt::format("fold v{} over {} {} {} {{", s.value, ids('a', s.axes), text_of(s.emit),
                       text_of(s.order));
  }
  std::string stmt_text(const Contract& s) const {
    return fmt::format("contract v{} over {} {} * {} acc {} scheme {}", s.value, ids('a', s.axes),
                       text(s.a), text(s.b), name_of(s.acc), text_of(s.scheme));
  }
  std::string stmt_text(const Check& s) const {
    return fmt::format("check {} site {} index {}", text(s.ok), s.site, text(s.index));
  }
  std::string stmt_text(const Store& s) const {
    return fmt::format("store {} = {}{}", access(s.buffer, s.index), text(s.value), mask(s.mask));
  }
  std::string stmt_text(const Update& s) const {
    const std::string imag = s.imag == kNone ? "" : " imag " + text(s.imag);
    const std::string over =
        s.over.empty() ? "" : fmt::format(" over {} elements a{}", ids('a', s.over), s.elements);
    return fmt::format("update {} {} {}{}{}{}", access(s.buffer, s.index), name_of(s.code),
                       text(s.value), imag, mask(s.mask), over);
  }
  std::string stmt_text(const For& s) const {
    std::string out = fmt::format("for {} {}", text_of(s.kind), ids('a', s.axes));
    if (s.begin != kNone) out += " begin " + text(s.begin);
    if (s.end != kNone) out += " end " + text(s.end);
    if (s.step != 1) out += fmt::format(" step {}", s.step);
    if (s.grid != Size{}) out += " grid " + size_text(s.grid);
    if (s.turn != 0) out += fmt::format(" turn {}", s.turn);
    if (s.least != 1) out += fmt::format(" least {}", s.least);
    if (!s.entry.empty()) out += " entry " + quoted(s.entry);
    return out + " {";
  }
  std::string stmt_text(const Local& s) const { return "local " + local_text(s); }
  std::string stmt_text(const Merge& s) const {
    return fmt::format("merge v{} from {} at {} count {} stride {} {{", s.value, ids('l', s.from),
                       text(s.at), text(s.count), text(s.stride));
  }
  std::string stmt_text(const Barrier&) const { return "barrier"; }
  std::string stmt_text(const Micro& s) const {
    std::string constants, buffers;
    for (int64_t c : s.constants)
      constants += fmt::format("{}{}", constants.empty() ? "" : ", ", c);
    for (BufferRef b : s.buffers)
      buffers += fmt::format("{}{}{}", buffers.empty() ? "" : ", ", b.local ? 'l' : 'p', b.id);
    return fmt::format("micro {} constants ({}) buffers ({}) operands ({})", text_of(s.kind),
                       constants, buffers, list(s.operands));
  }

  std::string stmt_text(const Fetch& s) const { return "fetch " + access(s.buffer, s.index); }

  const Kernel& kernel_;
  const bool names_;
  std::string out_;
  std::vector<int> uses_;          // in the current statement of the body
  std::vector<std::string> text_;  // empty: not yet printed
  std::vector<ExprId> seen_;
  int next_name_ = 0;
};

}  // namespace

std::optional<Dtype> usual_dtype(const Kernel& kernel, const Expr& op) {
  if (op.code == Code::cast || op.code == Code::cast_normal || op.code == Code::bitcast)
    return std::nullopt;
  if (op.code >= Code::eq && op.code <= Code::le) return Dtype::boolean;
  const size_t from = op.code == Code::select ? 1 : 0;
  if (from >= op.operands.size()) return std::nullopt;
  const ExprId id = op.operands[from];
  if (id < 0 || id >= static_cast<ExprId>(kernel.exprs.size())) return std::nullopt;
  return kernel.exprs[id].dtype;
}

std::string print(const Kernel& kernel, bool names) { return Printer(kernel, names).kernel(); }

std::string print(const Kernel& kernel, const Stmt& stmt) {
  return Printer(kernel, true).head(stmt);
}

}  // namespace cermet::ir
