// SPDX-License-Identifier: MIT
// Transforms of C++ functions: from a function on arrays, another one. They trace it as often as they are
// called; `compile` does so once for each structure of the arguments.
#pragma once

#include "transform/transform.h"

namespace cermet {

using UnaryFunction = std::function<array(const array&)>;
using BinaryFunction = std::function<array(const array&, const array&)>;
using ScalarFunction = std::function<array(const Arrays&)>;
using ValueAndGradFn = std::function<std::pair<Arrays, Arrays>(const Arrays&)>;
using SimpleValueAndGradFn = std::function<std::pair<array, Arrays>(const Arrays&)>;

std::pair<array, array> vjp(const UnaryFunction& f, const array& primal, const array& cotangent);
std::pair<array, array> jvp(const UnaryFunction& f, const array& primal, const array& tangent);

// The value and its gradient by the chosen arguments. The value (of several, the first) has one element;
// arguments are numbered from 0, negative ones from the end. Raises [value_and_grad] value.
ValueAndGradFn value_and_grad(const Function& f, const std::vector<int>& argnums);
ValueAndGradFn value_and_grad(const Function& f, int argnum = 0);
SimpleValueAndGradFn value_and_grad(const ScalarFunction& f, const std::vector<int>& argnums);
SimpleValueAndGradFn value_and_grad(const ScalarFunction& f, int argnum = 0);
std::function<std::pair<array, array>(const array&)> value_and_grad(const UnaryFunction& f);
Function grad(const ScalarFunction& f, const std::vector<int>& argnums);
Function grad(const ScalarFunction& f, int argnum = 0);
UnaryFunction grad(const UnaryFunction& f);

// f applied along an axis of its arguments (-1: the whole argument each time); its results have the axis
// at out_axes. Lists that are empty stand for 0 everywhere.
UnaryFunction vmap(const UnaryFunction& f, int in_axis = 0, int out_axis = 0);
BinaryFunction vmap(const BinaryFunction& f, int in_axis_a = 0, int in_axis_b = 0,
                    int out_axis = 0);
Function vmap(const Function& f, const std::vector<int>& in_axes = {},
              const std::vector<int>& out_axes = {});

// f as programs: it is called once for each number, rank and dtypes of arguments (sizes are open, so
// `shapeless` changes nothing). Arrays that f has from elsewhere are as they were in that call.
// Thread-safe if f is.
Function compile(Function f, bool shapeless = false);
// Compiled functions run as they are, and again as programs.
void disable_compile();
void enable_compile();

}  // namespace cermet
