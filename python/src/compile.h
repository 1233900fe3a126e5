// SPDX-License-Identifier: MIT
// What other parts of the extension ask of compile.
#pragma once

#include "bind.h"

namespace cermet::python {

// The arrays that fun(*args, **kwargs) would produce or write into captured state, as a lazy graph. The
// captured state is as before afterwards.
Arrays outputs_without_running(nb::object fun, nb::args args, nb::kwargs kwargs);

}  // namespace cermet::python
