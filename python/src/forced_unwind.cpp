// SPDX-License-Identifier: MIT
// While the interpreter ends, CPython before 3.14 ends each other thread that wants its lock, by a forced
// unwinding of the thread's frames. Frames of C++ would run destructors then that need the lock, or abort
// the process where they let no exception out. Here such a thread waits for the end of the process instead,
// as it does in CPython 3.14: the linker has the extension's frames ask this function (--wrap).
#include <unistd.h>
#include <unwind.h>

extern "C" {

using Personality = _Unwind_Reason_Code(int version, _Unwind_Action actions,
                                        _Unwind_Exception_Class exception_class,
                                        _Unwind_Exception* exception, _Unwind_Context* context);

// NOLINTNEXTLINE(bugprone-reserved-identifier): names that --wrap makes
Personality __real___gxx_personality_v0, __wrap___gxx_personality_v0;

_Unwind_Reason_Code __wrap___gxx_personality_v0(int version, _Unwind_Action actions,
                                                _Unwind_Exception_Class exception_class,
                                                _Unwind_Exception* exception,
                                                _Unwind_Context* context) {
  // NOLINTNEXTLINE(bugprone-infinite-loop): until the process ends
  while ((actions & _UA_FORCE_UNWIND) != 0) pause();
  return __real___gxx_personality_v0(version, actions, exception_class, exception, context);
}
}
