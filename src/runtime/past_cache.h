// SPDX-License-Identifier: MIT
// Stores that do not read the memory that they overwrite, nor leave it in the cache.
#pragma once

#include <cstddef>

// As memcpy, but before other threads are told of the result the processor's stores must be fenced.
extern "C" void cermet_store_past_cache(char* to, const char* from, size_t bytes);
