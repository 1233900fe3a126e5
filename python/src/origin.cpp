// SPDX-License-Identifier: MIT
// Where in the user's program a node was made: the code object and instruction of the innermost frame
// outside this package. Resolved to file and line only when shown.
#include <optional>
#include <set>
#include <string>
#include <unordered_map>

#include "bind.h"
#include "graph/meant_scope.h"

namespace cermet::python {

namespace {

std::string& package_folder() {
  static auto* folder = new std::string;
  return *folder;
}

// Code objects met so far, kept alive for ever (they are few), and whether they are the package's own.
bool is_own_code(PyCodeObject* code) {
  static auto* known = new std::unordered_map<PyCodeObject*, bool>;
  static std::pair<PyCodeObject*, bool> last = {nullptr, false};
  if (code == last.first) return last.second;
  auto [it, fresh] = known->try_emplace(code, false);
  if (fresh) {
    Py_INCREF(code);
    const std::string file = nb::cast<std::string>(nb::handle(code->co_filename));
    it->second = file.starts_with(package_folder());
  }
  last = {code, it->second};
  return last.second;
}

Origin current_origin() {
  if (PyGILState_Check() == 0) return {};
  nb::object frame = nb::steal(reinterpret_cast<PyObject*>(Py_XNewRef(PyEval_GetFrame())));
  while (frame.is_valid()) {
    auto* f = reinterpret_cast<PyFrameObject*>(frame.ptr());
    const nb::object code = nb::steal(reinterpret_cast<PyObject*>(PyFrame_GetCode(f)));
    if (!is_own_code(reinterpret_cast<PyCodeObject*>(code.ptr())))
      return {code.ptr(), PyFrame_GetLasti(f)};
    frame = nb::steal(reinterpret_cast<PyObject*>(PyFrame_GetBack(f)));
  }
  return {};
}

std::string describe(const Origin& origin) {
  if (origin.code == nullptr) return "";
  nb::gil_scoped_acquire gil;
  auto* code = static_cast<PyCodeObject*>(const_cast<void*>(origin.code));
  const int line = PyCode_Addr2Line(code, origin.position);
  return fmt::format("{}:{}", nb::cast<std::string>(nb::handle(code->co_filename)), line);
}

// A MeantScope from `with` to its end.
class Meant {
 public:
  explicit Meant(const std::string& name) {
    static auto* names = new std::set<std::string>;  // nodes refer to them
    name_ = names->insert(name).first->c_str();
  }
  void enter() { scope_.emplace(name_); }
  void exit(const nb::args&) { scope_.reset(); }

 private:
  const char* name_;
  std::optional<MeantScope> scope_;
};

}  // namespace

void init_origin(nb::module_& m) {
  const nb::object path = nb::module_::import_("sys").attr("modules")["cermet"].attr("__path__");
  package_folder() = nb::cast<std::string>(path[0]) + "/";
  hooks::origin = current_origin;
  hooks::describe_origin = describe;
  nb::class_<Meant>(m, "_meant",
                    "Inside `with _meant(name):`, errors of ops name what is called so.")
      .def(nb::init<const std::string&>(), nb::arg("name"))
      .def("__enter__", &Meant::enter)
      .def("__exit__", &Meant::exit);
}

}  // namespace cermet::python
