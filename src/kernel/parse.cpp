// SPDX-License-Identifier: MIT
// Reads the text form that print.cpp writes; `#` begins a comment. Raises [ir] value with the line.
#include <bit>
#include <cctype>
#include <charconv>
#include <cmath>
#include <map>

#include "base/error.h"
#include "base/lazy.h"
#include "kernel/builder.h"
#include "kernel/passes.h"
#include "kernel/scalar_ops.h"
#include "kernel/text.h"

namespace cermet::ir {

namespace {

enum class TokenKind : uint8_t { word, number, text, punctuation, end };

struct Token {
  TokenKind kind = TokenKind::end;
  std::string text;  // of a quoted text: its content
  int line = 1;
};

bool is_word_char(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

class Lexer {
 public:
  explicit Lexer(std::string_view text) : text_(text) { next(); }

  const Token& peek() const { return token_; }
  Token take() {
    Token taken = token_;
    next();
    return taken;
  }

 private:
  void next() {
    skip();
    token_ = {TokenKind::end, "", line_};
    if (at_ >= text_.size()) return;
    const char c = text_[at_];
    if (c == '"') {
      quoted();
    } else if (std::isdigit(static_cast<unsigned char>(c)) != 0 || (c == '-' && negative())) {
      number();
    } else if (is_word_char(c) || c == '%') {
      const size_t from = at_++;
      while (at_ < text_.size() && is_word_char(text_[at_])) ++at_;
      token_ = {TokenKind::word, std::string(text_.substr(from, at_ - from)), line_};
    } else {
      token_ = {TokenKind::punctuation, std::string(1, c), line_};
      ++at_;
    }
  }

  void skip() {
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '#') {
        while (at_ < text_.size() && text_[at_] != '\n') ++at_;
        continue;
      }
      if (std::isspace(static_cast<unsigned char>(c)) == 0) return;
      if (c == '\n') ++line_;
      ++at_;
    }
  }

  bool negative() const { return at_ + 1 < text_.size() && is_word_char(text_[at_ + 1]); }

  // Digits with what may follow them in a decimal or hexadecimal number; v0.1 and %0.1 begin as
  // words.
  void number() {
    const size_t from = at_++;
    while (at_ < text_.size()) {
      const char c = text_[at_];
      const bool exponent_sign =
          (c == '-' || c == '+') && (text_[at_ - 1] == 'e') && text_.substr(from, 2) != "0x";
      if (!is_word_char(c) && c != '.' && !exponent_sign) break;
      ++at_;
    }
    token_ = {TokenKind::number, std::string(text_.substr(from, at_ - from)), line_};
  }

  void quoted() {
    token_ = {TokenKind::text, "", line_};
    for (++at_; at_ < text_.size() && text_[at_] != '"'; ++at_) {
      char c = text_[at_];
      if (c == '\\' && at_ + 1 < text_.size()) {
        c = text_[++at_];
        if (c == 'n') c = '\n';
      }
      token_.text += c;
    }
    ++at_;
  }

  std::string_view text_;
  size_t at_ = 0;
  int line_ = 1;
  Token token_;
};

class Parser {
 public:
  explicit Parser(std::string_view text) : lexer_(text), builder_("") {}

  Kernel run() {
    word("kernel");
    kernel().name = name();
    punct("{");
    while (!accept("}")) {
      if (declaration()) continue;
      if (std::optional<Stmt> s = statement())
        kernel().body.push_back(std::move(*s)), names_.clear();
    }
    if (lexer_.peek().kind != TokenKind::end) refuse("text after the kernel");
    return builder_.take();
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    const Token& t = lexer_.peek();
    fail(ErrorKind::value, "ir", "line {}: {} at '{}'; kernel/ir.h has the grammar", t.line, what,
         t.kind == TokenKind::end ? "end of text" : t.text);
  }

  Kernel& kernel() { return builder_.kernel(); }

  // --- Tokens.

  bool next_is(std::string_view text) const {
    const Token& t = lexer_.peek();
    return t.text == text && (t.kind == TokenKind::word || t.kind == TokenKind::punctuation);
  }
  bool accept(std::string_view text) {
    if (!next_is(text)) return false;
    lexer_.take();
    return true;
  }
  void punct(std::string_view text) {
    if (!accept(text)) refuse(fmt::format("expected '{}'", text));
  }
  void word(std::string_view text) { punct(text); }
  std::string any_word(const char* what) {
    if (lexer_.peek().kind != TokenKind::word) refuse(fmt::format("expected {}", what));
    return lexer_.take().text;
  }
  std::string name() { return lexer_.peek().kind == TokenKind::text ? lexer_.take().text : ""; }

  int64_t integer() {
    const Token& t = lexer_.peek();
    int64_t value = 0;
    const char* end = t.text.data() + t.text.size();
    if (t.kind != TokenKind::number ||
        std::from_chars(t.text.data(), end, value) != std::from_chars_result{end, std::errc{}})
      refuse("expected an integer");
    lexer_.take();
    return value;
  }

  // The number in a word of one letter and digits, such as a12; below `count`.
  int32_t numbered(const std::string& text, size_t count) const {
    int32_t value = -1;
    const char* end = text.data() + text.size();
    const auto [last, error] = std::from_chars(text.data() + 1, end, value);
    if (error != std::errc{} || last != end || value < 0 || static_cast<size_t>(value) >= count)
      refuse(fmt::format("no such thing as {}", text));
    return value;
  }
  static bool is_numbered(const std::string& text, char letter) {
    return text.size() > 1 && text[0] == letter &&
           text.find_first_not_of("0123456789", 1) == std::string::npos;
  }
  int32_t id(char letter, size_t count) {
    if (!is_numbered(lexer_.peek().text, letter))
      refuse(fmt::format("expected {}0, {}1, ...", letter, letter));
    const int32_t value = numbered(lexer_.peek().text, count);
    lexer_.take();
    return value;
  }

  template <typename F>
  void list(std::string_view end, F&& f) {
    if (accept(end)) return;
    do f();
    while (accept(","));
    punct(end);
  }

  Dtype dtype() {
    const std::optional<Dtype> d = dtype_from_name(lexer_.peek().text);
    if (!d) refuse("expected a dtype");
    lexer_.take();
    return *d;
  }

  template <typename E>
  E choice(const char* what) {
    const std::optional<E> value = from_text<E>(lexer_.peek().text);
    if (!value) refuse(fmt::format("expected {}", what));
    lexer_.take();
    return *value;
  }

  // --- Declarations.

  bool declaration() {
    if (accept("param")) return param(), true;
    if (accept("axis")) return axis(), true;
    if (accept("value")) return value(), true;
    if (accept("scratch")) return kernel().locals.push_back(local(false)), true;
    if (accept("strides")) return kernel().stride_count = static_cast<int32_t>(integer()), true;
    return false;
  }

  // Declarations are numbered in their order.
  void next_number(char letter, size_t count) { word(fmt::format("{}{}", letter, count)); }

  void param() {
    next_number('p', kernel().params.size());
    Param p{ParamKind::buffer, dtype(), Access::in, ""};
    if (const std::optional<Access> access = from_text<Access>(lexer_.peek().text)) {
      p.access = *access;
      lexer_.take();
    } else {
      p.kind = choice<ParamKind>("in, out, inout, scalar or status");
    }
    p.name = name();
    kernel().params.push_back(std::move(p));
  }

  void axis() {
    next_number('a', kernel().axes.size());
    const bool variable = accept("variable");
    std::string called = name();
    const int64_t most = accept("most") ? integer() : 0;
    kernel().axes.push_back({std::move(called), !variable, most});
  }

  void value() {
    next_number('v', kernel().values.size());
    Value v;
    do v.dtypes.push_back(dtype());
    while (accept(","));
    v.name = name();
    kernel().values.push_back(std::move(v));
  }

  Local local(bool known) {
    const size_t count = kernel().locals.size();
    LocalId l = static_cast<LocalId>(count);
    if (known) l = id('l', count);
    else next_number('l', count);
    Local result{l, dtype(), size(), LocalScope::thread};
    result.scope = choice<LocalScope>("kernel or thread");
    return result;
  }

  Size size() {
    Size s;
    s.constant = integer();
    while (accept("*")) {
      word("ceil");
      punct("(");
      const AxisId a = id('a', kernel().axes.size());
      punct("/");
      s.terms.push_back({a, integer()});
      punct(")");
    }
    return s;
  }

  // --- Expressions.

  ExprId expr() {
    ExprId e = primary();
    while (next_is(".")) {
      lexer_.take();
      e = get(e, static_cast<int>(integer()));
    }
    return e;
  }

  ExprId get(ExprId tuple, int i) {
    Expr e{.kind = ExprKind::get, .dtype = builder_.dtype(tuple), .id = i, .operands = {tuple}};
    if (builder_[tuple].kind == ExprKind::ref) {
      const std::vector<Dtype>& dtypes = kernel().values[builder_[tuple].id].dtypes;
      if (i < 0 || static_cast<size_t>(i) >= dtypes.size()) refuse("no such state");
      e.dtype = dtypes[i];
    }
    return builder_.intern(std::move(e));
  }

  ExprId primary() {
    if (lexer_.peek().kind == TokenKind::number) return builder_.integer(Dtype::int64, integer());
    const std::string w = any_word("an expression");
    if (w[0] == '%') {
      const auto it = names_.find(w);
      if (it == names_.end()) refuse(fmt::format("{} before its line", w));
      return it->second;
    }
    if (w == "true" || w == "false") return builder_.constant_bits(Dtype::boolean, w == "true");
    if (is_numbered(w, 'p')) {
      const ParamId p = numbered(w, kernel().params.size());
      return builder_.scalar_ref(p);
    }
    if (is_numbered(w, 'a')) return builder_.axis_ref(numbered(w, kernel().axes.size()));
    if (is_numbered(w, 'v')) return builder_.ref(numbered(w, kernel().values.size()));
    if (w == "extent" || w == "stride" || w == "state" || w == "other" || w == "rare" ||
        w == "load")
      return call(w);
    if (const std::optional<Dtype> d = dtype_from_name(w)) return constant(*d);
    return op(w);
  }

  ExprId call(const std::string& w) {
    punct("(");
    if (w == "extent") {
      const ExprId e = builder_.extent(id('a', kernel().axes.size()));
      punct(")");
      return e;
    }
    if (w == "stride") {
      const ExprId e = builder_.stride_ref(id('s', static_cast<size_t>(kernel().stride_count)));
      punct(")");
      return e;
    }
    if (w == "state" || w == "other") {
      const int i = static_cast<int>(integer());
      punct(",");
      const Dtype d = dtype();
      punct(")");
      return w == "state" ? builder_.state(i, d) : builder_.other(i, d);
    }
    if (w == "rare") {
      const std::vector<ExprId> operands = exprs(")");
      if (operands.size() != 3) refuse("rare takes three operands");
      return builder_.rare(operands[0], operands[1], operands[2]);
    }
    const auto [buffer, index] = access();
    ExprId mask = kNone, otherwise = kNone;
    while (accept(",")) {
      if (accept("mask")) mask = expr();
      else if (accept("else")) otherwise = expr();
      else refuse("expected mask or else");
    }
    punct(")");
    return builder_.load(buffer, index, mask, otherwise);
  }

  ExprId constant(Dtype d) {
    punct("(");
    const Token t = lexer_.take();
    const char* begin = t.text.data();
    const char* end = begin + t.text.size();
    std::from_chars_result result{begin, std::errc::invalid_argument};
    uint64_t bits = 0;
    if (t.text.starts_with("0x")) {
      result = std::from_chars(begin + 2, end, bits, 16);
    } else if (d == Dtype::float32) {
      float v = 0;
      result = std::from_chars(begin, end, v);
      bits = std::bit_cast<uint32_t>(v);
    } else if (is_floating(d)) {
      double v = 0;
      result = std::from_chars(begin, end, v);
      bits = from_double(d, v);
    } else if (t.text.starts_with("-")) {
      int64_t v = 0;
      result = std::from_chars(begin, end, v);
      bits = static_cast<uint64_t>(v);
    } else {
      result = std::from_chars(begin, end, bits);
    }
    if (result.ec != std::errc{} || result.ptr != end) refuse("a malformed constant before");
    punct(")");
    return builder_.constant_bits(d, bits);
  }

  std::vector<ExprId> exprs(std::string_view end) {
    std::vector<ExprId> all;
    list(end, [&] { all.push_back(expr()); });
    return all;
  }

  ExprId op(const std::string& w) {
    using Codes = std::map<std::string_view, Code>;
    static constinit Lazy<Codes> known;
    const Codes& codes = known.get([] {
      Codes all;
      for (int c = 0; c <= static_cast<int>(Code::threefry); ++c)
        all.emplace(name_of(static_cast<Code>(c)), static_cast<Code>(c));
      return all;
    });
    const auto it = codes.find(w);
    if (it == codes.end()) refuse(fmt::format("no code '{}'", w));
    std::optional<Dtype> d;
    if (accept(".")) d = dtype();
    punct("(");
    const std::vector<ExprId> operands = exprs(")");
    if (static_cast<int>(operands.size()) != arity_of(it->second))
      refuse(fmt::format("{} takes {} operands", w, arity_of(it->second)));
    const Expr plain{.kind = ExprKind::op,
                     .dtype = Dtype::boolean,
                     .code = it->second,
                     .operands = Operands(operands)};
    if (!d) d = usual_dtype(kernel(), plain);
    if (!d) refuse(fmt::format("{} needs a dtype", w));
    return builder_.op(it->second, *d, operands);
  }

  BufferRef buffer() {
    const std::string& w = lexer_.peek().text;
    if (is_numbered(w, 'l')) return {true, id('l', kernel().locals.size())};
    return {false, id('p', kernel().params.size())};
  }

  std::pair<BufferRef, Index> access() {
    const BufferRef b = buffer();
    Index index;
    punct("[");
    if (accept("]")) return {b, index};
    do {
      IndexTerm term{expr(), kUnit};
      if (accept("*")) term.stride = id('s', static_cast<size_t>(kernel().stride_count));
      index.push_back(term);
    } while (accept("+"));
    punct("]");
    return {b, index};
  }

  // --- Statements.

  // None for a line that gives a name.
  std::optional<Stmt> statement() {
    const std::string w = any_word("a statement");
    if (w[0] == '%') {
      punct("=");
      names_[w] = expr();
      return std::nullopt;
    }
    if (w == "let") return let();
    if (w == "fold") return fold();
    if (w == "contract") return contract();
    if (w == "check") return check();
    if (w == "store") return store();
    if (w == "update") return update();
    if (w == "for") return loop();
    if (w == "local") return local(true);
    if (w == "merge") return merge();
    if (w == "barrier") return Barrier{};
    if (w == "micro") return micro();
    if (w == "fetch") return fetch();
    refuse(fmt::format("no statement '{}'", w));
  }

  ValueId value_id() { return id('v', kernel().values.size()); }

  std::vector<AxisId> axes() {
    std::vector<AxisId> all;
    punct("(");
    list(")", [&] { all.push_back(id('a', kernel().axes.size())); });
    return all;
  }

  // Braces after a fold or merge; lines that give names stand before the statement.
  std::vector<FoldState> states() {
    std::vector<FoldState> all;
    punct("{");
    while (!accept("}")) {
      FoldState s{dtype(), kNone, kNone, kNone};
      word("init"), s.init = optional_expr();
      word("step"), s.step = optional_expr();
      word("merge"), s.merge = optional_expr();
      all.push_back(s);
    }
    return all;
  }
  ExprId optional_expr() { return accept("none") ? kNone : expr(); }

  Stmt let() {
    const ValueId v = value_id();
    punct("=");
    return Let{v, expr()};
  }

  Stmt fold() {
    Fold f{
        .value = value_id(), .axes = {}, .emit = Emit::last, .order = Order::lanes, .states = {}};
    word("over");
    f.axes = axes();
    f.emit = choice<Emit>("last or each");
    f.order = choice<Order>("lanes or serial");
    f.states = states();
    return f;
  }

  Stmt contract() {
    Contract c{value_id(), {}, kNone, kNone, Dtype::float32, Scheme::fma};
    word("over");
    c.axes = axes();
    c.a = expr();
    punct("*");
    c.b = expr();
    word("acc");
    c.acc = dtype();
    word("scheme");
    c.scheme = choice<Scheme>("a scheme");
    return c;
  }

  Stmt check() {
    Check c{expr(), 0, kNone};
    word("site");
    c.site = static_cast<int32_t>(integer());
    word("index");
    c.index = expr();
    return c;
  }

  Stmt store() {
    auto [b, index] = access();
    punct("=");
    const ExprId v = expr();
    return Store{b, std::move(index), v, accept("mask") ? expr() : kNone};
  }

  Stmt update() {
    auto [b, index] = access();
    const std::string w = any_word("a code");
    for (int c = 0; c <= static_cast<int>(Code::threefry); ++c) {
      if (name_of(static_cast<Code>(c)) != w) continue;
      const ExprId v = expr();
      Update made{b, std::move(index), static_cast<Code>(c), v};
      if (accept("imag")) made.imag = expr();
      if (accept("mask")) made.mask = expr();
      if (accept("over")) {
        made.over = axes();
        word("elements");
        made.elements = id('a', kernel().axes.size());
      }
      return made;
    }
    refuse(fmt::format("no code '{}'", w));
  }

  Stmt loop() {
    For f{.kind = choice<ForKind>("a kind of loop"), .axes = axes()};
    if (accept("begin")) f.begin = expr();
    if (accept("end")) f.end = expr();
    if (accept("step")) f.step = integer();
    if (accept("grid")) f.grid = size();
    if (accept("turn")) f.turn = integer();
    if (accept("least")) f.least = integer();
    if (accept("entry")) f.entry = name();
    punct("{");
    while (!accept("}"))
      if (std::optional<Stmt> s = statement()) f.body.push_back(std::move(*s));
    return f;
  }

  Stmt merge() {
    Merge m{.value = value_id(),
            .states = {},
            .from = {},
            .at = kNone,
            .count = kNone,
            .stride = kNone};
    word("from");
    punct("(");
    list(")", [&] { m.from.push_back(id('l', kernel().locals.size())); });
    word("at"), m.at = expr();
    word("count"), m.count = expr();
    word("stride"), m.stride = expr();
    m.states = states();
    return m;
  }

  Stmt micro() {
    Micro m{
        .kind = choice<MicroKind>("a template"), .constants = {}, .buffers = {}, .operands = {}};
    word("constants"), punct("(");
    list(")", [&] { m.constants.push_back(integer()); });
    word("buffers"), punct("(");
    list(")", [&] { m.buffers.push_back(buffer()); });
    word("operands"), punct("(");
    m.operands = exprs(")");
    return m;
  }

  Stmt fetch() {
    auto [b, index] = access();
    return Fetch{b, std::move(index)};
  }

  Lexer lexer_;
  Builder builder_;
  std::map<std::string, ExprId> names_;  // of the current statement of the kernel's body
};

}  // namespace

Kernel parse(std::string_view text) { return Parser(text).run(); }

}  // namespace cermet::ir
