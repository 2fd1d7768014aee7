# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

# DLPack is one header. Takes its CMake package if there is one. Otherwise searches for the header and
# reads its version.
find_package(dlpack ${dlpack_FIND_VERSION} QUIET CONFIG)
if(NOT TARGET dlpack::dlpack)
    find_path(dlpack_INCLUDE_DIR dlpack/dlpack.h)
    if(dlpack_INCLUDE_DIR)
        file(STRINGS ${dlpack_INCLUDE_DIR}/dlpack/dlpack.h version_parts REGEX "define DLPACK_(MAJOR|MINOR)_VERSION ")
        list(TRANSFORM version_parts REPLACE ".* ([0-9]+).*" "\\1")
        list(JOIN version_parts . dlpack_VERSION)
    endif()
endif()
if(TARGET dlpack::dlpack)
    set(dlpack_FOUND TRUE)
    return()
endif()
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(dlpack REQUIRED_VARS dlpack_INCLUDE_DIR VERSION_VAR dlpack_VERSION)
if(dlpack_FOUND)
    add_library(dlpack::dlpack INTERFACE IMPORTED)
    set_target_properties(dlpack::dlpack PROPERTIES INTERFACE_INCLUDE_DIRECTORIES ${dlpack_INCLUDE_DIR})
endif()
