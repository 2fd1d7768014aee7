# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

# One export set per component, so that the package loads only the requested ones.
include(CMakePackageConfigHelpers)
include(GNUInstallDirs)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/cellar)

foreach(target IN ITEMS cellar ${CELLAR_COMPONENTS})
    set(name ${target})
    if(NOT target STREQUAL cellar)
        set(target cellar_${name})
    endif()
    install(TARGETS ${target} EXPORT ${target}-targets FILE_SET HEADERS)
    install(EXPORT ${target}-targets NAMESPACE cellar:: DESTINATION ${package_dir})
endforeach()

configure_package_config_file(
    cmake/cellarConfig.cmake.in cellarConfig.cmake INSTALL_DESTINATION ${package_dir}
)
# While the major version is 0, a new minor version may break what compiled before.
write_basic_package_version_file(
    ${CMAKE_CURRENT_BINARY_DIR}/cellarConfigVersion.cmake
    COMPATIBILITY SameMinorVersion ARCH_INDEPENDENT
)
install(
    FILES
        ${CMAKE_CURRENT_BINARY_DIR}/cellarConfig.cmake
        ${CMAKE_CURRENT_BINARY_DIR}/cellarConfigVersion.cmake
        cmake/Finddlpack.cmake
    DESTINATION ${package_dir}
)
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
