// SPDX-License-Identifier: MIT
// The floating-point mode of kernels: round to nearest, exceptions masked, subnormals kept. Threads
// that call us may have set others (flush-to-zero by a library built with -ffast-math, say).
#pragma once

#include <cstdint>

namespace cermet {

// Sets the mode of this thread while it lives, and puts the caller's back.
class FloatMode {
 public:
  FloatMode() : saved_(read()) { write(kDefault); }
  ~FloatMode() { write(saved_); }
  FloatMode(const FloatMode&) = delete;
  FloatMode& operator=(const FloatMode&) = delete;

 private:
#if defined(__x86_64__)
  using Word = uint32_t;
  static constexpr Word kDefault = 0x1F80;
  static Word read() { return __builtin_ia32_stmxcsr(); }
  static void write(Word word) { __builtin_ia32_ldmxcsr(word); }
#elif defined(__aarch64__)
  using Word = uint64_t;
  static constexpr Word kDefault = 0;
  static Word read() {
    Word word;
    asm volatile("mrs %0, fpcr" : "=r"(word));
    return word;
  }
  static void write(Word word) { asm volatile("msr fpcr, %0" ::"r"(word)); }
#endif
  Word saved_;
};

}  // namespace cermet
