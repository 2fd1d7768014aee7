// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/backend/backend.hpp>
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

/// The memory of a pass's mask: memory of the process, which the host writes.
template <class Backend>
class MaskBuffer {
public:
    explicit MaskBuffer(Backend&) {}

    /// Room for a mask. Grows by doubling at least.
    template <class T>
    StridedView<T, 2> reserve(Backend&, std::int64_t tokens, std::int64_t history) {
        const std::int64_t bytes = tokens * history * static_cast<std::int64_t>(sizeof(T));
        if (bytes > memory_.size()) memory_ = ZeroedArray<std::byte>{std::max(bytes, 2 * memory_.size())};
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

    template <class T>
    StridedView<T, 2> reserve(Backend& backend, std::int64_t tokens, std::int64_t history) {
        const std::int64_t words = tokens * words_for(history);
        if (words > bits_.size()) bits_ = ZeroedArray<Word>{std::max(words, 2 * bits_.size())};
        constexpr std::int64_t per_float = sizeof(float) / sizeof(T);
        const std::int64_t floats = (tokens * history + per_float - 1) / per_float;
        if (floats > memory_.size()) {
            auto larger = backend.template allocate<float>(std::max(floats, 2 * memory_.size()));
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
    void expand(Backend& backend, StridedView<T, 2> mask) {
        const std::int64_t words = mask.extent(0) * words_for(mask.extent(1));
        const std::span<const Word> bits{bits_.data(), static_cast<std::size_t>(words)};
        backend.write_mask(bits, MaskValues<T>::visible, MaskValues<T>::hidden, mask);
    }

    typename Backend::template Buffer<float> memory_;
    ZeroedArray<Word> bits_;
};

} // namespace cellar::detail
