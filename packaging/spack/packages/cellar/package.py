# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

# FILL-AT-RELEASE marks what RELEASING.md has you fill in.
from spack.package import *


class Cellar(CMakePackage):
    """Header-only C++20 library for the memory of language models: KV caches, recurrent states and hybrids of both."""

    homepage = "https://example.org/FILL-AT-RELEASE/cellar"
    git = "https://example.org/FILL-AT-RELEASE/cellar.git"
    url = "https://example.org/FILL-AT-RELEASE/cellar/archive/refs/tags/v0.1.0.tar.gz"

    license("Apache-2.0 WITH LLVM-exception")

    version("main", branch="main")
    version("0.1.0", sha256="0000000000000000000000000000000000000000000000000000000000000000")  # FILL-AT-RELEASE

    # All headers are always installed. A variant brings what a component needs.
    variant("eigen", default=False, description="Bring Eigen, for the component eigen")
    variant("kokkos", default=False, description="Bring Kokkos, for the component kokkos")
    variant("dlpack", default=False, description="Bring DLPack, for the component dlpack")
    variant("files", default=False, description="Bring nlohmann-json, for the component files")
    variant("mpi", default=False, description="Bring an MPI library, for the component mpi")

    depends_on("cxx", type="build")
    depends_on("cmake@3.25:", type="build")
    depends_on("eigen@3.4:", when="+eigen")
    depends_on("kokkos@4.5:", when="+kokkos")
    depends_on("dlpack@1.0:", when="+dlpack")
    depends_on("nlohmann-json@3.10:", when="+files")
    depends_on("mpi@3:", when="+mpi")

    conflicts("%gcc@:11", msg="cellar needs g++ 12 or newer")
    conflicts("%clang@:15", msg="cellar needs clang 16 or newer")

    def cmake_args(self):
        return [
            self.define("CELLAR_BUILD_TESTS", False),
            self.define("CELLAR_BUILD_EXAMPLES", False),
            self.define("CELLAR_BUILD_BENCH", False),
            self.define("CELLAR_INSTALL", True),
        ]
