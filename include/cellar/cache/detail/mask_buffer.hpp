// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/backend/backend.hpp>
#include <cellar/base/memory_bytes.hpp>
#include <cellar/base/view.hpp>
#include <cellar/base/zeroed.hpp>
#include <cellar/book/cell_set.hpp>
#include <cellar/book/words.hpp>
#include <cellar/cache/detail/mask.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

namespace cellar::detail {

/// Of the largest mask that a memory can have.
struct MaskExtents {
    std::int64_t tokens;
    std::int64_t cells;
};

/// The memory of a pass's mask: memory of the process, which the host writes.
template <class Backend>
class MaskBuffer {
public:
    explicit MaskBuffer(Backend&) {}

    /// Once there was a mask of floats of so many tokens and cells, and none with more of either.
    static constexpr std::int64_t bytes_for(std::int64_t tokens, std::int64_t cells) {
        return bytes_of<float>(tokens * cells);
    }

    /// Room for a mask. Grows by doubling, but not beyond `most`, that of the largest possible mask.
    template <class T>
    StridedView<T, 2> reserve(Backend&, std::int64_t tokens, std::int64_t history, const MaskExtents& most) {
        const std::int64_t bytes = bytes_of<T>(tokens * history);
        if (bytes > memory_.size())
            memory_ = ZeroedArray<std::byte>{
                std::max(bytes, std::min(2 * memory_.size(), bytes_of<T>(most.tokens * most.cells)))};
        return contiguous_view(reinterpret_cast<T*>(memory_.data()), tokens, history);
    }

    template <class T>
    void write_all_visible(Backend&, StridedView<T, 2> mask) {
        std::fill_n(mask.pointer, mask.size(), MaskValues<T>::visible);
    }

    /// Writes the mask of the book's open pass.
    template <class T, class Book>
    void write(Backend&, Book& book, StridedView<T, 2> mask) {
        write_mask(book, mask);
    }

private:
    ZeroedArray<std::byte> memory_;
};

/// For a backend that writes masks itself: the host writes bits, and the backend expands them in its own memory.
template <WritesMasks Backend>
class MaskBuffer<Backend> {
public:
    explicit MaskBuffer(Backend& backend) : memory_{backend.template allocate<float>(0)} {}
    static constexpr std::int64_t bytes_for(std::int64_t tokens, std::int64_t cells) {
        return bytes_of<float>(tokens * cells) + bytes_of<Word>(tokens * words_for(cells));
    }

    template <class T>
    StridedView<T, 2> reserve(Backend& backend, std::int64_t tokens, std::int64_t history, const MaskExtents& most) {
        const std::int64_t words = tokens * words_for(history);
        if (words > bits_.size())
            bits_ = ZeroedArray<Word>{std::max(words, std::min(2 * bits_.size(), most.tokens * words_for(most.cells)))};
        const std::int64_t floats = floats_for<T>(tokens * history);
        if (floats > memory_.size()) {
            auto larger = backend.template allocate<float>(
                std::max(floats, std::min(2 * memory_.size(), floats_for<T>(most.tokens * most.cells))));
            backend.fence(); // enqueued kernels may use the old memory
            memory_ = std::move(larger);
        }
        return contiguous_view(reinterpret_cast<T*>(memory_.data()), tokens, history);
    }

    template <class T>
    void write_all_visible(Backend& backend, StridedView<T, 2> mask) {
        const std::int64_t words = mask.extent(0) * words_for(mask.extent(1));
        std::fill_n(bits_.data(), words, ~Word{0});
        expand(backend, mask);
    }

    /// Writes the mask of the book's open pass.
    template <class T, class Book>
    void write(Backend& backend, Book& book, StridedView<T, 2> mask) {
        const CellRange history = book.pass().history;
        const std::int64_t words = words_for(history.count);
        book.for_each_visible_row([&](std::int64_t token, const CellSet& visible) {
            write_mask_bits(visible, history, bits_.data() + token * words);
        });
        expand(backend, mask);
    }

private:
    template <class T>
    static constexpr std::int64_t floats_for(std::int64_t values) {
        constexpr std::int64_t per_float = sizeof(float) / sizeof(T);
        return (values + per_float - 1) / per_float;
    }

    template <class T>
    void expand(Backend& backend, StridedView<T, 2> mask) {
        const std::int64_t words = mask.extent(0) * words_for(mask.extent(1));
        const std::span<const Word> bits{bits_.data(), static_cast<std::size_t>(words)};
        backend.write_mask(bits, MaskValues<T>::visible, MaskValues<T>::hidden, mask);
    }

    typename Backend::template Buffer<float> memory_;
    ZeroedArray<Word> bits_;
};

} // namespace cellar::detail
