// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/backend/backend.hpp>
#include <cellar/base/view.hpp>
#include <cellar/base/zeroed.hpp>
#include <cellar/book/mask.hpp>
#include <cellar/book/words.hpp>
#include <cellar/layout/element.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

namespace cellar {

template <>
struct MaskValues<half> {
    static constexpr half visible = half::from_bits(0);
    static constexpr half hidden = half::from_bits(0xFC00);
};

namespace detail {

/// Where the mask of a pass lies: in memory of the process, where the host writes it.
template <class Backend>
class MaskMemory {
public:
    explicit MaskMemory(Backend&) {}

    /// Room for a mask. Grows by doubling, so that it does so ever more rarely.
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

    template <class T, class Book>
    void write(Backend&, Book& book, StridedView<T, 2> mask) {
        book.write_mask(mask.pointer);
    }

private:
    ZeroedArray<std::byte> memory_;
};

/// The same in memory of a backend that writes masks: the host writes bits, and the backend spells them out.
template <writes_masks Backend>
class MaskMemory<Backend> {
public:
    explicit MaskMemory(Backend& backend) : memory_{backend.template allocate<float>(0)} {}

    template <class T>
    StridedView<T, 2> reserve(Backend& backend, std::int64_t tokens, std::int64_t history) {
        const std::int64_t words = tokens * words_for(history);
        if (words > bits_.size()) bits_ = ZeroedArray<Word>{std::max(words, 2 * bits_.size())};
        constexpr std::int64_t in_a_float = sizeof(float) / sizeof(T);
        const std::int64_t floats = (tokens * history + in_a_float - 1) / in_a_float;
        if (floats > memory_.size()) {
            auto larger = backend.template allocate<float>(std::max(floats, 2 * memory_.size()));
            backend.fence(); // kernels may read or write the old one
            memory_ = std::move(larger);
        }
        return contiguous_view(reinterpret_cast<T*>(memory_.data()), tokens, history);
    }

    template <class T>
    void write_all_visible(Backend& backend, StridedView<T, 2> mask) {
        const std::int64_t words = mask.extent(0) * words_for(mask.extent(1));
        std::fill_n(bits_.data(), words, ~Word{0});
        send(backend, mask);
    }

    template <class T, class Book>
    void write(Backend& backend, Book& book, StridedView<T, 2> mask) {
        book.write_mask_bits(bits_.data());
        send(backend, mask);
    }

private:
    template <class T>
    void send(Backend& backend, StridedView<T, 2> mask) {
        const std::int64_t words = mask.extent(0) * words_for(mask.extent(1));
        const std::span<const Word> bits{bits_.data(), static_cast<std::size_t>(words)};
        backend.write_mask(bits, MaskValues<T>::visible, MaskValues<T>::hidden, mask);
    }

    typename Backend::template Buffer<float> memory_;
    ZeroedArray<Word> bits_;
};

} // namespace detail

} // namespace cellar
