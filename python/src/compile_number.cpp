// SPDX-License-Identifier: MIT
#include "compile_number.h"

namespace cermet::python {

namespace {

using Op = Symbols::Op;
using Relation = Symbols::Relation;

struct TracedNumber {
  std::shared_ptr<Symbols> symbols;
  Number number;
};

thread_local std::shared_ptr<Symbols> active;

const TracedNumber& self_of(nb::handle object) { return nb::cast<const TracedNumber&>(object); }

// Its value as Python sees it, by a guard.
nb::object looked_at(nb::handle object) {
  Number n = traced_number(object);
  if (n.expr != 0) active->look(n);
  return plain_number(n);
}

nb::object plain_operand(nb::handle object) {
  return is_traced_number(object) ? looked_at(object) : nb::borrow(object);
}

// nullopt: no number, or one that does not fit 64 bits.
std::optional<Number> operand(nb::handle object) {
  if (is_traced_number(object)) return traced_number(object);
  if (PyFloat_Check(object.ptr())) return number(PyFloat_AS_DOUBLE(object.ptr()));
  if (!PyLong_Check(object.ptr())) return std::nullopt;
  int overflow = 0;
  const long long value = PyLong_AsLongLongAndOverflow(object.ptr(), &overflow);
  return overflow != 0 ? std::nullopt : std::optional(number(static_cast<int64_t>(value)));
}

bool is_number(nb::handle object) {
  return is_traced_number(object) || PyLong_Check(object.ptr()) || PyFloat_Check(object.ptr()) ||
         PyComplex_Check(object.ptr());
}

using Plain = PyObject* (*)(PyObject*, PyObject*);

nb::object plain_result(Plain plain, nb::handle a, nb::handle b) {
  nb::object result = nb::steal(plain(plain_operand(a).ptr(), plain_operand(b).ptr()));
  if (!result.is_valid()) nb::raise_python_error();
  return result;
}

nb::object arithmetic(Op op, Plain plain, nb::handle a, nb::handle b) {
  if (!is_number(a) || !is_number(b)) return nb::borrow(Py_NotImplemented);
  const auto x = operand(a), y = operand(b);
  const auto result = x && y && active ? active->apply(op, *x, *y) : std::nullopt;
  return result ? traced_number_object(*result) : plain_result(plain, a, b);
}

nb::object compared(int relation, nb::handle a, nb::handle b) {
  if (!is_number(b)) return nb::borrow(Py_NotImplemented);
  const auto x = operand(a), y = operand(b);
  if (!x || !y || !active) {
    nb::object result =
        nb::steal(PyObject_RichCompare(plain_operand(a).ptr(), plain_operand(b).ptr(), relation));
    if (!result.is_valid()) nb::raise_python_error();
    return result;
  }
  auto holds = [&](Relation r, const Number& p, const Number& q) {
    return active->compare(r, p, q);
  };
  switch (relation) {
    case Py_EQ: return nb::bool_(holds(Relation::equal, *x, *y));
    case Py_NE: return nb::bool_(!holds(Relation::equal, *x, *y));
    case Py_LT: return nb::bool_(holds(Relation::less, *x, *y));
    case Py_GT: return nb::bool_(holds(Relation::less, *y, *x));
    case Py_LE: return nb::bool_(holds(Relation::less, *x, *y) || holds(Relation::equal, *x, *y));
    default: return nb::bool_(holds(Relation::less, *y, *x) || holds(Relation::equal, *x, *y));
  }
}

using Class = nb::class_<TracedNumber>;

void def_operator(Class& c, const char* name, Op op, Plain plain) {
  c.def(("__" + std::string(name) + "__").c_str(),
        [op, plain](nb::handle a, nb::handle b) { return arithmetic(op, plain, a, b); });
  c.def(("__r" + std::string(name) + "__").c_str(),
        [op, plain](nb::handle a, nb::handle b) { return arithmetic(op, plain, b, a); });
}

// Operations that need the values.
void def_plain_operator(Class& c, const char* name, Plain plain) {
  c.def(("__" + std::string(name) + "__").c_str(), [plain](nb::handle a, nb::handle b) {
    return is_number(b) ? plain_result(plain, a, b) : nb::borrow(Py_NotImplemented);
  });
  c.def(("__r" + std::string(name) + "__").c_str(), [plain](nb::handle a, nb::handle b) {
    return is_number(b) ? plain_result(plain, b, a) : nb::borrow(Py_NotImplemented);
  });
}

PyObject* power_of(PyObject* a, PyObject* b) { return PyNumber_Power(a, b, Py_None); }

void def_operators(Class& c) {
  def_operator(c, "add", Op::add, PyNumber_Add);
  def_operator(c, "sub", Op::subtract, PyNumber_Subtract);
  def_operator(c, "mul", Op::multiply, PyNumber_Multiply);
  def_operator(c, "truediv", Op::divide, PyNumber_TrueDivide);
  def_operator(c, "floordiv", Op::floor_divide, PyNumber_FloorDivide);
  def_operator(c, "mod", Op::remainder, PyNumber_Remainder);
  def_operator(c, "pow", Op::power, power_of);
  def_plain_operator(c, "divmod", PyNumber_Divmod);
  def_plain_operator(c, "lshift", PyNumber_Lshift);
  def_plain_operator(c, "rshift", PyNumber_Rshift);
  def_plain_operator(c, "and", PyNumber_And);
  def_plain_operator(c, "or", PyNumber_Or);
  def_plain_operator(c, "xor", PyNumber_Xor);
  static constexpr std::pair<const char*, int> relations[] = {{"__eq__", Py_EQ}, {"__ne__", Py_NE},
                                                              {"__lt__", Py_LT}, {"__gt__", Py_GT},
                                                              {"__le__", Py_LE}, {"__ge__", Py_GE}};
  for (auto [name, relation] : relations)
    c.def(name,
          [relation = relation](nb::handle a, nb::handle b) { return compared(relation, a, b); });
  c.def("__neg__", [](nb::handle a) -> nb::object {
    const auto result = active ? active->apply(Op::negate, traced_number(a)) : std::nullopt;
    return result ? traced_number_object(*result)
                  : nb::steal(PyNumber_Negative(looked_at(a).ptr()));
  });
  static constexpr std::pair<const char*, Op> roundings[] = {{"__floor__", Op::floor},
                                                             {"__ceil__", Op::ceil},
                                                             {"__trunc__", Op::truncate},
                                                             {"__round__", Op::round}};
  for (auto [name, op] : roundings)
    c.def(name, [name = name, op = op](nb::object a, nb::args digits) -> nb::object {
      const Number n = traced_number(a);
      const bool to_int = active && digits.size() == 0;
      if (to_int && n.kind == Number::Kind::integer) return a;
      const auto result = to_int ? active->apply(op, n) : std::nullopt;
      return result ? traced_number_object(*result) : looked_at(a).attr(name)(*digits);
    });
  c.def("__pos__", [](nb::object a) { return a; });
  c.def("__abs__", [](nb::handle a) { return nb::steal(PyNumber_Absolute(looked_at(a).ptr())); });
  c.def("__invert__", [](nb::handle a) { return nb::steal(PyNumber_Invert(looked_at(a).ptr())); });
}

void def_conversions(Class& c) {
  c.def("__bool__", [](nb::handle a) {
    const Number n = traced_number(a);
    if (active && n.expr != 0) return !active->compare(Relation::equal, n, number(int64_t{0}));
    return PyObject_IsTrue(plain_number(n).ptr()) == 1;
  });
  c.def("__int__", [](nb::handle a) { return nb::steal(PyNumber_Long(looked_at(a).ptr())); });
  c.def("__float__", [](nb::handle a) { return nb::steal(PyNumber_Float(looked_at(a).ptr())); });
  c.def("__index__", [](nb::handle a) {
    nb::object index = nb::steal(PyNumber_Index(looked_at(a).ptr()));
    if (!index.is_valid()) nb::raise_python_error();
    return index;
  });
  c.def("__hash__", [](nb::handle a) { return PyObject_Hash(looked_at(a).ptr()); });
  c.def("__repr__", [](nb::handle a) { return nb::repr(looked_at(a)); });
  c.def("__str__", [](nb::handle a) { return nb::str(looked_at(a)); });
  c.def("__format__", [](nb::handle a, nb::str spec) {
    return nb::steal(PyObject_Format(looked_at(a).ptr(), spec.ptr()));
  });
  c.def("__copy__", [](nb::object a) { return a; });
  c.def("__deepcopy__", [](nb::object a, nb::handle) { return a; });
  c.def("__getattr__", [](nb::handle a, const std::string& name) {
    if (name.starts_with("__")) throw nb::attribute_error(name.c_str());
    return looked_at(a).attr(name.c_str());
  });
}

PyObject* class_of(PyObject* self, void*) {
  const bool whole = !nb::inst_ready(self) || self_of(self).number.kind == Number::Kind::integer;
  return Py_NewRef(reinterpret_cast<PyObject*>(whole ? &PyLong_Type : &PyFloat_Type));
}

PyGetSetDef members[] = {{"__class__", class_of, nullptr, nullptr, nullptr},
                         {nullptr, nullptr, nullptr, nullptr, nullptr}};
PyType_Slot slots[] = {{Py_tp_getset, members}, {0, nullptr}};

}  // namespace

TraceNumbers::TraceNumbers(const std::shared_ptr<Symbols>& symbols)
    : before_(std::exchange(active, symbols)), scope_(*symbols) {}
TraceNumbers::~TraceNumbers() { active = std::move(before_); }

bool is_traced_number(nb::handle object) {
  static auto* const type = reinterpret_cast<PyTypeObject*>(nb::type<TracedNumber>().ptr());
  return PyObject_TypeCheck(object.ptr(), type) != 0;
}

Number traced_number(nb::handle object) {
  const TracedNumber& self = self_of(object);
  Number n = self.number;
  if (self.symbols != active) n.expr = 0;
  return n;
}

Number traced_number_of(const Symbols& symbols, nb::handle object) {
  const TracedNumber& self = self_of(object);
  Number n = self.number;
  if (self.symbols.get() != &symbols) n.expr = 0;
  return n;
}

nb::object plain_number(const Number& n) {
  if (n.kind == Number::Kind::floating) return nb::float_(n.real_imag.real());
  return nb::steal(PyLong_FromLongLong(n.integer));
}

nb::object traced_number_object(const Number& n) {
  return n.expr != 0 && active ? nb::cast(TracedNumber{active, n}) : plain_number(n);
}

void init_compile_number(nb::module_& m) {
  Class c(m, "_TracedNumber", nb::type_slots(slots),
          "A size or scalar in a trace; it passes for an int or float.");
  def_operators(c);
  def_conversions(c);
}

}  // namespace cermet::python
