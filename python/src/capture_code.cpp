// SPDX-License-Identifier: MIT
#include "capture_code.h"

#include <map>
#include <memory>
#include <unordered_map>

namespace cermet::python {

namespace {

uint64_t hash_of(nb::handle object) { return static_cast<uint64_t>(PyObject_Hash(object.ptr())); }

bool is_one_of(const std::string& name, std::initializer_list<const char*> names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// A key given as a constant: which one of them is stored to is not told apart.
void add_constant_keys(nb::handle code, CodeFacts& facts) {
  for (nb::handle constant : nb::borrow<nb::tuple>(code.attr("co_consts")))
    if (PyUnicode_Check(constant.ptr()) || PyLong_Check(constant.ptr()))
      facts.stored.push_back(hash_of(constant));
}

// Where names may be given as text, its constants are names, too.
nb::object names_in(nb::handle code) {
  nb::tuple names = nb::borrow<nb::tuple>(code.attr("co_names"));
  const auto has = [&](const char* name) {
    return PySequence_Contains(names.ptr(), nb::str(name).ptr()) == 1;
  };
  if (!has("globals") && !has("getattr") && !has("vars")) return names;
  nb::list all(names);
  for (nb::handle constant : nb::borrow<nb::tuple>(code.attr("co_consts")))
    if (PyUnicode_Check(constant.ptr())) all.append(constant);
  return nb::tuple(all);
}

// `import a.b` finds a and a.b.
void add_import(nb::handle name, nb::list& to) {
  const std::string text = nb::cast<std::string>(name);
  for (size_t end = text.find('.'); end != std::string::npos; end = text.find('.', end + 1))
    to.append(nb::str(text.substr(0, end).c_str()));
  to.append(name);
}

CodeFacts read_code(nb::handle code) {
  CodeFacts facts;
  facts.names = names_in(code);
  std::map<std::string, std::pair<nb::object, bool>> loads;  // name -> only .append is called on it
  std::vector<std::pair<std::string, nb::object>> instructions;
  for (nb::handle i : nb::module_::import_("dis").attr("get_instructions")(code))
    instructions.emplace_back(nb::cast<std::string>(i.attr("opname")), i.attr("argval"));
  bool has_keys = false;
  nb::list imports;
  for (size_t i = 0; i < instructions.size(); i++) {
    const auto& [name, value] = instructions[i];
    if (is_one_of(name, {"STORE_ATTR", "STORE_GLOBAL", "STORE_NAME", "STORE_DEREF"}))
      facts.stored.push_back(hash_of(value));
    if (name == "IMPORT_NAME" && i >= 2) {  // its level and the names wanted are loaded before it
      const int level = nb::cast<int>(instructions[i - 2].second);
      if (level == 0) add_import(value, imports);
      else facts.relative_imports.push_back({value, level});
    }
    has_keys |= name == "STORE_SUBSCR";
    if (!is_one_of(name, {"LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF"})) continue;
    const auto* next = i + 1 < instructions.size() ? &instructions[i + 1] : nullptr;
    const bool appends = next != nullptr && is_one_of(next->first, {"LOAD_METHOD", "LOAD_ATTR"}) &&
                         nb::isinstance<nb::str>(next->second) &&
                         nb::cast<std::string>(next->second) == "append";
    auto [it, fresh] = loads.try_emplace(nb::cast<std::string>(value), value, true);
    it->second.second &= appends;
  }
  facts.imports = nb::tuple(imports);
  if (has_keys) add_constant_keys(code, facts);
  for (const auto& [name, load] : loads)
    (load.second ? facts.appended : facts.read).push_back(load.first);
  for (nb::handle constant : nb::borrow<nb::tuple>(code.attr("co_consts")))
    if (PyCode_Check(constant.ptr())) facts.inner.push_back(&facts_of(constant));
  return facts;
}

}  // namespace

const CodeFacts& facts_of(nb::handle code) {
  static auto* known = new std::unordered_map<PyObject*, std::unique_ptr<CodeFacts>>;
  auto it = known->find(code.ptr());
  if (it != known->end()) return *it->second;
  auto facts = std::make_unique<CodeFacts>(read_code(code));
  return *known->emplace(nb::borrow(code).release().ptr(), std::move(facts)).first->second;
}

}  // namespace cermet::python
