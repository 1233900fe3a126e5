// SPDX-License-Identifier: MIT
// Reports on plans: what was fused into what, why a kernel ends where it ends, what it moves.
#include <algorithm>

#include "graph/hooks.h"
#include "kernel/passes.h"
#include "schedule/eval.h"
#include "schedule/program.h"

namespace cermet {

namespace {

TracedGraph plan_input(std::span<const array> outputs) {
  TracedGraph graph;
  for (const array& output : outputs) graph.outputs.push_back(output.node());
  for (const NodeRef& node : tape_to(graph.outputs, {})) {
    if (node->is_ready() || node->row == nullptr) graph.inputs.push_back(node);
  }
  return graph;
}

KernelReport report_on(const Program& program, const Program::Launch& launch) {
  KernelReport report;
  report.name = launch.kernel.kernel.name;
  report.form = launch.code->form;
  report.border = launch.border;
  report.ir = ir::print(launch.kernel.kernel);
  report.bytes_read = launch.bytes_read;
  report.bytes_written = launch.bytes_written;
  report.flops = launch.kernel.flops;
  for (int member : launch.members) {
    const auto& [op, from] = program.members[member];
    std::string origin;
    if (hooks::describe_origin != nullptr) origin = hooks::describe_origin(from);
    report.ops.push_back({op, std::move(origin)});
  }
  std::vector<int> seen;
  for (const schedule::Operand& operand : launch.kernel.operands) {
    if (operand.kind != schedule::Operand::Kind::buffer) continue;
    if (std::find(seen.begin(), seen.end(), operand.value) != seen.end()) continue;
    seen.push_back(operand.value);
    const Program::Value& value = program.values[operand.value];
    const bool out = std::find(launch.outputs.begin(), launch.outputs.end(), operand.value) !=
                     launch.outputs.end();
    (out ? report.outputs : report.inputs).push_back({value.dtype, value.shape});
  }
  return report;
}

}  // namespace

std::vector<KernelReport> explain(std::span<const array> outputs) {
  const EvalLock lock;
  const ProgramPtr program = build_program(plan_input(outputs));
  std::vector<KernelReport> reports;
  for (const Program::Launch& launch : program->launches)
    reports.push_back(report_on(*program, launch));
  return reports;
}

}  // namespace cermet
