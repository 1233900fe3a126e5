# SPDX-License-Identifier: MIT
# Compiler and linker flags of every target. Arithmetic is IEEE: no fast-math and no contraction.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_CXX_FLAGS_RELEASE "-O2")
if(CERMET_SANITIZE)  # the checks, not the code around them, take the time
  set(CMAKE_CXX_FLAGS_RELEASE "-O1")
endif()

set(CERMET_WARNINGS -Wall -Wextra -Werror)
add_compile_options(-ffp-contract=off -ffunction-sections -fdata-sections)

# Compiled once for the library, once for the extension and once for all tests: a quarter of most files'
# time. Headers still include what they use: the target `headers` compiles them without it.
set(CERMET_PRECOMPILED
    <algorithm> <array> <atomic> <bit> <chrono> <cmath> <cstdint> <cstring> <functional> <limits> <map>
    <memory> <mutex> <optional> <set> <span> <sstream> <string> <string_view> <thread> <unordered_map>
    <unordered_set> <utility> <variant> <vector> <fmt/format.h>)

# g++ looks for a linker named ld.lld in the folders given with -B; Debian names it ld.lld-19.
find_program(CERMET_LLD NAMES ld.lld-19 PATHS /usr/lib/llvm-19/bin REQUIRED)
file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/linker)
file(CREATE_LINK ${CERMET_LLD} ${CMAKE_BINARY_DIR}/linker/ld.lld SYMBOLIC)
add_link_options(-fuse-ld=lld -B${CMAKE_BINARY_DIR}/linker -Wl,--exclude-libs,ALL -Wl,--gc-sections
                 -Wl,--as-needed)

if(CERMET_SANITIZE STREQUAL "address")
  set(CERMET_SANITIZE_FLAGS -fsanitize=address,undefined -fno-sanitize-recover=undefined)
  set(libraries libasan.so libubsan.so libstdc++.so)
elseif(CERMET_SANITIZE STREQUAL "thread")
  set(CERMET_SANITIZE_FLAGS -fsanitize=thread)
  set(libraries libtsan.so)
elseif(CERMET_SANITIZE)
  message(FATAL_ERROR "CERMET_SANITIZE is '${CERMET_SANITIZE}'; use address, thread or nothing")
endif()
if(CERMET_SANITIZE)
  # gcc's flow warnings misfire on instrumented code.
  add_compile_options(${CERMET_SANITIZE_FLAGS} -g1 -fno-omit-frame-pointer -Wno-maybe-uninitialized
                      -Wno-stringop-overflow -Wno-array-bounds)
  add_link_options(${CERMET_SANITIZE_FLAGS})
endif()

# CERMET_PRELOAD, and the file `preload` of the build folder for tools/run_tests.py: what LD_PRELOAD has to
# be for a Python that imports the extension, as a sanitizer's runtime must be loaded before it.
set(CERMET_PRELOAD)
foreach(library ${libraries})
  execute_process(COMMAND ${CMAKE_CXX_COMPILER} -print-file-name=${library}
                  OUTPUT_VARIABLE path OUTPUT_STRIP_TRAILING_WHITESPACE)
  list(APPEND CERMET_PRELOAD ${path})
endforeach()
list(JOIN CERMET_PRELOAD ":" CERMET_PRELOAD)
file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/preload CONTENT "${CERMET_PRELOAD}")
