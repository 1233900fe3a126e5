// SPDX-License-Identifier: MIT
// custom_function, checkpoint and depends. A custom function's own derivatives and batching get and give
// trees like its arguments and results. What is kept of a call for them are trees without arrays: a
// handle would keep data that nothing else needs.
#include "bind.h"
#include "compile_inputs.h"
#include "foreign.h"

namespace cermet::python {

namespace {

constexpr const char* kOp = "custom_function";

// --- trees with holes for their arrays ---

nb::handle hole() {
  static PyObject* object = nb::module_::import_("builtins").attr("object")().release().ptr();
  return object;
}

nb::object without_arrays(nb::handle tree) {
  return tree_map(kOp, tree, [](nb::handle leaf) {
    return is_array(leaf) ? nb::borrow(hole()) : nb::borrow(leaf);
  });
}

// Objects in place of the holes, in order.
template <typename Next>
nb::object fill(nb::handle tree, Next&& next) {
  return tree_map(kOp, tree,
                  [&](nb::handle leaf) { return leaf.is(hole()) ? next() : nb::borrow(leaf); });
}

nb::object fill(nb::handle tree, const Arrays& arrays) {
  size_t i = 0;
  return fill(tree, [&] { return nb::cast(arrays[i++]); });
}

// The same, and None in place of all that is no array: it has no tangent and no axis.
template <typename Next>
nb::object fill_alone(nb::handle tree, Next&& next) {
  return tree_map(kOp, tree,
                  [&](nb::handle leaf) { return leaf.is(hole()) ? next() : nb::none(); });
}

size_t count_holes(nb::handle tree) {
  size_t count = 0;
  tree_visit(kOp, tree, [&](nb::handle leaf) { count += leaf.is(hole()) ? 1 : 0; });
  return count;
}

bool is_sequence(nb::handle object) {
  return PyTuple_Check(object.ptr()) || PyList_Check(object.ptr());
}

// What a rule gave, read as a tree with these holes: an array or None for each.
using Parts = std::vector<std::optional<array>>;
void match(const char* rule, nb::handle holes, nb::handle given, Parts& to) {
  const size_t count = count_holes(holes);
  if (count == 0) return;
  if (given.is_none()) return to.resize(to.size() + count), void();
  if (holes.is(hole())) {
    CERMET_CHECK(is_array(given) || is_scalar(given), type, kOp,
                 "the {} gives {} where an array belongs; give arrays, or None for no derivative",
                 rule, type_of(given));
    to.emplace_back(to_array(given));
    return;
  }
  if (PyDict_Check(holes.ptr())) {
    CERMET_CHECK(PyDict_Check(given.ptr()), type, kOp,
                 "the {} gives {} where a dict belongs; give one with the same keys", rule,
                 type_of(given));
    for (auto [key, value] : nb::borrow<nb::dict>(holes)) {
      PyObject* item = PyDict_GetItem(given.ptr(), key.ptr());
      match(rule, value, item == nullptr ? nb::none() : nb::borrow(item), to);
    }
    return;
  }
  CERMET_CHECK(is_sequence(given) && nb::len(given) == nb::len(holes), value, kOp,
               "the {} gives {} where {} values belong; give one for each (None for no derivative)",
               rule, is_sequence(given) ? fmt::format("{} values", nb::len(given)) : "one",
               nb::len(holes));
  for (size_t i = 0; i < nb::len(holes); i++) match(rule, holes[i], given[i], to);
}

// --- a call and its rules ---

// One positional argument stands for itself, several are a tuple.
nb::object alone(const nb::object& args) { return nb::len(args) == 1 ? args[0] : args; }

enum Slot : Py_ssize_t { kVjp, kJvp, kVmap, kArguments, kKeywords, kResults };

struct CallTrees {
  std::shared_ptr<void> objects;  // a tuple by Slot; any thread may drop it
  std::vector<NodeRef> keyword_arrays;

  nb::object object(Slot i) const {
    return nb::borrow(PyTuple_GET_ITEM(static_cast<PyObject*>(objects.get()), i));
  }
  nb::dict keywords() const {
    size_t i = 0;
    return nb::borrow<nb::dict>(
        fill(object(kKeywords), [&] { return nb::cast(array(keyword_arrays[i++])); }));
  }
};
using Trees = std::shared_ptr<CallTrees>;

Arrays or_zeros(const Parts& parts, const Arrays& like) {
  Arrays arrays;
  for (size_t i = 0; i < parts.size(); i++)
    arrays.push_back(parts[i] ? *parts[i] : zeros_like(like[i]));
  return arrays;
}

Arrays call_vjp(const CallTrees& trees, const Arrays& primals, const Arrays& cotangents,
                const Arrays& outputs) {
  const nb::gil_scoped_acquire gil;
  const nb::object arguments = trees.object(kArguments), results = trees.object(kResults);
  nb::object given = trees.object(kVjp)(alone(fill(arguments, primals)), fill(results, cotangents),
                                        fill(results, outputs), **trees.keywords());
  if (nb::len(arguments) == 1 && arguments[0].is(hole()) && is_sequence(given) &&
      nb::len(given) == 1)
    given = given[0];
  Parts parts;
  match("vjp", alone(arguments), given, parts);
  return or_zeros(parts, primals);
}

Arrays call_jvp(const CallTrees& trees, const Arrays& primals, const Arrays& tangents,
                const std::vector<int>& numbers) {
  const nb::gil_scoped_acquire gil;
  const nb::object arguments = trees.object(kArguments);
  std::vector<nb::object> of_each(primals.size(), nb::none());
  for (size_t i = 0; i < numbers.size(); i++)
    of_each[static_cast<size_t>(numbers[i])] = nb::cast(tangents[i]);
  size_t next = 0;
  const nb::object filled = fill_alone(arguments, [&] { return of_each[next++]; });
  const nb::object given =
      trees.object(kJvp)(alone(fill(arguments, primals)), alone(filled), **trees.keywords());
  Parts parts;
  match("jvp", trees.object(kResults), given, parts);
  Arrays results;
  for (std::optional<array>& part : parts) {
    CERMET_CHECK(part.has_value(), value, kOp,
                 "the jvp gives None for an output; give a tangent for each");
    results.push_back(*part);
  }
  return results;
}

std::pair<Arrays, std::vector<int>> call_rule_vmap(const CallTrees& trees, const Arrays& inputs,
                                                   const std::vector<int>& axes) {
  const nb::gil_scoped_acquire gil;
  const nb::object arguments = trees.object(kArguments);
  size_t next = 0;
  const nb::object filled = fill_alone(arguments, [&] {
    const int axis = axes[next++];
    return axis < 0 ? nb::none() : nb::cast(axis);
  });
  const nb::object given =
      trees.object(kVmap)(alone(fill(arguments, inputs)), alone(filled), **trees.keywords());
  CERMET_CHECK(is_sequence(given) && nb::len(given) == 2, type, kOp,
               "the vmap gives {}; it must give (outputs, axes)", type_of(given));
  std::vector<int> out_axes;
  leaf_axes(kOp, given[0], given[1], out_axes);
  return {tree_arrays(kOp, given[0]), out_axes};
}

struct CustomFunction {
  nb::object fun, vjp, jvp, vmap;
};

OwnRules rules_of(const CustomFunction& f, const Trees& trees) {
  OwnRules rules;
  if (f.vjp.is_valid())
    rules.vjp = [trees](const Arrays& primals, const Arrays& cotangents, const Arrays& outputs) {
      return call_vjp(*trees, primals, cotangents, outputs);
    };
  if (f.jvp.is_valid())
    rules.jvp = [trees](const Arrays& primals, const Arrays& tangents,
                        const std::vector<int>& numbers) {
      return call_jvp(*trees, primals, tangents, numbers);
    };
  if (f.vmap.is_valid())
    rules.vmap = [trees](const Arrays& inputs, const std::vector<int>& axes) {
      return call_rule_vmap(*trees, inputs, axes);
    };
  return rules;
}

// The value with its arrays replaced, or itself when none was.
nb::object with_results(const nb::object& value, const Arrays& before, const Arrays& after) {
  bool same = true;
  for (size_t i = 0; i < before.size(); i++) same &= before[i].node() == after[i].node();
  return same ? value : fill(without_arrays(value), after);
}

nb::object call(const CustomFunction& f, nb::args args, nb::kwargs kwargs) {
  if (!f.vjp.is_valid() && !f.jvp.is_valid() && !f.vmap.is_valid()) return f.fun(*args, **kwargs);
  const auto trees = std::make_shared<CallTrees>();
  nb::object value;
  Arrays given;
  const auto run = [&] {
    value = f.fun(*args, **kwargs);
    given = tree_arrays(kOp, value);
    const auto rule = [](const nb::object& o) { return o.is_valid() ? o : nb::none(); };
    trees->objects =
        keep_alive(nb::make_tuple(rule(f.vjp), rule(f.jvp), rule(f.vmap), without_arrays(args),
                                  without_arrays(kwargs), without_arrays(value)));
    for (const array& a : tree_arrays(kOp, kwargs)) trees->keyword_arrays.push_back(a.node());
    return given;
  };
  const Arrays results = call_custom(run, tree_arrays(kOp, args), rules_of(f, trees));
  return with_results(value, given, results);
}

int traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  if (!nb::inst_ready(self)) return 0;
  const auto* f = nb::inst_ptr<CustomFunction>(self);
  Py_VISIT(f->fun.ptr());
  Py_VISIT(f->vjp.ptr());
  Py_VISIT(f->jvp.ptr());
  Py_VISIT(f->vmap.ptr());
  return 0;
}

int clear(PyObject* self) {
  if (!nb::inst_ready(self)) return 0;
  auto* f = nb::inst_ptr<CustomFunction>(self);
  f->fun.reset();
  f->vjp.reset();
  f->jvp.reset();
  f->vmap.reset();
  return 0;
}

PyType_Slot slots[] = {{Py_tp_traverse, reinterpret_cast<void*>(traverse)},
                       {Py_tp_clear, reinterpret_cast<void*>(clear)},
                       {0, nullptr}};

void check_callable(const char* op, nb::handle f) {
  CERMET_CHECK(PyCallable_Check(f.ptr()), type, op, "{} was given; it must be callable",
               type_of(f));
}

// Decorators: they set a rule and give the function.
template <nb::object CustomFunction::* rule>
nb::object set_rule(nb::object self, nb::object f) {
  check_callable(kOp, f);
  nb::inst_ptr<CustomFunction>(self)->*rule = std::move(f);
  return self;
}

Arrays arrays_in(nb::handle object) {
  if (is_array(object)) return {array_of(object)};
  CERMET_CHECK(is_sequence(object), type, "depends",
               "{} was given; give an array or a sequence of arrays", type_of(object));
  Arrays arrays;
  for (nb::handle item : items_of("depends", "an argument", object)) {
    CERMET_CHECK(is_array(item), type, "depends", "a sequence holds {}; give arrays",
                 type_of(item));
    arrays.push_back(array_of(item));
  }
  return arrays;
}

}  // namespace

nb::object call_checkpointed(nb::handle fun, nb::args args, nb::kwargs kwargs) {
  nb::object value;
  Arrays given;
  const Arrays results = checkpointed([&] {
    value = OwnArguments(args, kwargs).call(nb::borrow(fun));
    return given = tree_arrays("checkpoint", value);
  });
  return with_results(value, given, results);
}

void init_custom(nb::module_& m) {
  nb::class_<CustomFunction>(m, "custom_function", nb::type_slots(slots), nb::dynamic_attr(),
                             "A function with derivatives and batching of its own: decorate rules "
                             "with .vjp, .jvp and .vmap; what has none goes through the function.")
      .def(
          "__init__",
          [](CustomFunction* self, nb::object f) {
            check_callable(kOp, f);
            new (self) CustomFunction{std::move(f), {}, {}, {}};
          },
          nb::arg("f"))
      .def("__call__", &call)
      .def_prop_ro("__wrapped__", [](const CustomFunction& f) { return f.fun; })
      .def("vjp", &set_rule<&CustomFunction::vjp>, nb::arg("f"),
           "f(primals, cotangents, outputs) gives a cotangent for each argument.")
      .def("jvp", &set_rule<&CustomFunction::jvp>, nb::arg("f"),
           "f(primals, tangents) gives a tangent for each output; a tangent may be None.")
      .def("vmap", &set_rule<&CustomFunction::vmap>, nb::arg("f"),
           "f(inputs, axes) gives (outputs, axes); an axis of None: not batched.");
  m.def(
      "depends",
      [](nb::handle inputs, nb::handle dependencies) -> nb::object {
        const Arrays results = depends(arrays_in(inputs), arrays_in(dependencies));
        if (is_array(inputs)) return nb::cast(results[0]);
        nb::list list;
        for (const array& a : results) list.append(nb::cast(a));
        return list;
      },
      nb::arg("inputs"), nb::arg("dependencies"),
      "The inputs, computed on from after the dependencies.");
}

}  // namespace cermet::python
