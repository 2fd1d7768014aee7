# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

# More processes than processors, as root as well: the names of Open MPI 4, 5 and 6, of which each ignores those it does
# not know. Open MPI 6 warns about the name of 5, unless its own is there too. Leaks of the library are known by its name
# somewhere in the stack of an allocation, and only the slow unwinder finds the whole stack.
set(cellar_mpi_environment
    OMP_PROC_BIND=false
    OMPI_ALLOW_RUN_AS_ROOT=1
    OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    OMPI_MCA_rmaps_base_oversubscribe=1
    PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe
    PRTE_MCA_mapby=:oversubscribe
    ASAN_OPTIONS=fast_unwind_on_malloc=0
    "LSAN_OPTIONS=suppressions=${CMAKE_CURRENT_LIST_DIR}/lsan.txt:print_suppressions=0"
)

# cellar_mpi_command(<test> <executable> <ranks> [<argument>...]): a test that runs a program on several ranks.
function(cellar_mpi_command name program ranks)
    add_test(NAME ${name} COMMAND ${MPIEXEC_EXECUTABLE} ${MPIEXEC_NUMPROC_FLAG} ${ranks} $<TARGET_FILE:${program}> ${ARGN})
    set_tests_properties(${name} PROPERTIES ENVIRONMENT "${cellar_mpi_environment}" PROCESSORS 2 TIMEOUT 300)
endfunction()
