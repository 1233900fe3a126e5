# SPDX-License-Identifier: MIT
# Every folder of tests/ with C++ files is one GoogleTest executable `test_<folder>`; each of its tests
# is one of CTest's, `<folder>.<suite>.<test>`, so that all cores share them and one that dies or hangs
# takes no other with it. They read fixtures relative to CERMET_TESTS_DIR. The files of tests/fuzz/ run
# long: each is an executable `fuzz_<file>` of the target `fuzzers`, outside CTest, with the helpers of
# the kernel tests.
enable_testing()
find_package(GTest REQUIRED)
include(GoogleTest)
find_library(CERMET_MPFR mpfr REQUIRED)  # judges float64 accuracy

# Where requirements-test.txt has been installed: NVRTC is there.
if(Python_EXECUTABLE)
  execute_process(COMMAND ${Python_EXECUTABLE} -c "import sysconfig; print(sysconfig.get_path('purelib'))"
                  OUTPUT_VARIABLE CERMET_SITE_PACKAGES OUTPUT_STRIP_TRAILING_WHITESPACE)
endif()

function(cermet_executable name)
  add_executable(${name} ${ARGN})
  target_include_directories(${name} PRIVATE tests)
  target_compile_definitions(${name} PRIVATE CERMET_TESTS_DIR="${CMAKE_SOURCE_DIR}/tests"
                             CERMET_SITE_PACKAGES="${CERMET_SITE_PACKAGES}")
  target_compile_options(${name} PRIVATE ${CERMET_WARNINGS})
  target_link_libraries(${name} PRIVATE cermet ${CERMET_MPFR})
endfunction()

set(CERMET_TEST_SECONDS 300)
if(CERMET_SANITIZE)
  set(CERMET_TEST_SECONDS 1500)
endif()
file(GLOB CERMET_TEST_FOLDERS CONFIGURE_DEPENDS LIST_DIRECTORIES true tests/*)
foreach(folder IN LISTS CERMET_TEST_FOLDERS)
  file(GLOB sources CONFIGURE_DEPENDS ${folder}/*.cpp)
  get_filename_component(name ${folder} NAME)
  if(NOT sources OR name STREQUAL "fuzz")
    continue()
  endif()
  cermet_executable(test_${name} ${sources})
  if(TARGET test_base AND NOT name STREQUAL "base")
    target_precompile_headers(test_${name} REUSE_FROM test_base)
  else()
    target_precompile_headers(test_${name} PRIVATE ${CERMET_PRECOMPILED} <gtest/gtest.h>)
  endif()
  target_compile_options(test_${name} PRIVATE -O1)  # two thirds of the time; the library does the work
  target_link_libraries(test_${name} PRIVATE GTest::gtest_main)
  gtest_discover_tests(test_${name} TEST_PREFIX ${name}. DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 60
                       PROPERTIES TIMEOUT ${CERMET_TEST_SECONDS}
                                  SKIP_REGULAR_EXPRESSION "\\[  SKIPPED \\]")
endforeach()

add_custom_target(fuzzers)
file(GLOB fuzzers CONFIGURE_DEPENDS tests/fuzz/*.cpp)
file(GLOB kernel_helpers CONFIGURE_DEPENDS tests/kernel/*.cpp)
list(FILTER kernel_helpers EXCLUDE REGEX "_test\\.cpp$|/cuda_")
foreach(source IN LISTS fuzzers)
  get_filename_component(name ${source} NAME_WE)
  cermet_executable(fuzz_${name} ${source} ${kernel_helpers})
  target_link_libraries(fuzz_${name} PRIVATE GTest::gtest)
  set_target_properties(fuzz_${name} PROPERTIES EXCLUDE_FROM_ALL ON)
  add_dependencies(fuzzers fuzz_${name})
endforeach()

if(EXISTS ${CMAKE_SOURCE_DIR}/bench/ceiling.cpp)
  cermet_executable(bench_ceiling bench/ceiling.cpp)
endif()
