# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

# Installs SOURCE to PREFIX with the arguments that the recipe for Spack gives to CMake.
execute_process(
    COMMAND ${PYTHON} ${CMAKE_CURRENT_LIST_DIR}/spack.py ${RECIPE} ${EXPECTED_VERSION} ${COMPONENTS}
    OUTPUT_VARIABLE arguments
    COMMAND_ERROR_IS_FATAL ANY
)
file(REMOVE_RECURSE ${BUILD} ${PREFIX})
execute_process(
    COMMAND
        ${CMAKE_COMMAND} -S ${SOURCE} -B ${BUILD} -G ${GENERATOR} -D CMAKE_CXX_COMPILER=${COMPILER}
        -D CMAKE_INSTALL_PREFIX=${PREFIX} ${arguments} --warn-uninitialized
    COMMAND_ERROR_IS_FATAL ANY
)
execute_process(COMMAND ${CMAKE_COMMAND} --build ${BUILD} --target install COMMAND_ERROR_IS_FATAL ANY)
