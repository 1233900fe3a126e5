// SPDX-License-Identifier: MIT
// What a function's bytecode says about the state it may change, read once for each code object.
#pragma once

#include <vector>

#include "bind.h"

namespace cermet::python {

struct CodeFacts {
  struct Import {
    nb::object name;
    int level;  // how many packages up, from 1
  };
  nb::object names;    // a tuple: what it may look up in globals and modules
  nb::object imports;  // a tuple: modules that it imports, with those around them
  std::vector<Import> relative_imports;
  std::vector<uint64_t> stored;         // hashes of names and keys that it may bind anew
  std::vector<nb::object> appended;     // names of variables that it only calls .append on
  std::vector<nb::object> read;         // other names of free variables and globals that it loads
  std::vector<const CodeFacts*> inner;  // of functions made in it
};

const CodeFacts& facts_of(nb::handle code);

}  // namespace cermet::python
