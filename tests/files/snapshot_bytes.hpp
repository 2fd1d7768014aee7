// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "disk.hpp"
#include <cellar/files/snapshot_file.hpp>

#include <doctest/doctest.h>

namespace disk {

/// The bytes of a file with the snapshot.
template <class M>
Bytes saved(M& memory, const cellar::SnapshotOf<M>& snapshot, cellar::SaveOptions options = {}) {
    Disk disk;
    options.write.files = &disk;
    REQUIRE(save("f", memory, snapshot, options));
    return disk.now.at("f")->now;
}

template <class M>
cellar::FileResult<cellar::SnapshotOf<M>> loaded(const Bytes& bytes, M& memory, cellar::LoadOptions options = {}) {
    Disk disk;
    disk.put("f", bytes);
    options.read.files = &disk;
    return load("f", memory, options);
}

} // namespace disk
