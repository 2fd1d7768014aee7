// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/prefix/detail/pin.hpp>

#include <cstdint>

namespace cellar {

/// While it exists, the tree does not evict a prefix: neither for want of room, nor by `clear`. `PrefixTree::pin`
/// makes it. Move-only. It may outlive the tree, and then pins nothing. It is used by the thread that uses the tree.
class PrefixPin {
public:
    /// Pins nothing.
    PrefixPin() = default;

    /// How many tokens the pinned prefix has; 0 if it pins nothing.
    std::int32_t length() const { return pin_.empty() ? 0 : length_; }

    /// Pins nothing any more.
    void release() noexcept { pin_.release(); }

    /// For cellar itself.
    PrefixPin(detail::Evictable& node, std::int32_t length) : pin_{node}, length_{length} {}

private:
    detail::Pin pin_;
    std::int32_t length_ = 0;
};

} // namespace cellar
