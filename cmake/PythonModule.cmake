# SPDX-License-Identifier: MIT
# The extension cermet.core, and a package tree in the build folder to import it from without
# installing: python/cermet/ there links to the sources, so a change of a .py file builds nothing.
file(GLOB CERMET_PYTHON_SOURCES CONFIGURE_DEPENDS python/src/*.cpp)
if(NOT CERMET_PYTHON_SOURCES)
  return()
endif()

set(missing STATUS)
if(SKBUILD)  # a wheel without its extension is no wheel
  set(missing FATAL_ERROR)
endif()
if(NOT Python_EXECUTABLE AND EXISTS ${CMAKE_SOURCE_DIR}/.venv/bin/python)
  set(Python_EXECUTABLE ${CMAKE_SOURCE_DIR}/.venv/bin/python)
endif()
find_package(Python 3.10 COMPONENTS Interpreter Development.Module)
if(NOT Python_FOUND)
  message(${missing} "no Python with headers: the extension is not built")
  return()
endif()
execute_process(COMMAND ${Python_EXECUTABLE} -m nanobind --cmake_dir
                OUTPUT_VARIABLE nanobind_ROOT OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
find_package(nanobind CONFIG QUIET)
if(NOT nanobind_FOUND)
  message(${missing} "no nanobind in ${Python_EXECUTABLE}: the extension is not built")
  return()
endif()

nanobind_add_module(core NB_STATIC NOMINSIZE ${CERMET_PYTHON_SOURCES})
target_precompile_headers(core PRIVATE ${CERMET_PRECOMPILED} <nanobind/nanobind.h>)
target_include_directories(core PRIVATE python/src)
target_include_directories(core SYSTEM PRIVATE ${NB_DIR}/include ${Python_INCLUDE_DIRS})
target_compile_options(core PRIVATE ${CERMET_WARNINGS})
if(NOT CERMET_SANITIZE)  # nanobind checks at every reference that the GIL is held, unless told not to
  target_compile_definitions(core PRIVATE NDEBUG)
  target_compile_definitions(nanobind-static PRIVATE NDEBUG)
endif()
target_link_libraries(core PRIVATE cermet)
target_link_options(core PRIVATE -Wl,--wrap=__gxx_personality_v0)  # forced_unwind.cpp
set(CERMET_PACKAGE ${CMAKE_BINARY_DIR}/python/cermet)
set_target_properties(core PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${CERMET_PACKAGE})
install(TARGETS core LIBRARY DESTINATION cermet COMPONENT python)

file(MAKE_DIRECTORY ${CERMET_PACKAGE})
file(GLOB CERMET_PYTHON_FILES CONFIGURE_DEPENDS python/cermet/*)
foreach(path IN LISTS CERMET_PYTHON_FILES)
  get_filename_component(name ${path} NAME)
  if(NOT name STREQUAL "__pycache__")
    file(CREATE_LINK ${path} ${CERMET_PACKAGE}/${name} SYMBOLIC)
  endif()
endforeach()
