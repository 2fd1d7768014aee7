// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// error: has_offset
#include <cellar/layout/mapping.hpp>

struct WithoutOffset {
    static constexpr cellar::Segment segment = cellar::Segment::element;
    static constexpr std::int32_t segment_cells = 1;
    WithoutOffset(std::int64_t, int, int) {}
    std::int64_t cells() const { return 1; }
    int heads() const { return 1; }
    int dim() const { return 1; }
    std::int64_t required_size() const { return 1; }
#ifdef CORRECTED
    std::int64_t operator()(std::int64_t, std::int64_t, std::int64_t) const {
        return 0;
    }
#endif
    template <class T>
    T* view(T* data, cellar::CellRange) const {
        return data;
    }
};

template <cellar::LayoutMapping>
struct User {};

User<WithoutOffset>* user;
