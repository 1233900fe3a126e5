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

set(CERMET_WARNINGS -Wall -Wextra -Werror)
add_compile_options(-ffp-contract=off -ffunction-sections -fdata-sections)

# g++ looks for a linker named ld.lld in the folders given with -B; Debian names it ld.lld-19.
find_program(CERMET_LLD NAMES ld.lld-19 PATHS /usr/lib/llvm-19/bin REQUIRED)
file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/linker)
file(CREATE_LINK ${CERMET_LLD} ${CMAKE_BINARY_DIR}/linker/ld.lld SYMBOLIC)
add_link_options(-fuse-ld=lld -B${CMAKE_BINARY_DIR}/linker -Wl,--exclude-libs,ALL -Wl,--gc-sections
                 -Wl,--as-needed)

if(CERMET_SANITIZE STREQUAL "address")
  set(CERMET_SANITIZE_FLAGS -fsanitize=address,undefined -fno-sanitize-recover=undefined)
  set(CERMET_SANITIZER_RUNTIME libasan.so libubsan.so libstdc++.so)
elseif(CERMET_SANITIZE STREQUAL "thread")
  set(CERMET_SANITIZE_FLAGS -fsanitize=thread)
  set(CERMET_SANITIZER_RUNTIME libtsan.so)
elseif(CERMET_SANITIZE)
  message(FATAL_ERROR "CERMET_SANITIZE is '${CERMET_SANITIZE}'; use address, thread or nothing")
endif()
if(CERMET_SANITIZE)
  # gcc's flow warnings misfire on instrumented code.
  add_compile_options(${CERMET_SANITIZE_FLAGS} -g1 -fno-omit-frame-pointer -Wno-maybe-uninitialized
                      -Wno-stringop-overflow -Wno-array-bounds)
  add_link_options(${CERMET_SANITIZE_FLAGS})
endif()
