// SPDX-License-Identifier: MIT
// Packed operands of products, kept from one launch to the next: where a kernel packs what it has packed
// before (the weights of a layer that serves again), or another kernel that packs alike, the Locals are
// there and that entry point need not run. The bits are the same.
// Invariant: a packing is known by the hash of the loop that makes it, by address and version of each
// buffer that it was made from, and by every other word of the record that it took; it goes with the
// first of these buffers that is written or ends. Its memory counts as cache and is given up whenever
// memory is asked for that is not there.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/buffer.h"

namespace cermet {

using PackedKey = std::vector<uint64_t>;

struct PackedUse {
  std::vector<BufferRef> locals;  // empty: it is to be packed,
  bool is_wanted = false;         // and to be kept
};

// Counts a use. Thread-safe, as is all below. CERMET_PACKED_CACHE=off: nothing is ever wanted.
PackedUse find_packed(const PackedKey& key);
// Nobody may write `locals` from now on.
void keep_packed(const PackedKey& key, std::span<Buffer* const> sources,
                 std::vector<BufferRef> locals);
// The buffer was written, or its life ends.
void drop_packed(const Buffer* source);
void drop_all_packed();
// Bytes of all that is kept.
size_t packed_bytes();

}  // namespace cermet
