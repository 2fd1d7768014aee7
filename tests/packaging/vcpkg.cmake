# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

# Runs the port in PORT_DIR as vcpkg would, with SOURCE in place of a download, and installs to PACKAGES. The functions
# of vcpkg are replaced by stand-ins that do their essential steps and take no argument they do not know.
set(PORT cellar)
set(CURRENT_PACKAGES_DIR ${PACKAGES})
file(REMOVE_RECURSE ${BUILD} ${PACKAGES})
file(READ ${PORT_DIR}/vcpkg.json manifest)
string(JSON VERSION GET "${manifest}" version)
if(NOT VERSION STREQUAL EXPECTED_VERSION)
    message(FATAL_ERROR "vcpkg.json has version ${VERSION}, expected ${EXPECTED_VERSION}")
endif()

# Arguments into `arg_<name>`: each of ONE and MANY has to be there.
macro(stand_in_arguments one many)
    cmake_parse_arguments(PARSE_ARGV 0 arg "" "${one}" "${many}")
    if(DEFINED arg_UNPARSED_ARGUMENTS)
        message(FATAL_ERROR "${CMAKE_CURRENT_FUNCTION}: unknown arguments ${arg_UNPARSED_ARGUMENTS}")
    endif()
    foreach(name IN ITEMS ${one} ${many})
        if(NOT DEFINED arg_${name})
            message(FATAL_ERROR "${CMAKE_CURRENT_FUNCTION}: ${name} is missing")
        endif()
    endforeach()
endmacro()

function(vcpkg_from_github)
    stand_in_arguments("OUT_SOURCE_PATH;REPO;REF;SHA512;HEAD_REF" "")
    if(NOT arg_REF STREQUAL "v${VERSION}")
        message(FATAL_ERROR "the tag is ${arg_REF}, expected v${VERSION}")
    endif()
    set(${arg_OUT_SOURCE_PATH} ${SOURCE} PARENT_SCOPE)
endfunction()

function(vcpkg_cmake_configure)
    stand_in_arguments("SOURCE_PATH" "OPTIONS")
    if(NOT VCPKG_BUILD_TYPE STREQUAL "release")
        message(FATAL_ERROR "a port of headers is built once, expected VCPKG_BUILD_TYPE to be release")
    endif()
    execute_process(
        COMMAND
            ${CMAKE_COMMAND} -S ${arg_SOURCE_PATH} -B ${BUILD} -G ${GENERATOR} -D CMAKE_CXX_COMPILER=${COMPILER}
            -D CMAKE_BUILD_TYPE=Release -D CMAKE_INSTALL_PREFIX=${CURRENT_PACKAGES_DIR} ${arg_OPTIONS}
        COMMAND_ERROR_IS_FATAL ANY
    )
endfunction()

function(vcpkg_cmake_install)
    stand_in_arguments("" "")
    execute_process(COMMAND ${CMAKE_COMMAND} --build ${BUILD} --target install COMMAND_ERROR_IS_FATAL ANY)
endfunction()

# Moves the package's files to share/<port> and lets them find the prefix from there: one folder up less.
function(vcpkg_cmake_config_fixup)
    stand_in_arguments("CONFIG_PATH" "")
    file(RENAME ${CURRENT_PACKAGES_DIR}/${arg_CONFIG_PATH} ${CURRENT_PACKAGES_DIR}/share/${PORT})
    file(GLOB files ${CURRENT_PACKAGES_DIR}/share/${PORT}/*.cmake)
    set(up "get_filename_component(_IMPORT_PREFIX \"\${_IMPORT_PREFIX}\" PATH)\n")
    foreach(file IN LISTS files)
        file(READ ${file} text)
        string(REPLACE "${up}${up}${up}" "${up}${up}" text "${text}")
        string(REPLACE "\${CMAKE_CURRENT_LIST_DIR}/../../../" "\${CMAKE_CURRENT_LIST_DIR}/../../" text "${text}")
        file(WRITE ${file} "${text}")
    endforeach()
endfunction()

function(vcpkg_install_copyright)
    stand_in_arguments("" "FILE_LIST")
    file(COPY_FILE ${arg_FILE_LIST} ${CURRENT_PACKAGES_DIR}/share/${PORT}/copyright)
endfunction()

# A scope of its own, as in vcpkg.
function(run_port)
    include(${PORT_DIR}/portfile.cmake)
endfunction()
run_port()

# What vcpkg checks of an installed port.
foreach(file IN ITEMS include/cellar/cellar.hpp share/cellar/cellarConfig.cmake share/cellar/copyright share/cellar/usage)
    if(NOT EXISTS ${PACKAGES}/${file})
        message(FATAL_ERROR "the port did not install ${file}")
    endif()
endforeach()
file(GLOB folders RELATIVE ${PACKAGES} ${PACKAGES}/* ${PACKAGES}/share/*)
if(NOT folders STREQUAL "include;share;share/cellar")
    message(FATAL_ERROR "the port left these folders: ${folders}")
endif()
