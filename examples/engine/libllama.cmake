# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

# Looks for ggml and libllama, and says in `CELLAR_HAS_LIBLLAMA` whether both are there. Not by the package of libllama,
# which would define a target called `llama`, as the examples do.
option(CELLAR_WITH_GGML "Build what runs on ggml, where it is installed" ON)
if(CELLAR_WITH_GGML)
    find_package(ggml 0.27 QUIET)
    find_library(CELLAR_LIBLLAMA llama)
    find_path(CELLAR_LIBLLAMA_HEADERS llama.h)
endif()
set(CELLAR_HAS_LIBLLAMA OFF)
if(TARGET ggml::ggml AND CELLAR_LIBLLAMA AND CELLAR_LIBLLAMA_HEADERS)
    set(CELLAR_HAS_LIBLLAMA ON)
endif()
