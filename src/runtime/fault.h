// SPDX-License-Identifier: MIT
// Allocations made to fail, for tests: of buffers, of pages for code and of places in a stream's queue,
// counted together over the process.
#pragma once

#include <cstdint>

namespace cermet {

// To be asked once for each allocation. CERMET_FAIL_ALLOC=n: it is true for the n-th one.
bool allocation_fails();
// The n-th allocation from now fails, and later ones work; 0: none does.
void fail_allocation(int64_t n);

}  // namespace cermet
