# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

# Configures, builds and tests the project SOURCE in BUILD; with ONLY, one target and the tests with
# that label. With REFUSED, configuring must fail with a message that contains these words.
file(REMOVE_RECURSE ${BUILD})
execute_process(
    COMMAND
        ${CMAKE_COMMAND} -S ${SOURCE} -B ${BUILD} -G ${GENERATOR} -DCMAKE_CXX_COMPILER=${COMPILER}
        -DCMAKE_BUILD_TYPE=Debug ${OPTIONS}
    OUTPUT_VARIABLE output
    ERROR_VARIABLE output
    RESULT_VARIABLE failed
)
if(REFUSED)
    string(REGEX REPLACE "[ \n]+" " " output "${output}") # CMake wraps its messages
    string(FIND "${output}" "${REFUSED}" found)
    if(NOT failed OR found EQUAL -1)
        message(FATAL_ERROR "expected a refusal with the words: ${REFUSED}\n${output}")
    endif()
    return()
endif()
if(failed)
    message(FATAL_ERROR "${output}")
endif()
set(target "")
set(label "")
if(ONLY)
    set(target --target ${ONLY})
    set(label -L ${ONLY})
endif()
execute_process(COMMAND ${CMAKE_COMMAND} --build ${BUILD} ${target} COMMAND_ERROR_IS_FATAL ANY)
execute_process(
    COMMAND
        ${CMAKE_CTEST_COMMAND} --test-dir ${BUILD} ${label} --no-tests=error --output-on-failure
    COMMAND_ERROR_IS_FATAL ANY
)
