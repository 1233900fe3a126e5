// SPDX-License-Identifier: MIT
// Updates whose points may reach one element, as loops; the result is that of the points in their order,
// whatever the number of threads.
//
// parts    items are the update's runs, each with elements of its own; lane loops merge these.
// spans    elements belong to kUpdateOwners owners, a span of owners to each thread. It finds the points
//          of its elements block by block, then takes these alone; one span of all owners takes the
//          points as they come. Lanes run along a row of elements, if points reach such. Where the slices
//          of the outermost axis reach elements apart, as of put_along_axis, a span takes its share of these.
//          The points are taken in turns, so that who runs them may stop after each. Where elements lie beyond
//          the caches, those of a block of points are fetched first: one by one, each would be waited for.
// On a processor, what single elements are updated with, and where these are, is made in lanes for a block of
// points; then these are taken one by one. So is what is one for a short row of elements. Values that are dear have
// an entry point of their own, for all threads.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kernel/passes.h"
#include "kernel/tile_points.h"
#include "kernel/tile_tasks.h"

namespace cermet::ir {

inline constexpr int64_t kUpdateOwners = 256;  // more than threads, so that spans have equal shares
inline constexpr int64_t kUpdateBlock = kPointBlock;  // points that are looked through at a time
inline constexpr int64_t kUpdateSlices =
    64;                                     // that are apart: from so many on a span takes a share
inline constexpr int64_t kUpdateSpans = 3;  // of single elements: two would not outweigh the search
inline constexpr int64_t kUpdateMerge = 4096;  // elements merged by one item
inline constexpr int64_t kUpdateCaches = 8;    // second-level ones: larger targets are fetched

class UpdateWriter {
 public:
  UpdateWriter(Source& source, const Plan& plan, Emitter& out, TaskWriter& tasks,
               const TargetFacts& target)
      : source_(source),
        plan_(plan),
        out_(out),
        tasks_(tasks),
        is_cpu_(target.name == "cpu"),
        cached_bytes_(kUpdateCaches * target.l2_bytes) {}

  void write(const Group& group, const std::string& suffix);

 private:
  struct Range {
    ExprId begin, end;
  };
  void write_parts(const Update& update);
  void take_run(const Update& update, LocalId parts, ExprId base, Range run);
  void add_to(LocalId parts, ExprId base, const Update& update);
  void merge_parts(const Update& update, LocalId parts);
  void write_spans();
  void make_values();
  std::optional<ExprId> slices_apart();
  std::optional<ExprId> most_of(ExprId id) const;
  ExprId turns_within(size_t number);
  Range share_of(Range owners, Range turns);
  Range open_places(Range turns);
  void take_points(Range turns);
  void take_owned(Range turns, Range owners);
  ExprId find_owned(Range block, Range owners, LocalId places, PointValues& made);
  ExprId open_point(ForKind kind, Range points, std::optional<LocalId> places = {});
  void take_block(Range points, const std::vector<ExprId>& ahead,
                  const std::function<void()>& take);
  void take_each(Range points, PointValues& made, std::optional<LocalId> places,
                 const std::function<void()>& take);
  std::vector<ExprId> worth_making(bool values);
  PointValues values_of(const std::vector<ExprId>& ids, ExprId begin) {
    return {source_, out_, ids, begin};
  }
  void take();
  void fetch();
  bool reads_itself(ExprId id);
  ExprId is_far();

  ExprId owner();
  AxisId open_serial(const std::vector<AxisId>& axes, ExprId begin, ExprId end);
  int64_t most_in_row() const { return source_.kernel().axes[lane_].most; }  // 0: not known
  void open_row();
  void close(size_t loops);

  Source& source_;
  const Plan& plan_;
  Emitter& out_;
  TaskWriter& tasks_;
  const bool is_cpu_;
  const int64_t cached_bytes_;
  const Group* group_ = nullptr;
  std::string suffix_;
  const Stmt* stmt_ = nullptr;
  BufferRef buffer_;                                // that it writes
  AxisId lane_ = kNone;                             // the axis of a row of elements
  std::vector<AxisId> serial_;                      // the others, outermost first
  std::vector<std::pair<ExprId, LocalId>> values_;  // made for all points, by their places
  ExprId is_far_ = kNone;  // elements are to be fetched first; kNone: they are in no case
};

}  // namespace cermet::ir
