// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/contract.hpp>
#include <cellar/crc/crc32.hpp>
#include <cellar/files/detail/header_parser.hpp>
#include <cellar/files/detail/open_file.hpp>
#include <cellar/files/file_options.hpp>
#include <cellar/files/file_result.hpp>
#include <cellar/files/little_endian.hpp>
#include <cellar/files/tensor.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace cellar {

namespace detail {

struct ReaderAccess; // of detail/loaded_arrays.hpp

} // namespace detail

/// Bytes of one tensor, little-endian, at an address that suits its elements. They are valid until the next call.
struct FilePiece {
    const StoredTensor* tensor = nullptr; ///< `nullptr` at the end of the file
    std::uint64_t offset = 0;             ///< of the first byte, in the tensor
    std::span<const std::byte> bytes;
};

/// Reads a file that `FileWriter` wrote. `open` checks everything but the data: length, header, its checksum, that the
/// tensors cover the data exactly. `next` delivers the data in the order of the plan, and checks its checksum at the
/// end. Whoever must not use a byte of a damaged file calls `verify` first, or drops what was read if `next` fails.
class FileReader {
public:
    /// Reads the header and checks it; reads no data. Fails if the file is missing, too short, or not one of ours.
    static FileResult<FileReader> open(const std::filesystem::path& path, ReadOptions options = {},
                                       Where where = Where::current()) {
        const detail::Caller caller{where};
        FileReader reader{path, std::move(options)};
        if (auto read = reader.read_header(); !read) return std::move(read).error();
        return reader;
    }

    const std::map<std::string, std::string>& metadata() const { return header_.metadata; }

    /// The entry of the metadata, or `nullptr`.
    const std::string* metadata(const std::string& key) const {
        const auto found = header_.metadata.find(key);
        return found == header_.metadata.end() ? nullptr : &found->second;
    }

    /// In the order of the data.
    std::span<const StoredTensor> tensors() const { return tensors_; }

    /// The tensor of that name, or `nullptr`.
    const StoredTensor* find(std::string_view name) const {
        const auto found = by_name_.find(name);
        return found == by_name_.end() ? nullptr : &tensors_[found->second];
    }

    /// The bytes of all tensors together, padding included.
    std::uint64_t total_bytes() const { return header_.data_bytes; }
    /// True if the file is mapped, so that pieces need no buffer.
    bool is_mapped() const { return file_.is_mapped(); }

    /// The next bytes, all of one tensor, which add to the checksum. Pieces of a tensor but the last have `at_most`
    /// bytes rounded down to a multiple of 64, or 64 if `at_most` is less; the last may have fewer. Empty tensors have
    /// no piece. A piece without a tensor means that all data was read and its checksum is the stored one. Allocates a
    /// buffer of that size, unless the file is mapped.
    FileResult<FilePiece> next(std::size_t at_most = default_piece) {
        return next_into([](const StoredTensor&, std::uint64_t) -> std::byte* { return nullptr; }, at_most);
    }

    /// The same, and copies the piece to `place(tensor, offset)`, where there is room for it, unless that is null. A
    /// copy costs less than after `next`, because it is part of the pass for the checksum. The bytes of the result are
    /// then those of the copy, little-endian. Without `at_most`, pieces have 256 KiB, or 4 MiB if the file is mapped.
    template <class Place>
    FileResult<FilePiece> next_into(Place place) {
        return next_into(place, is_mapped() ? large_piece : default_piece);
    }
    template <class Place>
    FileResult<FilePiece> next_into(Place place, std::size_t at_most) {
        return next_into(place, at_most, total_bytes() > cached_bytes);
    }

    /// Starts again at the first byte.
    void rewind() {
        at_ = 0;
        done_ = 0;
        crc_ = {};
    }

    /// Reads everything once, for the checksum alone. Then starts again.
    FileResult<void> verify() {
        rewind();
        for (;;) {
            auto piece = next();
            if (!piece || piece->tensor == nullptr) rewind();
            if (!piece) return std::move(piece).error();
            if (piece->tensor == nullptr) return {};
        }
    }

    /// Copies a whole tensor of this file, whose type and size must be those of `elements`. Reads in any order, so it
    /// adds nothing to the checksum: `verify` comes first.
    template <class E>
    FileResult<void> read(const StoredTensor& tensor, std::span<E> elements, Where where = Where::current()) {
        const detail::Caller caller{where};
        CELLAR_EXPECTS(tensor.dtype == dtype_of<E> && tensor.bytes == elements.size_bytes(),
                       "read: ", elements.size_bytes(), " bytes of type ", to_string(dtype_of<E>), " for tensor ",
                       tensor.name, ", expected ", tensor.bytes, " of type ", to_string(tensor.dtype));
        CELLAR_EXPECTS(tensor.bytes <= total_bytes() && tensor.begin <= total_bytes() - tensor.bytes, "read: tensor ",
                       tensor.name, " has ", tensor.bytes, " bytes from byte ", tensor.begin,
                       " on, expected a tensor of this file, which has ", total_bytes(), " bytes of data");
        const std::span<std::byte> bytes = std::as_writable_bytes(elements);
        if (auto read = file_.copy(data_begin_ + tensor.begin, bytes); !read) return read;
        detail::swap_to_little_endian(bytes, sizeof(E));
        return {};
    }

private:
    friend struct detail::ReaderAccess;

    static constexpr std::size_t default_piece = std::size_t{256} << 10;
    static constexpr std::size_t large_piece = std::size_t{4} << 20;
    /// A copy of at most so many bytes is still in a cache of the processor when it is used.
    static constexpr std::uint64_t cached_bytes = std::uint64_t{4} << 20;

    FileReader(const std::filesystem::path& path, ReadOptions options)
        : options_{std::move(options)}, file_{path, options_.files} {}

    FileResult<void> read_header() {
        if (auto opened = file_.open(); !opened) return opened;
        auto text = file_.header();
        if (!text) return std::move(text).error();
        auto header = detail::HeaderCheck::run(*text, file_.size());
        if (!header) return file_.error(header.error().reason, header.error().message);
        data_begin_ = detail::prefix_bytes + text->size();
        header_ = *std::move(header);
        list_tensors(std::move(header_.tensors));
        return options_.access == FileAccess::map ? file_.map() : FileResult<void>{};
    }

    void list_tensors(std::vector<StoredTensor> all) {
        for (StoredTensor& tensor : all) {
            if (tensor.name.starts_with(detail::padding_name)) continue;
            by_name_.emplace(tensor.name, tensors_.size());
            tensors_.push_back(std::move(tensor));
        }
    }

    /// As `next_into`, for places in memory that was allocated just now. Its zeros are still in the caches, so nothing
    /// is written past the caches, and a stream is read to its place at once.
    template <class Place>
    FileResult<FilePiece> next_into_new(Place place) {
        return next_into(place, is_mapped() ? large_piece : default_piece, false);
    }

    bool is_done(const StoredTensor& tensor) const { return tensor.bytes == 0 || done_ == tensor.begin + tensor.bytes; }

    template <class Place>
    FileResult<FilePiece> next_into(Place place, std::size_t at_most, bool past_caches) {
        constexpr std::size_t unit = detail::tensor_alignment;
        const std::size_t length = std::max(at_most / unit, std::size_t{1}) * unit;
        while (at_ < tensors_.size() && is_done(tensors_[at_])) ++at_;
        const bool is_end = at_ == tensors_.size();
        const std::uint64_t begin = is_end ? total_bytes() : tensors_[at_].begin;
        while (done_ < begin) { // padding
            if (auto skipped = take(begin - done_, length, nullptr, false); !skipped) return std::move(skipped).error();
        }
        if (is_end) return end_of_data();
        const std::uint64_t offset = done_ - begin;
        std::byte* const to = place(std::as_const(tensors_[at_]), offset);
        auto bytes = take(tensors_[at_].bytes - offset, length, to, past_caches);
        if (!bytes) return std::move(bytes).error();
        return FilePiece{&tensors_[at_], offset, *bytes};
    }

    /// The next bytes of the data, `left` or `length` of them, copied to `to` unless that is null.
    FileResult<std::span<const std::byte>> take(std::uint64_t left, std::size_t length, std::byte* to,
                                                bool past_caches) {
        const auto count = static_cast<std::size_t>(std::min<std::uint64_t>(left, length));
        const bool is_copied = to != nullptr && (past_caches || is_mapped());
        auto bytes = to == nullptr || is_copied ? file_.bytes(data_begin_ + done_, count, length)
                                                : file_.bytes_to(data_begin_ + done_, {to, count});
        if (!bytes) return bytes;
        // First, because it may throw: then the next call delivers these bytes.
        if (options_.progress) options_.progress(done_ + count, total_bytes());
        is_copied ? crc_.add_copy(*bytes, to, past_caches) : crc_.add(*bytes);
        done_ += count;
        return std::span<const std::byte>{to == nullptr ? bytes->data() : to, count};
    }

    FileResult<FilePiece> end_of_data() const {
        if (detail::hex_digits(crc_.value()) == header_.data_crc) return FilePiece{};
        return file_.error(FileReason::altered, "the data was altered: its checksum is "
                                                    + detail::hex_digits(crc_.value()) + ", and "
                                                    + detail::in_quotes(header_.data_crc) + " is stored");
    }

    ReadOptions options_;
    detail::OpenFile file_;
    detail::Header header_; ///< its tensors are below
    std::uint64_t data_begin_ = 0;
    std::vector<StoredTensor> tensors_; ///< without padding
    std::map<std::string, std::size_t, std::less<>> by_name_;
    std::size_t at_ = 0;     ///< the tensor of the next byte
    std::uint64_t done_ = 0; ///< bytes of data that were delivered or skipped
    detail::Crc32 crc_;
};

} // namespace cellar
