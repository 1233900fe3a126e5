// SPDX-License-Identifier: MIT
// Numbers of a trace: what `.shape` and scalar arguments give while compile traces. They pass for int or
// float; arithmetic on them stays symbolic, and any use as a Python number records a guard.
#pragma once

#include <memory>

#include "bind.h"
#include "schedule/symbols.h"

namespace cermet::python {

// While it lives, sizes and scalars on this thread are numbers of this trace.
class TraceNumbers {
 public:
  explicit TraceNumbers(const std::shared_ptr<Symbols>& symbols);
  ~TraceNumbers();
  TraceNumbers(const TraceNumbers&) = delete;
  TraceNumbers& operator=(const TraceNumbers&) = delete;

 private:
  std::shared_ptr<Symbols> before_;
  Symbols::Scope scope_;
};

// Symbolic while its trace runs on this thread, then a constant.
Number traced_number(nb::handle object);
// The expression it had in its trace, also afterwards.
Number traced_number_of(const Symbols& symbols, nb::handle object);
// A number of the running trace; a plain Python number for a constant, or when there is no trace.
nb::object traced_number_object(const Number& number);
nb::object plain_number(const Number& number);

}  // namespace cermet::python
