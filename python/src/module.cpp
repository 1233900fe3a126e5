// SPDX-License-Identifier: MIT
// The extension cermet.core: MLX's names over the C++ library.
#include "bind.h"

namespace cermet::python {

nb::module_ submodule(nb::module_& m, const char* name, const char* doc) {
  nb::module_ sub = m.def_submodule(name, doc);
  const std::string path = std::string(nb::str(m.attr("__name__")).c_str()) + "." + name;
  nb::module_::import_("sys").attr("modules")[path.c_str()] = sub;
  return sub;
}

}  // namespace cermet::python

NB_MODULE(core, m) {
  using namespace cermet::python;
  m.doc() = "Lazy arrays, composable transforms and fused kernels; the names of MLX 0.32.";
  m.attr("__version__") = "0.1.0";
  nanobind::set_leak_warnings(false);
  cermet::env::check();
  init_errors(m);
  init_origin(m);
  init_dtypes(m);
  init_devices(m);
  init_selection(m);
  init_array(m);
  init_array_at(m);
  init_print(m);
  init_numpy(m);
  init_ops(m);
  init_shape_ops(m);
  init_product_ops(m);
  init_random(m);
  init_fast(m);
  init_memory(m);
  init_transforms(m);
  init_custom(m);
  init_compile_number(m);
  init_compile(m);
  init_explain(m);
  init_io(m);
  init_constants(m);
  init_call_errors(m);
}
