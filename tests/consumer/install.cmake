# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

# Installs BUILD to PREFIX, where nothing of an earlier installation is left.
file(REMOVE_RECURSE ${PREFIX})
execute_process(
    COMMAND ${CMAKE_COMMAND} --install ${BUILD} --prefix ${PREFIX} COMMAND_ERROR_IS_FATAL ANY
)
