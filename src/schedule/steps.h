// SPDX-License-Identifier: MIT
// What a run needs of a program, launch by launch, in a few arrays that it reads from one end to the
// other. Between two runs the caches forget them, so what counts is how many lines they take and how
// well these can be foreseen; a Program::Launch with its kernel is spread over dozens.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/dtype.h"
#include "runtime/kernel_cache.h"

namespace cermet {

struct Program;

class Steps {
 public:
  struct Range {
    uint32_t begin = 0, count = 0;
  };
  template <typename T>
  class Pool {
   public:
    Range add(std::span<const T> items) {
      const Range range{static_cast<uint32_t>(items_.size()), static_cast<uint32_t>(items.size())};
      items_.insert(items_.end(), items.begin(), items.end());
      return range;
    }
    std::span<const T> operator[](Range range) const {
      return std::span(items_).subspan(range.begin, range.count);
    }

   private:
    std::vector<T> items_;
  };

  struct BufferWord {  // of a record: a pointer
    int64_t offset;    // bytes from the start of the value's own layout
    int32_t word, value;
    uint32_t item_size;  // of the value's dtype
  };
  struct ScalarWord {
    int32_t word, scalar;
    Dtype dtype;
  };
  struct Output {
    int32_t value;
    size_t bytes;
    const char* op;
  };
  struct TakeOver {
    int32_t output, dying;
  };

  struct Step {  // a launch
    const KernelHandle* code;
    int32_t batch;       // as in Program::Launch
    int32_t sizes = -1;  // of the batch that it begins
    // update: the value that the output starts as a copy of; -1: none.
    int32_t target = -1;
    bool target_is_whole = false;  // ... dies here, and is laid out as the output
    Range words, buffers, scalars, outputs, take_overs;
    Range sources;      // values that packings of the kernel are made from, for each packing
    int32_t kept = -1;  // another kernel for it, better where packings are kept
    Range dying;        // values not needed after the batch
    uint64_t bytes_read, bytes_written;
  };
  struct Kept {  // of a launch: its products made by its scheme `kept`
    ir::Hash hash;
    size_t launch;
  };
  struct Given {  // a value that is there before the first launch
    int32_t value, input;
  };

  Steps() = default;
  // The program is not changed any more.
  explicit Steps(const Program& program);

  std::vector<Step> all;
  std::vector<Given> inputs;
  std::vector<int32_t> constants;  // values
  std::vector<LaunchSizes> sizes;  // of each batch
  std::vector<Kept> kept;
  Pool<uint64_t> words;  // records, but for pointers and scalars
  Pool<BufferWord> buffers;
  Pool<ScalarWord> scalars;
  Pool<Output> outputs;
  Pool<TakeOver> take_overs;
  Pool<int32_t> values;

 private:
  void add(const Program& program, size_t launch);
};

}  // namespace cermet
