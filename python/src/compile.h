// SPDX-License-Identifier: MIT
// What other parts of the extension ask of compile.
#pragma once

#include "bind.h"

namespace cermet::python {

// The arrays that fun(*args, **kwargs) would produce or write into captured state, as a lazy graph. The
// captured state is as before afterwards.
Arrays outputs_without_running(nb::object fun, nb::args args, nb::kwargs kwargs);

// Where captured state may hold placeholders of another thread's trace: waits until that has ended, unless
// it stands still for long (it may wait for this thread).
void await_trace();

}  // namespace cermet::python
