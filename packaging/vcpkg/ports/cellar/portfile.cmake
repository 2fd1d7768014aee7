# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

# FILL-AT-RELEASE marks what RELEASING.md has you fill in. With the hash 0, vcpkg refuses the source and prints its hash.
vcpkg_from_github(
    OUT_SOURCE_PATH SOURCE_PATH
    REPO FILL-AT-RELEASE/cellar
    REF "v${VERSION}"
    SHA512 0 # FILL-AT-RELEASE
    HEAD_REF main
)

set(VCPKG_BUILD_TYPE release) # headers only

vcpkg_cmake_configure(
    SOURCE_PATH "${SOURCE_PATH}"
    OPTIONS
        -DCELLAR_BUILD_TESTS=OFF
        -DCELLAR_BUILD_EXAMPLES=OFF
        -DCELLAR_BUILD_BENCH=OFF
        -DCELLAR_INSTALL=ON
)
vcpkg_cmake_install()
vcpkg_cmake_config_fixup(CONFIG_PATH lib/cmake/cellar)

# The licence is installed as vcpkg wants it, below.
file(REMOVE_RECURSE "${CURRENT_PACKAGES_DIR}/lib" "${CURRENT_PACKAGES_DIR}/share/doc")

vcpkg_install_copyright(FILE_LIST "${SOURCE_PATH}/LICENSE")
file(INSTALL "${CMAKE_CURRENT_LIST_DIR}/usage" DESTINATION "${CURRENT_PACKAGES_DIR}/share/${PORT}")
