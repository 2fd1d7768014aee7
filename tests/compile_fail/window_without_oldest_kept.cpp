// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A window without `oldest_kept`. Each compiler must name the missing function.
// error: has_oldest_kept
// error: oldest_kept(p)
#include <cellar/window/window.hpp>

struct WithoutOldestKept {
    cellar::Position oldest_visible(cellar::Position p) const { return p; }
#ifdef CORRECTED
    cellar::Position oldest_kept(cellar::Position p) const {
        return p;
    }
#endif
    std::int32_t sinks() const {
        return 0;
    }
    WithoutOldestKept resolved(std::int32_t, std::int32_t) const {
        return *this;
    }
    std::int64_t cells(std::int32_t, std::int32_t, std::int32_t) const {
        return 0;
    }
};

template <cellar::WindowPolicy>
struct User {};

User<WithoutOldestKept> user;
