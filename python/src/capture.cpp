// SPDX-License-Identifier: MIT
#include "capture.h"

#include <structmember.h>

#include <bit>
#include <set>
#include <unordered_map>

#include "capture_code.h"
#include "compile_number.h"

namespace cermet::python {

namespace {

// Tells one kind of thing from another in a key.
enum Mark : uint64_t { kArray = 1, kKnown, kObject, kFunction, kKey };

// A number over a constant's type and value; equal values of one type agree, others differ.
uint64_t constant_value(PyObject* p) {
  if (is_traced_number(p)) {
    Number n = traced_number(p);
    n.expr = 0;
    return constant_value(plain_number(n).ptr());
  }
  uint64_t value = reinterpret_cast<uintptr_t>(Py_TYPE(p));
  auto mix = [&](uint64_t part) {
    value = (value ^ part) * 0x9e3779b97f4a7c15u, value ^= value >> 29;
  };
  int overflow = 0;
  if (PyLong_Check(p) &&
      (mix(static_cast<uint64_t>(PyLong_AsLongLongAndOverflow(p, &overflow))), overflow == 0))
    return value;
  if (PyFloat_Check(p)) return mix(std::bit_cast<uint64_t>(PyFloat_AS_DOUBLE(p))), value;
  if (PyComplex_Check(p)) {
    const Py_complex c = PyComplex_AsCComplex(p);
    return mix(std::bit_cast<uint64_t>(c.real)), mix(std::bit_cast<uint64_t>(c.imag)), value;
  }
  if (PyTuple_Check(p)) {
    const RecursionLevel level("compile");
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(p); i++)
      mix(constant_value(PyTuple_GET_ITEM(p, i)));
    return value;
  }
  if (PyAnySet_Check(p)) {
    uint64_t sum = 0;
    for (nb::handle item : nb::borrow<nb::iterable>(p)) sum += constant_value(item.ptr());
    return mix(sum), value;
  }
  return mix(static_cast<uint64_t>(PyObject_Hash(p))), value;
}

bool is_plain_constant(PyObject* p) {
  return p == Py_None || PyBool_Check(p) || PyLong_Check(p) || PyFloat_Check(p) ||
         PyUnicode_Check(p) || PyBytes_Check(p) || PyComplex_Check(p) ||
         nb::isinstance<PyDtype>(nb::handle(p)) || is_traced_number(p);
}

bool is_constant(PyObject* p) {
  if (is_plain_constant(p)) return true;
  if (PyAnySet_Check(p)) {
    for (nb::handle item : nb::borrow<nb::iterable>(p))
      if (!is_plain_constant(item.ptr())) return false;
    return true;
  }
  if (!PyTuple_CheckExact(p)) return false;
  const RecursionLevel level("compile");
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(p); i++)
    if (!is_constant(PyTuple_GET_ITEM(p, i))) return false;
  return true;
}

// Modules, classes and built-in functions hold no state of the caller's.
bool is_opaque(PyObject* p) {
  return PyModule_Check(p) || PyType_Check(p) || PyCFunction_Check(p) || PyGen_Check(p);
}

// Whether a module is the user's: code and objects of this package and of the standard library hold no
// state of the traced function's.
bool is_users_module(PyObject* name) {
  static auto* known = new std::unordered_map<PyObject*, bool>;
  auto [it, fresh] = known->try_emplace(name, false);
  if (!fresh) return it->second;
  Py_INCREF(name);  // few, and their addresses stay taken
  if (!PyUnicode_Check(name)) return false;
  const std::string text = nb::cast<std::string>(nb::handle(name));
  const nb::str top(text.substr(0, text.find('.')).c_str());
  const bool standard = nb::cast<bool>(
      nb::module_::import_("sys").attr("stdlib_module_names").attr("__contains__")(top));
  it->second = text == "__main__" ||
               (!standard && nb::cast<std::string>(top) != "cermet" && text != "nanobind");
  return it->second;
}

// Of a class, which keeps it; null if it has none. From Python 3.12 on that of a built-in one is elsewhere.
PyObject* dict_of(PyTypeObject* type) {
#if PY_VERSION_HEX >= 0x030C0000
  PyObject* dict = PyType_GetDict(type);
  Py_XDECREF(dict);
  return dict;
#else
  return type->tp_dict;
#endif
}

PyObject* module_of(PyTypeObject* type) {
  if ((type->tp_flags & Py_TPFLAGS_HEAPTYPE) == 0 || dict_of(type) == nullptr) return nullptr;
  static PyObject* name = PyUnicode_InternFromString("__module__");
  return PyDict_GetItem(dict_of(type), name);
}

bool is_users_class(PyTypeObject* type) {
  PyObject* module = module_of(type);
  return module != nullptr && is_users_module(module);
}

// Of the program itself: the names in installed libraries are not looked at, as they lead to all of them.
bool is_installed(PyObject* module_name) {
  static auto* known = new std::unordered_map<PyObject*, bool>;
  const auto [it, fresh] = known->try_emplace(module_name, false);
  if (!fresh) return it->second;
  Py_INCREF(module_name);  // few, and their addresses stay taken
  PyObject* module = PyDict_GetItem(PyImport_GetModuleDict(), module_name);
  if (module == nullptr) return false;
  const nb::object file = nb::getattr(nb::handle(module), "__file__", nb::none());
  if (!nb::isinstance<nb::str>(file)) return false;
  const std::string path = nb::cast<std::string>(file);
  return it->second = path.find("/site-packages/") != std::string::npos ||
                      path.find("/dist-packages/") != std::string::npos;
}

bool is_users_function(PyObject* f) {
  PyObject* module = reinterpret_cast<PyFunctionObject*>(f)->func_module;
  // Without a module's name it was made by exec, in a namespace of the user's.
  return module == nullptr || !PyUnicode_Check(module) || is_users_module(module);
}

// Objects of the standard library that only hold what the user put into them.
bool holds_users_objects(nb::handle object) {
  static const auto* classes = [] {
    auto* list = new std::vector<PyTypeObject*>;
    for (const auto& [module, name] :
         {std::pair("functools", "partial"), std::pair("functools", "cached_property"),
          std::pair("types", "SimpleNamespace"), std::pair("collections", "UserDict"),
          std::pair("collections", "UserList"), std::pair("collections", "ChainMap")})
      list->push_back(reinterpret_cast<PyTypeObject*>(
          nb::object(nb::module_::import_(module).attr(name)).release().ptr()));
    return list;
  }();
  PyTypeObject* type = Py_TYPE(object.ptr());
  return std::any_of(classes->begin(), classes->end(),
                     [&](PyTypeObject* c) { return PyType_IsSubtype(type, c) != 0; });
}

// Values of the user's own kinds of lists, numbers and strings have attributes besides.
bool may_have_attributes(PyObject* p) { return Py_TYPE(p)->tp_dictoffset != 0; }

// The function in a static or class method or a property; null: it is none of them.
nb::object wrapped_function(PyObject* p) {
  const bool is_method = PyObject_TypeCheck(p, &PyStaticMethod_Type) != 0 ||
                         PyObject_TypeCheck(p, &PyClassMethod_Type) != 0;
  if (is_method) return nb::object(nb::handle(p).attr("__func__"));
  if (PyObject_TypeCheck(p, &PyProperty_Type) != 0) return nb::object(nb::handle(p).attr("fget"));
  return nb::object();
}

class Walker {
 public:
  Walker(bool containers, Snapshot* snapshot) : containers_(containers), snapshot_(snapshot) {}
  Captured take() { return std::move(found_); }

  void visit(nb::handle object, Place::Kind kind, nb::handle container, nb::handle key,
             uint64_t key_hash) {
    PyObject* p = object.ptr();
    if (is_array(object)) return add_array(object, kind, container, key, key_hash);
    if (is_traced_number(object) && kind != Place::Kind::none && traced_number(object).expr != 0)
      return found_.numbers.push_back({kind, nb::borrow(container), nb::borrow(key)});
    if (is_constant(p)) {
      if (PyAnySet_Check(p)) found_.checks.give_up();
      found_.constants.push_back(
          {{kind, nb::borrow(container), nb::borrow(key)}, key_hash, nb::borrow(object)});
      if (may_have_attributes(p) && seen_.try_emplace(p, seen_.size()).second) attributes(object);
      return;
    }
    add(kKey, key_hash);
    if (is_opaque(p)) {
      identify(object);
      auto* type = reinterpret_cast<PyTypeObject*>(p);
      if (PyType_Check(p) && is_users_class(type) && !is_installed(module_of(type)))
        class_attributes(type);
      return;
    }
    if (containers_ && kind != Place::Kind::none && is_container(object))
      found_.containers.push_back(
          {{kind, nb::borrow(container), nb::borrow(key)}, nb::borrow(object)});
    auto [it, fresh] = seen_.try_emplace(p, seen_.size());
    if (!fresh) return add(kKnown, it->second);
    add(kObject, reinterpret_cast<uintptr_t>(Py_TYPE(p)));
    enter(object);
  }

  void visit_root(nb::handle object) { visit(object, Place::Kind::none, object, nb::none(), 0); }

  void visit_argument(nb::handle object) {
    argument_ = true;
    visit_root(object);
    argument_ = false;
  }

 private:
  void add(uint64_t mark, uint64_t value) {
    found_.structure.add(mark);
    found_.structure.add(value);
  }

  void add_array(nb::handle object, Place::Kind kind, nb::handle container, nb::handle key,
                 uint64_t key_hash) {
    auto [it, fresh] = slot_of_.try_emplace(object.ptr(), found_.holders.size());
    if (fresh) found_.holders.push_back(nb::borrow(object));
    add(kKey, key_hash);
    add(kArray, it->second);
    found_.places.push_back({{kind, nb::borrow(container), nb::borrow(key)}, it->second});
  }

  void enter(nb::handle object) {
    const RecursionLevel level("compile");
    const nb::object kept = nb::borrow(object);  // a hash of the user's may drop it
    PyObject* p = object.ptr();
    if (PyDict_Check(p)) {
      dict(object, Place::Kind::item, object);
      if (!PyDict_CheckExact(p)) attributes(object);
    } else if (PyList_Check(p)) {
      list(object);
      if (!PyList_CheckExact(p)) attributes(object);
    } else if (PyTuple_Check(p)) {
      for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(p); i++) item(PyTuple_GET_ITEM(p, i), object, i);
      if (!PyTuple_CheckExact(p)) attributes(object);
    } else if (PyWeakref_Check(p)) {
      weak(object);
    } else if (Py_TYPE(p) == &PyDictProxy_Type) {
      view(object);
    } else if (const nb::object inner = wrapped_function(p); inner.is_valid()) {
      inside(inner, object, 0);
    } else if (PyFunction_Check(p)) {
      function(object);
    } else if (PyMethod_Check(p)) {
      inside(PyMethod_GET_SELF(p), object, 0);
      inside(PyMethod_GET_FUNCTION(p), object, 1);
    } else if (PyCell_Check(p)) {
      if (snapshot_ != nullptr) snapshot_->keep(object);
      found_.checks.cell(p);
      if (PyObject* content = PyCell_GET(p))
        visit(content, Place::Kind::cell, object, nb::none(), cell_name_);
    } else {
      instance(object);
    }
  }

  // A part that cannot be replaced.
  void inside(nb::handle part, nb::handle whole, int64_t position) {
    visit(part, Place::Kind::none, whole, nb::none(), static_cast<uint64_t>(position));
  }

  // Of a list or tuple. Keys are made where something may be written.
  void item(nb::handle part, nb::handle whole, Py_ssize_t position) {
    PyObject* p = part.ptr();
    const bool fixed = PyTuple_Check(whole.ptr());
    const bool moves = is_array(part) || (containers_ && is_container(part));
    const bool counts = PyLong_Check(p) || PyFloat_Check(p) || is_traced_number(part);
    if (fixed && !moves) return inside(part, whole, position);
    visit(part, fixed ? Place::Kind::in_tuple : Place::Kind::item, whole,
          moves || counts ? nb::object(nb::int_(position)) : nb::none(),
          static_cast<uint64_t>(position));
  }

  // Constants and numbers are named by the dict itself, so that they can be read and written as they are.
  void dict(nb::handle d, Place::Kind kind, nb::handle owner) {
    if (snapshot_ != nullptr) snapshot_->keep(d);
    found_.checks.dict(d.ptr());
    PyObject *key, *value;
    Py_ssize_t position = 0;
    while (PyDict_Next(d.ptr(), &position, &key, &value)) {
      const bool parts = is_array(value) || !(is_constant(value) || is_traced_number(value));
      visit(value, parts ? kind : Place::Kind::item, parts ? owner : d, key,
            static_cast<uint64_t>(PyObject_Hash(key)));
    }
  }

  void list(nb::handle l) {
    if (snapshot_ != nullptr) snapshot_->keep(l);
    found_.checks.list(l.ptr());
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(l.ptr()); i++)
      item(PyList_GET_ITEM(l.ptr(), i), l, i);
  }

  void weak(nb::handle reference) {
    PyObject* object = PyWeakref_GET_OBJECT(reference.ptr());
    found_.checks.weak(reference.ptr(), object);
    inside(object, reference, 0);
  }

  void view(nb::handle mapping) {
    found_.checks.give_up();
    const nb::object items = nb::steal(PyMapping_Items(mapping.ptr()));
    if (!items.is_valid()) nb::raise_python_error();
    for (nb::handle item : nb::borrow<nb::list>(items))
      inside(nb::object(item[1]), mapping, PyObject_Hash(nb::object(item[0]).ptr()));
  }

  void instance(nb::handle object) {
    const bool users = is_users_class(Py_TYPE(object.ptr())), own = is_own(object);
    const bool holder = users || own || holds_users_objects(object);
    if (PyObject_IsInstance(object.ptr(), deque_class()) == 1) return items(object);
    const bool argument = std::exchange(argument_, argument_ && !holder);  // its parts are state
    const bool has_slots = users && slots(object);
    if (const nb::object d = attribute_dict(object); !d.is_valid()) {
      if (has_slots) {
        // They are its parts.
      } else if (argument_) {
        hash(object);
      } else if (!users) {
        identify(object);
      }
    } else if (!holder) {
      identify(object);
    } else {
      found_.checks.attributes(object.ptr(), d.ptr());
      dict(d, Place::Kind::attribute, object);
    }
    argument_ = argument;
    if (!holder) return;
    for (const char* part :
         {"__wrapped__", "func", "args", "keywords"}) {  // of transforms and partials
      if (!users && PyDict_GetItemString(dict_of(Py_TYPE(object.ptr())), part) != nullptr)
        inside(nb::object(object.attr(part)), object, part[0] + part[1]);
    }
    if (users) class_attributes(Py_TYPE(object.ptr()));
  }

  static PyObject* deque_class() {
    static PyObject* deque = nb::module_::import_("collections").attr("deque").inc_ref().ptr();
    return deque;
  }

  void items(nb::handle sequence) {
    found_.checks.give_up();
    const Py_ssize_t n = PySequence_Size(sequence.ptr());
    for (Py_ssize_t i = 0; i < n; i++) {
      const nb::object item = nb::steal(PySequence_GetItem(sequence.ptr(), i));
      visit(item, is_array(item) ? Place::Kind::item : Place::Kind::none, sequence, nb::int_(i),
            static_cast<uint64_t>(i));
    }
  }

  // What values of the user's classes hold besides what they are.
  void attributes(nb::handle object) {
    const bool argument = std::exchange(argument_, false);
    if (is_users_class(Py_TYPE(object.ptr()))) slots(object);
    if (const nb::object d = attribute_dict(object); d.is_valid()) {
      found_.checks.attributes(object.ptr(), d.ptr());
      dict(d, Place::Kind::attribute, object);
    }
    if (is_users_class(Py_TYPE(object.ptr()))) class_attributes(Py_TYPE(object.ptr()));
    argument_ = argument;
  }

  // The instance's own dict, if it has one.
  static nb::object attribute_dict(nb::handle object) {
    nb::object d = nb::steal(PyObject_GenericGetDict(object.ptr(), nullptr));
    if (!d.is_valid()) PyErr_Clear();
    return d;
  }

  // Attributes in __slots__, by the descriptors that these have left in the classes; false when there
  // are none.
  bool slots(nb::handle object) {
    static PyObject* slots_name = PyUnicode_InternFromString("__slots__");
    bool any = false;
    PyObject* bases = Py_TYPE(object.ptr())->tp_mro;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(bases); i++) {
      auto* base = reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(bases, i));
      PyObject* dict = dict_of(base);
      if (dict == nullptr || PyDict_GetItem(dict, slots_name) == nullptr) continue;
      PyObject *name, *value;
      Py_ssize_t position = 0;
      while (PyDict_Next(dict, &position, &name, &value))
        if (Py_TYPE(value) == &PyMemberDescr_Type) any |= slot(object, name, value);
    }
    return any;
  }

  bool slot(nb::handle object, nb::handle name, PyObject* descriptor) {
    const PyMemberDef* member = reinterpret_cast<PyMemberDescrObject*>(descriptor)->d_member;
    if (member->type != T_OBJECT_EX) return false;
    PyObject* value = found_.checks.slot(object.ptr(), member->offset);
    if (value != nullptr)
      visit(value, Place::Kind::attribute, object, name,
            static_cast<uint64_t>(PyObject_Hash(name.ptr())));
    return true;
  }

  // Objects of this package: transformed functions, Modules, optimizers.
  static bool is_own(nb::handle object) {
    static PyObject* name = PyUnicode_InternFromString("__module__");
    PyTypeObject* type = Py_TYPE(object.ptr());
    PyObject* module = dict_of(type) == nullptr ? nullptr : PyDict_GetItem(dict_of(type), name);
    if (module == nullptr || !PyUnicode_Check(module)) return false;
    return std::string_view(PyUnicode_AsUTF8(module)).starts_with("cermet");
  }

  // Of a class: what its methods reach, and what stands in it for all its objects.
  void class_attributes(PyTypeObject* type) {
    if (!seen_.try_emplace(reinterpret_cast<PyObject*>(type), seen_.size()).second) return;
    if (is_users_class(Py_TYPE(type))) class_attributes(Py_TYPE(type));
    PyObject* bases = type->tp_mro;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(bases); i++) {
      auto* base = reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(bases, i));
      if (!is_users_class(base)) continue;
      const bool installed = is_installed(module_of(base));
      found_.checks.dict(dict_of(base));
      PyObject *key, *value;
      Py_ssize_t position = 0;
      while (PyDict_Next(dict_of(base), &position, &key, &value)) {
        const char* name = PyUnicode_Check(key) ? PyUnicode_AsUTF8(key) : nullptr;
        if (name == nullptr) PyErr_Clear();  // not valid UTF-8
        const bool language = name != nullptr && std::string_view(name).starts_with("__");
        const nb::handle owner(reinterpret_cast<PyObject*>(base));
        if (PyFunction_Check(value) || is_array(value)) {
          visit(value, Place::Kind::attribute, owner, key,
                static_cast<uint64_t>(PyObject_Hash(key)));
        } else if (!language && !installed) {  // numbers of a class are not open
          inside(value, owner, position);
        }
      }
    }
  }

  // What is not looked into is another when it is another object.
  void identify(nb::handle object) {
    add(kObject, reinterpret_cast<uintptr_t>(object.ptr()));
    found_.identified.push_back(nb::borrow(object));
  }

  // An argument without parts counts by its hash.
  void hash(nb::handle object) {
    const Py_hash_t value = PyObject_Hash(object.ptr());
    if (value == -1 && PyErr_Occurred() != nullptr) {
      PyErr_Clear();
      if (found_.refused) return;
      found_.refused = true;
      found_.refused_type = nb::borrow(object.type());
      return;
    }
    add(kObject, static_cast<uint64_t>(value));
    found_.identified.push_back(nb::borrow(object));
  }

  // Closure cells, defaults, and the globals that its code names.
  void function(nb::handle f) {
    found_.checks.function(f.ptr());
    add(kFunction, reinterpret_cast<uintptr_t>(PyFunction_GET_CODE(f.ptr())));
    if (snapshot_ != nullptr && is_users_function(f.ptr()))
      read_code(f, facts_of(PyFunction_GET_CODE(f.ptr())));
    if (PyObject* cells = PyFunction_GET_CLOSURE(f.ptr())) closure(f, cells);
    if (PyObject* defaults = PyFunction_GET_DEFAULTS(f.ptr())) inside(defaults, f, 1);
    if (PyObject* kwdefaults = PyFunction_GET_KW_DEFAULTS(f.ptr())) inside(kwdefaults, f, 2);
    if (!is_users_function(f.ptr())) return;
    PyObject* d = reinterpret_cast<PyFunctionObject*>(f.ptr())->func_dict;
    found_.checks.attributes(f.ptr(), d);
    if (d != nullptr) dict(d, Place::Kind::attribute, f);
    globals_of(PyFunction_GET_CODE(f.ptr()), PyFunction_GET_GLOBALS(f.ptr()));
    imports_of(facts_of(PyFunction_GET_CODE(f.ptr())), PyFunction_GET_CODE(f.ptr()),
               PyFunction_GET_GLOBALS(f.ptr()));
  }

  // What the code imports when it runs, once that is there.
  void imports_of(const CodeFacts& facts, PyObject* code, PyObject* globals) {
    const auto look_into = [&](nb::handle name) {
      PyObject* module = PyDict_GetItem(PyImport_GetModuleDict(), name.ptr());
      if (module != nullptr && PyModule_Check(module)) names_in_module(code, module);
    };
    found_.checks.globals(PyImport_GetModuleDict(), facts.imports.ptr());
    for (nb::handle name : nb::borrow<nb::tuple>(facts.imports)) look_into(name);
    for (const CodeFacts::Import& import : facts.relative_imports) {
      found_.checks.give_up();
      if (const nb::object name = absolute_name(import, globals); name.is_valid()) look_into(name);
    }
    for (const CodeFacts* inner : facts.inner) imports_of(*inner, code, globals);
  }

  static nb::object absolute_name(const CodeFacts::Import& import, PyObject* globals) {
    static PyObject* key = PyUnicode_InternFromString("__package__");
    PyObject* package = PyDict_GetItem(globals, key);
    if (package == nullptr || !PyUnicode_Check(package)) return {};
    std::string path = nb::cast<std::string>(nb::handle(package));
    for (int up = 1; up < import.level; up++) path.erase(std::min(path.rfind('.'), path.size()));
    const std::string name = nb::cast<std::string>(import.name);
    return nb::str((name.empty() ? path : path + "." + name).c_str());
  }

  void closure(nb::handle f, nb::handle cells) {
    const nb::object names = free_names(f);
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(cells.ptr()); i++) {
      cell_name_ = static_cast<uint64_t>(PyObject_Hash(PyTuple_GET_ITEM(names.ptr(), i)));
      inside(PyTuple_GET_ITEM(cells.ptr(), i), f, i);
    }
  }

  static nb::object free_names(nb::handle f) {
    return nb::steal(
        PyCode_GetFreevars(reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(f.ptr()))));
  }

  void read_code(nb::handle f, const CodeFacts& facts) {
    snapshot_->stored.insert(facts.stored.begin(), facts.stored.end());
    for (const nb::object& name : facts.appended)
      if (PyObject* object = variable(f, name)) snapshot_->appended.insert(object);
    for (const nb::object& name : facts.read)
      if (PyObject* object = variable(f, name)) snapshot_->read.insert(object);
    for (const CodeFacts* inner : facts.inner) read_code(f, *inner);
  }

  // What a name stands for in a function or in those made in it.
  static PyObject* variable(nb::handle f, nb::handle name) {
    const nb::object names = free_names(f);
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(names.ptr()); i++) {
      if (PyObject_RichCompareBool(PyTuple_GET_ITEM(names.ptr(), i), name.ptr(), Py_EQ) == 1)
        return PyCell_GET(PyTuple_GET_ITEM(PyFunction_GET_CLOSURE(f.ptr()), i));
    }
    return PyDict_GetItem(PyFunction_GET_GLOBALS(f.ptr()), name.ptr());
  }

  // Attribute names are among those of the code, as those of globals are.
  void names_in_module(PyObject* code, PyObject* module) {
    const nb::object name = nb::steal(PyModule_GetNameObject(module));
    if (!name.is_valid()) return PyErr_Clear();
    if (is_users_module(name.ptr()) && !is_installed(name.ptr()) &&
        modules_.emplace(code, module).second)
      globals_of(code, PyModule_GetDict(module));
  }

  void globals_of(PyObject* code_object, PyObject* globals) {
    auto* code = reinterpret_cast<PyCodeObject*>(code_object);
    PyObject* names = facts_of(code_object).names.ptr();
    found_.checks.globals(globals, names);
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(names); i++) {
      PyObject* name = PyTuple_GET_ITEM(names, i);
      PyObject* value = PyDict_GetItem(globals, name);
      if (value == nullptr) continue;
      if (snapshot_ != nullptr && !is_opaque(value)) snapshot_->keep_item(globals, name);
      visit(value, Place::Kind::item, globals, name, static_cast<uint64_t>(PyObject_Hash(name)));
      if (PyModule_Check(value)) names_in_module(code_object, value);
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(code->co_consts); i++) {
      PyObject* constant = PyTuple_GET_ITEM(code->co_consts, i);
      if (PyCode_Check(constant)) globals_of(constant, globals);
    }
  }

  Captured found_;
  const bool containers_;
  Snapshot* snapshot_;
  std::unordered_map<PyObject*, size_t> seen_;
  std::unordered_map<PyObject*, size_t> slot_of_;
  std::set<std::pair<PyObject*, PyObject*>> modules_;  // whose names were looked up for a code
  uint64_t cell_name_ = 0;
  bool argument_ = false;
};

bool same_items(nb::handle list, nb::handle copy) {
  const Py_ssize_t n = PyList_GET_SIZE(list.ptr());
  if (n != PyList_GET_SIZE(copy.ptr())) return false;
  for (Py_ssize_t i = 0; i < n; i++)
    if (PyList_GET_ITEM(list.ptr(), i) != PyList_GET_ITEM(copy.ptr(), i)) return false;
  return true;
}

bool same_entries(nb::handle dict, nb::handle copy) {
  if (PyDict_Size(dict.ptr()) != PyDict_Size(copy.ptr())) return false;
  PyObject *key, *value;
  Py_ssize_t position = 0;
  while (PyDict_Next(copy.ptr(), &position, &key, &value))
    if (PyDict_GetItem(dict.ptr(), key) != value) return false;
  return true;
}

void check(int failed) {
  if (failed != 0) throw nb::python_error();
}

}  // namespace

uint64_t key_of_constant(nb::handle constant) { return constant_value(constant.ptr()); }

bool is_key_constant(nb::handle object) { return is_constant(object.ptr()); }

void CaptureKey::add(uint64_t value) {
  lo = (lo ^ value) * 0x9e3779b97f4a7c15u;
  lo ^= lo >> 32;
  hi = (hi + value) * 0xc2b2ae3d27d4eb4fu;
  hi ^= hi >> 29;
}

bool Place::same_as(const Place& other) const {
  return kind == other.kind && container.is(other.container) &&
         (key.is(other.key) || PyObject_RichCompareBool(key.ptr(), other.key.ptr(), Py_EQ) == 1);
}

void Place::put(nb::handle object) const {
  switch (kind) {
    case Kind::item: return check(PyObject_SetItem(container.ptr(), key.ptr(), object.ptr()));
    case Kind::attribute: return check(PyObject_SetAttr(container.ptr(), key.ptr(), object.ptr()));
    case Kind::cell: return check(PyCell_Set(container.ptr(), object.ptr()));
    case Kind::in_tuple: {
      PyObject *p = container.ptr(), **item = &PyTuple_GET_ITEM(p, PyLong_AsSsize_t(key.ptr()));
      Py_XDECREF(std::exchange(*item, object.inc_ref().ptr()));
      if (PyObject_GC_IsTracked(p) == 0) PyObject_GC_Track(p);
      return;
    }
    case Kind::none: return;
  }
}

nb::object Place::get() const {
  PyObject* p = container.ptr();
  if (kind == Kind::cell) return nb::borrow(PyCell_GET(p));
  if (kind == Kind::attribute) {
    nb::object value = nb::steal(PyObject_GetAttr(p, key.ptr()));
    if (!value.is_valid()) PyErr_Clear();
    return value;
  }
  if (PyList_Check(p)) {
    const Py_ssize_t i = PyLong_AsSsize_t(key.ptr());
    return i < PyList_GET_SIZE(p) ? nb::borrow(PyList_GET_ITEM(p, i)) : nb::object();
  }
  return nb::borrow(PyDict_GetItem(p, key.ptr()));
}

std::optional<Number> open_number(nb::handle object) {
  if (PyFloat_CheckExact(object.ptr())) return cermet::number(PyFloat_AS_DOUBLE(object.ptr()));
  if (!PyLong_CheckExact(object.ptr())) return std::nullopt;
  int overflow = 0;
  const long long value = PyLong_AsLongLongAndOverflow(object.ptr(), &overflow);
  return overflow != 0 ? std::nullopt : std::optional(cermet::number(static_cast<int64_t>(value)));
}

void OpenPlaces::add_number(const Captured::Constant& c) {
  if (c.place.kind == Place::Kind::none || PyTuple_Check(c.place.container.ptr())) return;
  if (numbers_.insert({c.place.container.ptr(), c.key}).second) kept_.push_back(c.place.container);
}

void OpenPlaces::add_list(nb::handle list) {
  if (lists_.insert(list.ptr()).second) kept_.push_back(nb::borrow(list));
}

std::optional<Number> OpenPlaces::number(const Captured::Constant& c) const {
  if (numbers_.empty() || !numbers_.contains({c.place.container.ptr(), c.key})) return std::nullopt;
  return open_number(c.object);
}

void OpenPlaces::clear() {
  numbers_.clear();
  lists_.clear();
  kept_.clear();
}

void Snapshot::keep(nb::handle container) {
  PyObject *p = container.ptr(), *copy = nullptr;
  if (PyCell_Check(p)) copy = PyCell_Get(p);
  else if (PyList_Check(p)) copy = PyList_GetSlice(p, 0, PyList_GET_SIZE(p));
  else copy = PyDict_Copy(p);
  contents_.push_back({nb::borrow(container), nb::steal(copy)});
}

void Snapshot::keep_item(nb::handle dict, nb::handle key) {
  items_.push_back(
      {nb::borrow(dict), nb::borrow(key), nb::borrow(PyDict_GetItem(dict.ptr(), key.ptr()))});
}

void Snapshot::restore() const {
  for (const Content& c : contents_) {
    PyObject *p = c.container.ptr(), *copy = c.copy.ptr();
    if (PyCell_Check(p)) {
      check(PyCell_Set(p, copy));
    } else if (PyList_Check(p)) {
      if (!same_items(p, copy)) check(PyList_SetSlice(p, 0, PyList_GET_SIZE(p), copy));
    } else if (!same_entries(p, copy)) {
      PyDict_Clear(p);
      check(PyDict_Update(p, copy));
    }
  }
  for (const Item& item : items_)
    if (PyDict_GetItem(item.dict.ptr(), item.key.ptr()) != item.value.ptr())
      check(PyDict_SetItem(item.dict.ptr(), item.key.ptr(), item.value.ptr()));
}

bool is_container(nb::handle object) {
  PyObject* p = object.ptr();
  if (PyDict_CheckExact(p) || PyList_CheckExact(p) || PyTuple_CheckExact(p)) return true;
  // struct_time and its like hold more than their length says, and count on all of it.
  PyTypeObject* type = Py_TYPE(p);
  return PyTuple_Check(p) && type->tp_dictoffset == 0 &&
         type->tp_basicsize == PyTuple_Type.tp_basicsize &&
         PyObject_HasAttrString(reinterpret_cast<PyObject*>(type), "n_sequence_fields") == 0;
}

nb::object copy_of(nb::handle container) {
  PyObject *p = container.ptr(), *copy = nullptr;
  if (PyDict_Check(p)) {
    copy = PyDict_Copy(p);
  } else if (PyList_Check(p)) {
    copy = PyList_GetSlice(p, 0, PyList_GET_SIZE(p));
  } else {
    const Py_ssize_t n = PyTuple_GET_SIZE(p);
    copy = Py_TYPE(p)->tp_alloc(Py_TYPE(p), n);
    for (Py_ssize_t i = 0; copy != nullptr && i < n; i++)
      PyTuple_SET_ITEM(copy, i, Py_NewRef(PyTuple_GET_ITEM(p, i)));
  }
  if (copy == nullptr) nb::raise_python_error();
  return nb::steal(copy);
}

Captured capture(const std::vector<nb::object>& roots, const std::vector<nb::handle>& arguments,
                 bool containers, Snapshot* snapshot) {
  Walker walker(containers, snapshot);
  for (const nb::object& root : roots) walker.visit_root(root);
  for (nb::handle argument : arguments) walker.visit_argument(argument);
  return walker.take();
}

}  // namespace cermet::python
