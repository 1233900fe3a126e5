# SPDX-License-Identifier: MIT
# The seed cache: the kernels of single ops, made by the library just built and put beside it. It serves
# that build alone, so it is made again whenever the extension is linked (in seconds, from the earlier
# one, if only what is right of codegen has changed). `ninja core` leaves it out.
if(NOT TARGET core)
  return()
endif()
set(seed ${CERMET_PACKAGE}/kernels.seed)
add_custom_command(
  OUTPUT ${seed}
  COMMAND ${CMAKE_COMMAND} -E env PYTHONPATH=${CMAKE_BINARY_DIR}/python PYTHONDONTWRITEBYTECODE=1
          CERMET_KERNEL_CACHE=off CERMET_TIER=fused CERMET_LOG= CERMET_DUMP= CERMET_CPU_FEATURES=
          CERMET_SKIP_PASS= ASAN_OPTIONS=detect_leaks=0 LD_PRELOAD=${CERMET_PRELOAD}
          ${Python_EXECUTABLE} ${CMAKE_SOURCE_DIR}/cmake/seed.py ${seed} ${LLVM_PACKAGE_VERSION}
  DEPENDS core ${CMAKE_SOURCE_DIR}/cmake/seed.py
  COMMENT "Compiling the kernels of single ops"
  VERBATIM)
add_custom_target(seed ALL DEPENDS ${seed})
install(FILES ${seed} DESTINATION cermet COMPONENT python)
