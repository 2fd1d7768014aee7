# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
set(compile ${COMPILER} -std=c++20 -fsyntax-only -Wall -Wextra -Werror -I ${INCLUDE} ${SOURCE})

execute_process(COMMAND ${compile} -DCORRECTED RESULT_VARIABLE failed ERROR_VARIABLE output)
if(failed)
    message(FATAL_ERROR "the corrected source does not compile:\n${output}")
endif()

execute_process(COMMAND ${compile} RESULT_VARIABLE failed ERROR_VARIABLE output)
if(NOT failed)
    message(FATAL_ERROR "the mistake compiles")
endif()

file(STRINGS ${SOURCE} expected REGEX "// error: ")
if(NOT expected)
    message(FATAL_ERROR "the source has no comment '// error: <words>'")
endif()
foreach(line IN LISTS expected)
    string(REGEX REPLACE ".*// error: " "" words "${line}")
    string(FIND "${output}" "${words}" found)
    if(found EQUAL -1)
        message(FATAL_ERROR "the compiler's message does not contain '${words}':\n${output}")
    endif()
endforeach()
