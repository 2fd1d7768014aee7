// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "backend/mask_writer.hpp"
#include <cellar/backend/eigen.hpp>
#include <cellar/backend/host.hpp>

#include <concepts>

using namespace cellar;

static_assert(backend<HostBackend> && backend<EigenBackend>);
static_assert(!backend<int>);

static_assert(writes_masks<cellar_test::MaskWriter> && backend<cellar_test::MaskWriter>);
static_assert(!writes_masks<HostBackend> && !writes_masks<EigenBackend>);
static_assert(!sends_cells<HostBackend> && !sends_cells<EigenBackend>);

// One owner of each buffer.
static_assert(std::movable<HostBackend::Buffer<float>>);
static_assert(!std::copyable<HostBackend::Buffer<float>>);
static_assert(std::movable<EigenBackend::Buffer<half>>);
static_assert(!std::copyable<EigenBackend::Buffer<half>>);

namespace {

struct WithoutFence : HostBackend {
    void fence() const = delete;
};
struct WithoutMove : HostBackend {
    void move() const {}
};
struct WithoutTurn : HostBackend {
    void turn() const {}
};
struct WithoutGather : HostBackend {
    void gather() const {}
};

} // namespace

static_assert(!backend<WithoutFence>);
static_assert(!backend<WithoutMove>);
static_assert(!backend<WithoutTurn>);
static_assert(!backend<WithoutGather>);
