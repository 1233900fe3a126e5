// SPDX-License-Identifier: MIT
// Reports on plans: what was fused into what, why a kernel ends where it ends, what it moves.
#include <algorithm>

#include "codegen/target.h"
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
    if (node->is_ready() || node->row == nullptr || node->call) graph.inputs.push_back(node);
  }
  return graph;
}

void add_to_report(const Program& program, const Program::Launch& launch, KernelReport& report) {
  report.bytes_read += launch.bytes_read;
  report.bytes_written += launch.bytes_written;
  report.flops += launch.kernel.flops;
  for (int member : launch.members) {
    const Program::Member& made = program.members[member];
    std::string origin;
    if (hooks::describe_origin != nullptr) origin = hooks::describe_origin(made.origin);
    report.ops.push_back({made.op, std::move(origin)});
  }
  std::vector<int> seen;
  for (const schedule::Operand& operand : launch.kernel.operands) {
    if (operand.kind != schedule::Operand::Kind::buffer) continue;
    if (std::ranges::find(seen, operand.value) != seen.end()) continue;
    seen.push_back(operand.value);
    const Program::Value& value = program.values[operand.value];
    const bool out = std::ranges::find(launch.outputs, operand.value) != launch.outputs.end();
    (out ? report.outputs : report.inputs).push_back({value.dtype, value.shape});
  }
}

// Of one launch, or of a batch: what its members are made of, one after the other.
KernelReport report_on(const Program& program, std::span<const Program::Launch> batch) {
  KernelReport report;
  const Program::Launch& first = batch[0];
  report.name = first.kernel.ir->name;
  report.form = first.code->form;
  report.scheme = ir::scheme_of(*first.kernel.ir, cpu_target().facts());
  report.border = schedule::border_name(first.border);
  report.ir = ir::print(*first.kernel.ir);
  report.members = static_cast<int>(batch.size());
  for (const Program::Launch& launch : batch) add_to_report(program, launch, report);
  return report;
}

}  // namespace

std::vector<KernelReport> explain(std::span<const array> outputs) {
  const EvalLock lock;
  const ProgramPtr program = build_program(plan_input(outputs));
  std::vector<KernelReport> reports;
  const std::span launches(program->launches);
  for (size_t i = 0; i < launches.size(); i += static_cast<size_t>(launches[i].batch))
    reports.push_back(
        report_on(*program, launches.subspan(i, static_cast<size_t>(launches[i].batch))));
  return reports;
}

}  // namespace cermet
