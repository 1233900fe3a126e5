// SPDX-License-Identifier: MIT
// Sleeping on a 32-bit word, as the Linux kernel offers it; std::atomic::wait has no timeout.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>

namespace cermet {

// Sleeps while word == expected; may return early. timeout_ns < 0: for ever.
inline void futex_wait(std::atomic<uint32_t>& word, uint32_t expected, int64_t timeout_ns = -1) {
  timespec timeout{timeout_ns / 1'000'000'000, timeout_ns % 1'000'000'000};
  syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, expected, timeout_ns < 0 ? nullptr : &timeout,
          nullptr, 0);
}

// Wakes up to n sleepers. Only the word's address is used, so it may be gone by then.
inline void futex_wake(std::atomic<uint32_t>& word, int n) {
  syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, n, nullptr, nullptr, 0);
}

}  // namespace cermet
