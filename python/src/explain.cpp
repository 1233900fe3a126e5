// SPDX-License-Identifier: MIT
// explain: what a call would run, as objects, a table and JSON.
#include "bind.h"
#include "codegen/target.h"
#include "compile.h"
#include "kernel/text.h"
#include "schedule/product_costs.h"
#include "schedule/product_scheme.h"

namespace cermet::python {

namespace {

struct Explanation {
  std::vector<KernelReport> kernels;
};

nb::list operands(const std::vector<KernelReport::Operand>& list) {
  nb::list result;
  for (const auto& operand : list)
    result.append(nb::make_tuple(PyDtype{operand.dtype}, shape_tuple(operand.shape)));
  return result;
}

// (op, file, line); line 0 when the origin is unknown.
nb::list ops_of(const KernelReport& report) {
  nb::list result;
  for (const auto& op : report.ops) {
    const size_t colon = op.origin.rfind(':');
    const bool known = colon != std::string::npos;
    result.append(nb::make_tuple(op.name, known ? op.origin.substr(0, colon) : std::string(),
                                 known ? std::stoi(op.origin.substr(colon + 1)) : 0));
  }
  return result;
}

// Of a batch the first member's, which are as many as the others'.
std::string join_ops(const KernelReport& report) {
  std::string text = report.members > 1 ? fmt::format("{} x", report.members) : "";
  const size_t ops = report.ops.size() / static_cast<size_t>(report.members);
  for (size_t i = 0; i < ops; i++) text += (text.empty() ? "" : " ") + report.ops[i].name;
  return text;
}

std::string bytes_text(int64_t bytes) {
  if (bytes < 10'000) return fmt::format("{} B", bytes);
  if (bytes < 10'000'000) return fmt::format("{:.1f} kB", static_cast<double>(bytes) / 1e3);
  return fmt::format("{:.1f} MB", static_cast<double>(bytes) / 1e6);
}

std::string table_of(const Explanation& e) {
  std::string text = fmt::format("{:>3}  {:<10} {:<11} {:>10} {:>10} {:>11}  {:<15} {}\n", "#",
                                 "form", "scheme", "read", "written", "flops", "border", "ops");
  for (size_t i = 0; i < e.kernels.size(); i++) {
    const KernelReport& k = e.kernels[i];
    text += fmt::format("{:>3}  {:<10} {:<11} {:>10} {:>10} {:>11}  {:<15} {}\n", i, k.form,
                        k.scheme, bytes_text(k.bytes_read), bytes_text(k.bytes_written), k.flops,
                        k.border, join_ops(k));
  }
  return text;
}

nb::dict to_dict(const Explanation& e) {
  nb::list kernels;
  for (const KernelReport& k : e.kernels) {
    auto named = [](const std::vector<KernelReport::Operand>& list) {
      nb::list result;
      for (const auto& o : list)
        result.append(nb::make_tuple(std::string(name_of(o.dtype)), shape_tuple(o.shape)));
      return result;
    };
    nb::dict d;
    d["name"] = k.name;
    d["form"] = k.form;
    d["scheme"] = k.scheme;
    d["members"] = k.members;
    d["ops"] = ops_of(k);
    d["inputs"] = named(k.inputs);
    d["outputs"] = named(k.outputs);
    d["bytes_read"] = k.bytes_read;
    d["bytes_written"] = k.bytes_written;
    d["flops"] = k.flops;
    d["border"] = k.border;
    d["ir"] = k.ir;
    kernels.append(d);
  }
  nb::dict result;
  result["kernels"] = kernels;
  return result;
}

schedule::ProductShape product_of(PyDtype dtype, int64_t m, int64_t n, int64_t k, bool a_along_k,
                                  bool b_along_k) {
  return {.dtype = dtype.value,
          .batch = 1,
          .m = m,
          .n = n,
          .k = k,
          .a = {dtype.value, a_along_k, true},
          .b = {dtype.value, b_along_k, true}};
}

nb::list product_work(PyDtype dtype, int64_t m, int64_t n, int64_t k, bool a_along_k,
                      bool b_along_k, const std::string& processor) {
  const std::optional<schedule::Processor> known = schedule::processor_named(processor);
  CERMET_CHECK(known, value, "product_work",
               "'{}' is no kind of processor; narrow, half, full and large_l2 are", processor);
  nb::list all;
  for (const schedule::SchemeWork& of :
       schedule::work_of(product_of(dtype, m, n, k, a_along_k, b_along_k), *known)) {
    nb::dict counts;
    for (const auto& [name, count] : of.counts) counts[nb::str(name.data(), name.size())] = count;
    all.append(nb::make_tuple(std::string(ir::text_of(of.scheme)), std::string(of.family), counts));
  }
  return all;
}

std::string product_scheme(PyDtype dtype, int64_t m, int64_t n, int64_t k, bool a_along_k,
                           bool b_along_k, int vector_bytes, bool full_width, bool dots, bool tiles,
                           int64_t l2_bytes) {
  ir::TargetFacts facts;
  facts.vector_bytes = vector_bytes;
  facts.full_width = full_width;
  facts.l2_bytes = l2_bytes;
  facts.dot_bf16 = dots;
  facts.amx_bf16 = facts.amx_int8 = tiles;
  const schedule::ProductShape product = product_of(dtype, m, n, k, a_along_k, b_along_k);
  return std::string(ir::text_of(schedule::scheme_of(product, facts).scheme));
}

}  // namespace

void init_explain(nb::module_& m) {
  nb::class_<KernelReport>(m, "KernelReport", "One kernel of a plan.")
      .def_ro("name", &KernelReport::name)
      .def_ro("form", &KernelReport::form)
      .def_ro(
          "scheme", &KernelReport::scheme,
          "How its products are made: fma, fma_local, fma_split_k, fma_tall, panel, panel_long, "
          "panel_four, panel_four_long, "
          "dot_bf16, dot_int8, dot_int16, amx_bf16, amx_int8, amx_split, amx_split_local, "
          "amx_split_k or fold; empty "
          "without products.")
      .def_ro("border", &KernelReport::border, "Why the kernel is not part of its consumer.")
      .def_ro("ir", &KernelReport::ir)
      .def_ro(
          "members", &KernelReport::members,
          "How many equal kernels over different arrays the launch runs; ops, inputs and outputs "
          "are theirs, one after the other.")
      .def_ro("bytes_read", &KernelReport::bytes_read)
      .def_ro("bytes_written", &KernelReport::bytes_written)
      .def_ro("flops", &KernelReport::flops)
      .def_prop_ro("ops", &ops_of, "[(op, file, line)]")
      .def_prop_ro(
          "inputs", [](const KernelReport& k) { return operands(k.inputs); }, "[(dtype, shape)]")
      .def_prop_ro(
          "outputs", [](const KernelReport& k) { return operands(k.outputs); }, "[(dtype, shape)]");
  nb::class_<Explanation>(m, "Explanation", "The kernels that a call would run.")
      .def_prop_ro("kernels", [](const Explanation& e) { return e.kernels; })
      .def("to_dict", &to_dict, "The same as JSON-able data.")
      .def("__repr__", &table_of);
  m.def(
      "explain",
      [](nb::object fun, nb::args args, nb::kwargs kwargs) {
        CERMET_CHECK(PyCallable_Check(fun.ptr()), type, "explain",
                     "{} was given; it must be a function, and what it is called with the further "
                     "arguments",
                     described(fun));
        const Arrays outputs = outputs_without_running(fun, args, kwargs);
        return Explanation{without_gil([&] { return explain(outputs); })};
      },
      nb::arg("fun"), nb::arg("args"), nb::arg("kwargs"),
      "Plans fun(*args, **kwargs) without running it; fun may be compiled. State that it changes "
      "is put back.");
  m.def("_product_work", &product_work, nb::arg("dtype"), nb::arg("m"), nb::arg("n"), nb::arg("k"),
        nb::arg("a_along_k"), nb::arg("b_along_k"), nb::arg("processor"),
        "[(scheme, column of the table of costs, {what: how often})] of a product of two arrays on "
        "a kind of processor: narrow, half, full or large_l2.");
  m.def(
      "_processor",
      [] { return std::string(schedule::name_of(schedule::processor_of(cpu_target().facts()))); },
      "The kind of this processor, as costs of products know it.");
  m.def("_product_scheme", &product_scheme, nb::arg("dtype"), nb::arg("m"), nb::arg("n"),
        nb::arg("k"), nb::arg("a_along_k"), nb::arg("b_along_k"), nb::arg("vector_bytes"),
        nb::arg("full_width"), nb::arg("dots"), nb::arg("tiles"), nb::arg("l2_bytes") = 1 << 20,
        "The scheme of a product of two arrays on a processor with vectors of that size, that runs "
        "64 bytes whole, with dot instructions for bfloat16, with tile instructions, and with an "
        "L2 of that size.");
  m.def(
      "_vector_width",
      [] {
        const ir::TargetFacts facts = cpu_target().facts();
        return nb::make_tuple(facts.vector_bytes, facts.full_width);
      },
      "(bytes of a vector register, whether this processor runs 64 bytes whole)");
}

}  // namespace cermet::python
