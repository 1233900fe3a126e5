// SPDX-License-Identifier: MIT
// Rows, of which passes make folds and use them. An item is a row or, where columns are folded, too, a block of rows;
// the accumulators of columns are in memory. Of what are short columns in memory, which lie beside each other, a lane
// goes down each: there an item is some of them in several arrays.
#pragma once

#include <string>
#include <vector>

#include "kernel/tile_passes.h"
#include "kernel/tile_scan.h"
#include "kernel/tile_tasks.h"

namespace cermet::ir {

class RowWriter {
 public:
  RowWriter(Source& source, const Plan& plan, Emitter& out, TaskWriter& tasks, ScanWriter& scans,
            bool is_cpu)
      : source_(source), plan_(plan), out_(out), tasks_(tasks), scans_(scans), is_cpu_(is_cpu) {}

  void write(const Group& group, const std::string& entry);

 private:
  bool are_short_columns(const Group& group);
  AxisId lanes_of(const Group& group);
  void write_short_columns(const Group& group, const std::string& entry);
  void find_passes(const Group& group);
  void make_locals(const Size& size);
  std::vector<OpenFold> write_passes(const Group& group, AxisId variable);
  std::vector<OpenFold> write_pass(const Group& group, int pass, AxisId row);
  void define_kept(int pass, ExprId place);
  void keep_for_later(int pass, ExprId place);
  ExprId place_of(AxisId element);
  Index index_of(ExprId place) const;

  // Of each row itself, and of its elements.
  struct Pass {
    Tasks outside, inside;
  };

  Source& source_;
  const Plan& plan_;
  Emitter& out_;
  TaskWriter& tasks_;
  ScanWriter& scans_;
  const bool is_cpu_;
  std::vector<Pass> passes_;
  std::vector<KeptRow> kept_;
  std::vector<LocalId> locals_;  // of these
  ExprId lane_ = kNone;          // among the short columns of an item
};

}  // namespace cermet::ir
