// SPDX-License-Identifier: MIT
// The end of the process: exit() destroys the static objects of libraries while threads may still be at
// work on them.
#pragma once

#include <cstdint>

namespace cermet {

// In their order: tasks in flight may still have kernels made.
enum class EndPhase : uint8_t { queues, compiler };

// The handler is called when exit() begins, before static objects are destroyed, or now if that is past; it
// may be called twice.
void at_process_end(EndPhase phase, void (*handler)());
// Whether handlers have been called; afterwards only the thread that ends the process needs anything.
bool process_is_ending();
bool is_ending_thread();

}  // namespace cermet
