# SPDX-License-Identifier: MIT
# find_package(cermet) for C++ projects, from this build folder or from an installed tree: the target
# cermet::cermet. Its code generator is LLVM, linked statically as in the Python extension, so LLVM's
# Debian package is needed to link a program, and nothing of it to run one.
include(CMakePackageConfigHelpers)
include(GNUInstallDirs)

set(folder ${CMAKE_INSTALL_LIBDIR}/cmake/cermet)
configure_package_config_file(cmake/cermet-config.cmake.in cermet-config.cmake
                              INSTALL_DESTINATION ${folder})
write_basic_package_version_file(cermet-config-version.cmake COMPATIBILITY SameMinorVersion)
file(CREATE_LINK ${CMAKE_SOURCE_DIR}/cmake/Llvm.cmake ${CMAKE_BINARY_DIR}/Llvm.cmake SYMBOLIC)

install(TARGETS cermet EXPORT cermet-targets COMPONENT cxx
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY src/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/cermet COMPONENT cxx
        FILES_MATCHING PATTERN "*.h")
install(EXPORT cermet-targets NAMESPACE cermet:: DESTINATION ${folder} COMPONENT cxx)
install(FILES ${CMAKE_BINARY_DIR}/cermet-config.cmake ${CMAKE_BINARY_DIR}/cermet-config-version.cmake
              cmake/Llvm.cmake
        DESTINATION ${folder} COMPONENT cxx)
export(EXPORT cermet-targets NAMESPACE cermet:: FILE cermet-targets.cmake)
