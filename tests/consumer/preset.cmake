# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

# Installs SOURCE to PREFIX by the preset `install`, without any package that tests, examples or benchmarks need. The
# result must be the files of EXPECTED.
file(REMOVE_RECURSE ${BUILD} ${PREFIX})
set(disabled "")
foreach(package IN ITEMS benchmark CLI11 dlpack doctest Eigen3 ggml Kokkos MPI nlohmann_json Python3 rapidcheck)
    list(APPEND disabled -D CMAKE_DISABLE_FIND_PACKAGE_${package}=ON)
endforeach()
execute_process(
    COMMAND
        ${CMAKE_COMMAND} --preset install -B ${BUILD} -G ${GENERATOR} -D CMAKE_CXX_COMPILER=${COMPILER} ${disabled}
        --no-warn-unused-cli
    WORKING_DIRECTORY ${SOURCE}
    COMMAND_ERROR_IS_FATAL ANY
)
execute_process(COMMAND ${CMAKE_COMMAND} --build ${BUILD} COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${CMAKE_COMMAND} --install ${BUILD} --prefix ${PREFIX} COMMAND_ERROR_IS_FATAL ANY)

file(GLOB_RECURSE expected RELATIVE ${EXPECTED} ${EXPECTED}/*)
file(GLOB_RECURSE installed RELATIVE ${PREFIX} ${PREFIX}/*)
if(NOT expected OR NOT installed STREQUAL expected)
    message(FATAL_ERROR "installed: ${installed}\nexpected: ${expected}")
endif()
