# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

# Removes PREFIX and installs BUILD to it.
file(REMOVE_RECURSE ${PREFIX})
execute_process(
    COMMAND ${CMAKE_COMMAND} --install ${BUILD} --prefix ${PREFIX} COMMAND_ERROR_IS_FATAL ANY
)
