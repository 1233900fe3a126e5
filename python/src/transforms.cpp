// SPDX-License-Identifier: MIT
// eval, grad, value_and_grad, vjp, jvp and vmap over trees of Python arguments.
#include "lent_arrays.h"

namespace cermet::python {

namespace {

Arrays sequence_arrays(const char* op, nb::handle object) {
  if (is_array(object)) return {nb::cast<array>(object)};
  Arrays arrays;
  for (nb::handle item : items_of(op, "an argument", object)) {
    CERMET_CHECK(is_array(item), type, op, "{} was given; it must be an array", type_of(item));
    arrays.push_back(nb::cast<array>(item));
  }
  return arrays;
}

nb::tuple to_args(const Arrays& arrays) {
  nb::list list;
  for (const array& a : arrays) list.append(nb::cast(a));
  return nb::tuple(list);
}

nb::list to_pylist(const Arrays& arrays) { return nb::list(to_args(arrays)); }

// The tree, whose arrays were taken by tree_arrays, with these replaced in order.
nb::object with_arrays(nb::handle tree, const Arrays& arrays, size_t& next) {
  return tree_map("tree", tree, [&](nb::handle leaf) {
    return is_array(leaf) ? nb::cast(arrays[next++]) : nb::borrow(leaf);
  });
}

nb::object with_arrays(nb::handle tree, const Arrays& arrays) {
  size_t next = 0;
  return with_arrays(tree, arrays, next);
}

// A function made from another by a transform. `__wrapped__` leads to the original.
struct Transformed {
  nb::object fun;
  std::string name;
  std::function<nb::object(nb::handle fun, nb::args args, nb::kwargs kwargs)> call;
};

int traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  if (!nb::inst_ready(self)) return 0;
  Py_VISIT(nb::inst_ptr<Transformed>(self)->fun.ptr());
  return 0;
}

int clear(PyObject* self) {
  if (!nb::inst_ready(self)) return 0;
  nb::inst_ptr<Transformed>(self)->fun.reset();
  return 0;
}

PyType_Slot transformed_slots[] = {{Py_tp_traverse, reinterpret_cast<void*>(traverse)},
                                   {Py_tp_clear, reinterpret_cast<void*>(clear)},
                                   {0, nullptr}};

// --- grad ---

// One argument number gives its gradient itself, several a tuple; names always give a dict.
struct Wanted {
  std::vector<int64_t> argnums;
  std::vector<std::string> argnames;
};

Wanted wanted_arguments(const char* op, nb::handle argnums, nb::handle argnames) {
  Wanted wanted;
  if (nb::isinstance<nb::str>(argnames)) {
    wanted.argnames = {nb::cast<std::string>(argnames)};
  } else {
    for (nb::handle name : items_of(op, "argnames", argnames)) {
      CERMET_CHECK(nb::isinstance<nb::str>(name), type, op,
                   "argnames has {}; give names of arguments", type_of(name));
      wanted.argnames.push_back(nb::cast<std::string>(name));
    }
  }
  if (argnums.is_none()) {
    if (wanted.argnames.empty()) wanted.argnums = {0};
  } else if (is_index(argnums)) {
    wanted.argnums = {to_int(op, "argnums", argnums)};
  } else {
    CERMET_CHECK(PySequence_Check(argnums.ptr()) != 0 && !nb::isinstance<nb::str>(argnums), type,
                 op, "argnums is {}; it must be an int or a sequence of ints", type_of(argnums));
    wanted.argnums = to_ints(op, "argnums", argnums);
  }
  CERMET_CHECK(!wanted.argnums.empty() || !wanted.argnames.empty(), value, op,
               "argnums and argnames are empty; name at least one argument to differentiate by");
  for (int64_t n : wanted.argnums)
    CERMET_CHECK(n >= 0, value, op, "argnums has {}; argument numbers must not be negative", n);
  for (size_t i = 0; i < wanted.argnums.size(); i++)
    CERMET_CHECK(std::count(wanted.argnums.begin(), wanted.argnums.end(), wanted.argnums[i]) == 1,
                 value, op, "argnums has {} more than once; name each argument once",
                 wanted.argnums[i]);
  return wanted;
}

class GradientCall {
 public:
  GradientCall(const char* op, const Wanted& wanted, nb::args args, nb::kwargs kwargs)
      : op_(op), wanted_(wanted), args_(args), kwargs_(nb::borrow<nb::dict>(kwargs)) {}

  // {value, gradients}
  std::pair<nb::object, nb::object> run(nb::handle fun) {
    for (int64_t n : wanted_.argnums) append(argument(n));
    for (const std::string& name : wanted_.argnames) append(argument(name));
    const TraceScope scope;
    Arrays primals;
    for (const array& leaf : leaves_)
      if (is_inexact(leaf.dtype())) primals.push_back(leaf);
    const Arrays inputs = trace_inputs(primals);
    const nb::object value = call(fun, instead(inputs, [](const array& leaf) { return leaf; }));
    const array loss = loss_of(value);
    const array one = ones_like(loss);
    const Arrays flat = vjp_of({&loss, 1}, {&one, 1}, inputs);
    return {value, gradients(instead(flat, [](const array& leaf) { return zeros_like(leaf); }))};
  }

 private:
  nb::object argument(int64_t n) {
    CERMET_CHECK(n < static_cast<int64_t>(args_.size()), value, op_,
                 "the gradient of argument {} is wanted, but the call has {} positional arguments; "
                 "pass it by position, or choose it by argnames",
                 n, args_.size());
    return args_[static_cast<size_t>(n)];
  }

  nb::object argument(const std::string& name) {
    CERMET_CHECK(kwargs_.contains(name.c_str()), value, op_,
                 "the gradient of argument '{}' is wanted, but the call does not pass it by name; "
                 "pass {}=..., or choose it by argnums",
                 name, name);
    return kwargs_[name.c_str()];
  }

  // Beside arrays that have a gradient a tree may hold others: theirs is 0.
  void append(const nb::object& tree) {
    const Arrays leaves = tree_arrays(op_, tree);
    CERMET_CHECK(
        !leaves.empty(), value, op_,
        "an argument to differentiate holds no array (it is {}); give arrays or trees of them",
        type_of(tree));
    const auto has_gradient = [](const array& leaf) { return is_inexact(leaf.dtype()); };
    CERMET_CHECK(std::ranges::any_of(leaves, has_gradient), value, op_,
                 "an argument to differentiate has dtype {}; it must be floating or complex",
                 name_of(leaves[0].dtype()));
    leaves_.insert(leaves_.end(), leaves.begin(), leaves.end());
  }

  // The leaves with those that have a gradient replaced in order, and `other` of the rest.
  template <typename F>
  Arrays instead(const Arrays& arrays, const F& other) const {
    Arrays all;
    size_t next = 0;
    for (const array& leaf : leaves_)
      all.push_back(is_inexact(leaf.dtype()) ? arrays[next++] : other(leaf));
    return all;
  }

  nb::object call(nb::handle fun, const Arrays& leaves) const {
    LentArrays lent;
    size_t next = 0;
    nb::list args;
    for (nb::handle arg : args_) args.append(arg);
    for (int64_t n : wanted_.argnums)
      args[static_cast<size_t>(n)] = lent.lend(args_[static_cast<size_t>(n)], leaves, next);
    nb::dict kwargs;
    for (auto [key, value] : kwargs_) kwargs[key] = value;
    for (const std::string& name : wanted_.argnames)
      kwargs[name.c_str()] = lent.lend(kwargs_[name.c_str()], leaves, next);
    return fun(*nb::tuple(args), **kwargs);
  }

  array loss_of(const nb::object& value) {
    nb::object first = value;
    if ((nb::isinstance<nb::tuple>(value) || nb::isinstance<nb::list>(value)) && nb::len(value) > 0)
      first = value[0];
    CERMET_CHECK(
        is_array(first), type, op_,
        "the function gives {}; its value (or the first of several) must be a scalar array",
        type_of(first));
    array loss = nb::cast<array>(first);
    CERMET_CHECK(
        loss.size() == 1, value, op_,
        "the function's value has shape {}; a gradient needs a scalar, e.g. its sum or mean",
        loss.shape().to_string());
    return loss;
  }

  nb::object gradients(const Arrays& flat) {
    size_t next = 0;
    nb::list positional;
    for (int64_t n : wanted_.argnums)
      positional.append(with_arrays(args_[static_cast<size_t>(n)], flat, next));
    nb::dict named;
    for (const std::string& name : wanted_.argnames)
      named[name.c_str()] = with_arrays(kwargs_[name.c_str()], flat, next);
    nb::object by_position = nb::none();
    if (nb::len(positional) == 1) {
      by_position = nb::object(positional[0]);
    } else if (nb::len(positional) > 1) {
      by_position = nb::tuple(positional);
    }
    if (wanted_.argnames.empty()) return by_position;
    return nb::make_tuple(by_position, named);
  }

  const char* op_;
  const Wanted& wanted_;
  nb::args args_;
  nb::dict kwargs_;
  Arrays leaves_;  // of the arguments to differentiate
};

nb::object make_gradient(const char* op, nb::object fun, nb::handle argnums, nb::handle argnames,
                         bool with_value) {
  CERMET_CHECK(PyCallable_Check(fun.ptr()), type, op, "{} was given; it must be callable",
               type_of(fun));
  const Wanted wanted = wanted_arguments(op, argnums, argnames);
  return nb::cast(Transformed{
      fun, op, [op, wanted, with_value](nb::handle f, nb::args args, nb::kwargs kwargs) {
        auto [value, gradient] = GradientCall(op, wanted, args, kwargs).run(f);
        return with_value ? nb::object(nb::make_tuple(value, gradient)) : gradient;
      }});
}

// --- vjp and jvp ---

nb::object call_transposed(const char* op, bool forward, nb::handle fun, nb::handle primals,
                           nb::handle vectors) {
  const TraceScope scope;
  const Arrays inputs = trace_inputs(sequence_arrays(op, primals));
  const nb::object value = fun(*to_args(inputs));
  const Arrays outputs = sequence_arrays(op, value);
  const Arrays given = sequence_arrays(op, vectors);
  const Arrays results = forward ? jvp_of(outputs, inputs, given) : vjp_of(outputs, given, inputs);
  return nb::make_tuple(to_pylist(outputs), to_pylist(results));
}

// --- vmap ---

// "a tuple of 2", in a message.
std::string with_length(nb::handle tree) {
  PyObject* p = tree.ptr();
  const bool has_items = PyList_Check(p) || PyTuple_Check(p) || PyDict_Check(p);
  return has_items ? fmt::format("{} of {}", type_of(tree), nb::len(tree)) : type_of(tree);
}

}  // namespace

void leaf_axes(const char* op, nb::handle tree, nb::handle axes, std::vector<int>& to, int added) {
  if (axes.is_none() || PyLong_Check(axes.ptr())) {
    for (const array& leaf : tree_arrays(op, tree))
      to.push_back(axes.is_none()
                       ? -1
                       : normalize_axis(op, to_int(op, "an axis", axes), leaf.ndim() + added));
    return;
  }
  const RecursionLevel level(op);
  const auto check = [&](bool fits) {
    CERMET_CHECK(fits, value, op,
                 "the axes are {} where the arguments or results are {}; give an int, None, or a "
                 "tree like them",
                 described(axes), with_length(tree));
  };
  const auto is_list = [](nb::handle o) { return PyTuple_Check(o.ptr()) || PyList_Check(o.ptr()); };
  if (nb::isinstance<nb::dict>(tree)) {
    check(nb::isinstance<nb::dict>(axes));
    const nb::dict each = nb::borrow<nb::dict>(axes);
    for (auto [key, value] : nb::borrow<nb::dict>(tree)) {
      check(each.contains(key));
      leaf_axes(op, value, nb::object(each[key]), to, added);
    }
    return;
  }
  CERMET_CHECK(is_list(axes) || nb::isinstance<nb::dict>(axes), type, op,
               "the axes are {}; give an int, None, or a tree of these", described(axes));
  check(is_list(tree) && is_list(axes) && nb::len(tree) == nb::len(axes));
  const nb::tuple items(tree), each(axes);
  for (size_t i = 0; i < items.size(); i++)
    leaf_axes(op, nb::object(items[i]), nb::object(each[i]), to, added);
}

namespace {

Shape without_axis(Shape shape, int axis) {
  if (axis >= 0) shape.erase(axis);
  return shape;
}

nb::object call_vmap(nb::handle fun, nb::args args, nb::kwargs kwargs, nb::handle in_axes,
                     nb::handle out_axes) {
  const Arrays batched = tree_arrays("vmap", args);
  std::vector<int> axes;
  leaf_axes("vmap", args, in_axes, axes);
  Arrays inputs;
  for (size_t i = 0; i < batched.size(); i++) {
    const array& a = batched[i];
    if (axes[i] < 0) {
      inputs.push_back(a);
      continue;
    }
    array p = placeholder(without_axis(a.shape(), axes[i]), a.dtype());
    inputs.push_back(p);
  }
  LentArrays lent;  // the value may hold what they are lent to
  size_t next = 0;
  const nb::object value = fun(*nb::borrow<nb::tuple>(lent.lend(args, inputs, next)), **kwargs);
  const Arrays outputs = tree_arrays("vmap", value);
  std::vector<int> out;
  leaf_axes("vmap", value, out_axes, out, 1);
  return with_arrays(value, vmap_of(outputs, inputs, batched, axes, out));
}

void def_eval(nb::module_& m) {
  m.def(
      "eval",
      [](nb::args args) {
        const Arrays arrays = tree_arrays("eval", args);
        without_gil([&] {
          eval(arrays);
          return 0;
        });
      },
      nb::arg("args"), "Evaluates all arrays in the arguments (trees and Modules) and waits.");
  m.def(
      "async_eval",
      [](nb::args args) -> nb::object {
        const Arrays arrays = tree_arrays("async_eval", args);
        without_gil([&] {
          async_eval(arrays);
          return 0;
        });
        if (args.size() == 1) return args[0];
        return nb::borrow(args);
      },
      nb::arg("args"),
      "Queues the evaluation of all arrays in the arguments; returns its argument.");
}

}  // namespace

void init_transforms(nb::module_& m) {
  nb::class_<Transformed>(m, "_Transformed", nb::type_slots(transformed_slots), nb::dynamic_attr())
      .def("__call__", [](Transformed& t, nb::args args,
                          nb::kwargs kwargs) { return t.call(t.fun, args, kwargs); })
      .def_prop_ro("__wrapped__", [](const Transformed& t) { return t.fun; })
      .def("__repr__", [](const Transformed& t) {
        return fmt::format("<{} of {}>", t.name, nb::repr(t.fun).c_str());
      });
  def_eval(m);
  m.def(
      "value_and_grad",
      [](nb::object fun, nb::handle argnums, nb::handle argnames) {
        return make_gradient("value_and_grad", fun, argnums, argnames, true);
      },
      nb::arg("fun"), nb::arg("argnums") = nb::none(), nb::arg("argnames") = nb::list(),
      "A function giving fun's value and the gradient of its first (scalar) output by the chosen "
      "arguments.");
  m.def(
      "grad",
      [](nb::object fun, nb::handle argnums, nb::handle argnames) {
        return make_gradient("grad", fun, argnums, argnames, false);
      },
      nb::arg("fun"), nb::arg("argnums") = nb::none(), nb::arg("argnames") = nb::list(),
      "A function giving the gradient of fun's (scalar) output by the chosen arguments.");
  m.def(
      "vjp",
      [](nb::handle fun, nb::handle primals, nb::handle cotangents) {
        return call_transposed("vjp", false, fun, primals, cotangents);
      },
      nb::arg("fun"), nb::arg("primals"), nb::arg("cotangents"),
      "(outputs, vector-Jacobian products).");
  m.def(
      "jvp",
      [](nb::handle fun, nb::handle primals, nb::handle tangents) {
        return call_transposed("jvp", true, fun, primals, tangents);
      },
      nb::arg("fun"), nb::arg("primals"), nb::arg("tangents"),
      "(outputs, Jacobian-vector products).");
  m.def(
      "vmap",
      [](nb::object fun, nb::object in_axes, nb::object out_axes) {
        CERMET_CHECK(PyCallable_Check(fun.ptr()), type, "vmap", "{} was given; it must be callable",
                     type_of(fun));
        return nb::cast(Transformed{
            fun, "vmap", [in_axes, out_axes](nb::handle f, nb::args args, nb::kwargs kwargs) {
              return call_vmap(f, args, kwargs, in_axes, out_axes);
            }});
      },
      nb::arg("fun"), nb::arg("in_axes").none() = 0, nb::arg("out_axes").none() = 0,
      "A function that applies fun along an axis of its arguments.");
  m.def(
      "checkpoint",
      [](nb::object fun) {
        CERMET_CHECK(PyCallable_Check(fun.ptr()), type, "checkpoint",
                     "{} was given; it must be callable", type_of(fun));
        return nb::cast(Transformed{fun, "checkpoint", call_checkpointed});
      },
      nb::arg("fun"),
      "fun, whose intermediate results are computed again for its derivatives instead of kept.");
}

}  // namespace cermet::python
