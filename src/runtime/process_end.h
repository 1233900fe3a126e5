// SPDX-License-Identifier: MIT
// The end of the process: exit() destroys the static objects of libraries while threads may still be at
// work on them.
#pragma once

namespace cermet {

// The handler is called when exit() begins, before static objects are destroyed, or now if it has begun; it
// may be called twice, by two threads.
void at_process_end(void (*handler)());
// Whether handlers have been called; afterwards only the thread that ends the process needs anything.
bool process_is_ending();
bool is_ending_thread();

}  // namespace cermet
