# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

# Compiles SOURCE to assembly with COMPILER and OPTION, which may be empty, and looks for the INSTRUCTIONS: regular
# expressions, separated by commas.
execute_process(
    COMMAND ${COMPILER} -std=c++20 -O2 -S -I ${INCLUDE} ${OPTION} ${SOURCE} -o -
    OUTPUT_VARIABLE assembly
    ERROR_VARIABLE errors
    RESULT_VARIABLE failed
)
if(failed)
    message(FATAL_ERROR "it does not compile:\n${errors}")
endif()
string(TOLOWER "${assembly}" assembly)
string(REPLACE "," ";" instructions "${INSTRUCTIONS}")
foreach(instruction IN LISTS instructions)
    if(NOT assembly MATCHES "[\t ]${instruction}[\t ,\n]")
        list(APPEND missing "${instruction}")
    endif()
endforeach()
if(missing)
    message(FATAL_ERROR "the assembly lacks: ${missing}")
endif()
