// SPDX-License-Identifier: MIT
// What a function's bytecode says about the state it may change, read once for each code object.
#pragma once

#include <vector>

#include "bind.h"

namespace cermet::python {

struct CodeFacts {
  std::vector<uint64_t> stored;         // hashes of names and keys that it may bind anew
  std::vector<nb::object> appended;     // names of variables that it only calls .append on
  std::vector<nb::object> read;         // other names of free variables and globals that it loads
  std::vector<const CodeFacts*> inner;  // of functions made in it
};

const CodeFacts& facts_of(nb::handle code);

}  // namespace cermet::python
