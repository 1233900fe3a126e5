// SPDX-License-Identifier: MIT
// What names a trace: the structure of arguments and captured state, their dtypes, and constants.
#pragma once

#include <algorithm>
#include <vector>

#include "capture.h"
#include "compile_inputs.h"

namespace cermet::python {

using OpenNumbers = InlineVector<Number, 8>;

// Sizes of 0 and 1 are part of the key, others are open numbers.
inline void add_array(CaptureKey& key, OpenNumbers& symbols, const array& a) {
  key.add(static_cast<uint64_t>(a.dtype()) << 8 | static_cast<uint64_t>(a.ndim()));
  for (const Dim& dim : a.shape().dims()) {
    key.add(static_cast<uint64_t>(std::min<int64_t>(dim.value, 2)));
    if (dim.value > 1) symbols.push_back(number(dim.value));
  }
}

// The state as a call found it, while quick checks say that it is the same. Nothing is kept alive: a
// holder lives as long as the checks hold.
struct KnownState {
  WalkChecks checks;
  std::vector<PyObject*> holders;
  CaptureKey structure, constants;
  std::vector<Number> numbers;  // open ones
  bool valid = false;
};

// What names a trace, and the numbers that it leaves open: sizes of the arguments, sizes of the state,
// numbers among the arguments, numbers of the state.
struct CallKey {
  CallKey(const CallInputs& given, const Captured& state, const OpenPlaces& open) : key(given.key) {
    key.add(state.structure.lo);
    key.add(state.structure.hi);
    for (const array* a : given.arrays) add_array(key, symbols, *a);
    for (size_t i = 0; i < state.holders.size(); i++) add_array(key, symbols, state.value(i));
    symbols.append(given.numbers);
    for (size_t i = 0; i < state.constants.size(); i++) {
      const Captured::Constant& c = state.constants[i];
      if (open.is_ignored(c)) continue;
      constants.add(c.key);
      if (const auto number = open.number(c)) {
        constants.add(static_cast<uint64_t>(number->kind));
        symbols.push_back(*number);
        open_constants.push_back(i);
      } else {
        constants.add(key_of_constant(c.object));
      }
    }
    key.add(constants.lo);
    key.add(constants.hi);
  }
  CallKey(const CallInputs& given, const KnownState& state) : key(given.key) {
    key.add(state.structure.lo);
    key.add(state.structure.hi);
    for (const array* a : given.arrays) add_array(key, symbols, *a);
    for (PyObject* holder : state.holders) add_array(key, symbols, content_of(holder));
    symbols.append(given.numbers);
    symbols.append(state.numbers);
    key.add(state.constants.lo);
    key.add(state.constants.hi);
  }
  CaptureKey key, constants;
  OpenNumbers symbols;
  std::vector<size_t> open_constants;
};

}  // namespace cermet::python
