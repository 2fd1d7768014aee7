// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/contract.hpp>
#include <cellar/files/detail/header_text.hpp>
#include <cellar/files/detail/unfinished_file.hpp>
#include <cellar/files/file_options.hpp>
#include <cellar/files/file_result.hpp>
#include <cellar/files/little_endian.hpp>
#include <cellar/files/tensor.hpp>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace cellar {

/// Writes a safetensors file: the plan first, then the data in the order of the plan, then `finish`. Until `finish`
/// succeeds, the file of that name is as it was. The data goes to a file of another name in the same folder,
/// `NAME.HEX.tmp`, which a failure or the destructor removes; only a crash leaves it behind.
///
/// Needs 2 MiB of memory, and as much as the header. A symbolic link is replaced, not followed. Two writers of one
/// path do not disturb each other: the last one to finish wins.
class FileWriter {
public:
    /// Creates the other file. A plan with two tensors of one name, or with text that is not UTF-8, is a violation.
    static FileResult<FileWriter> create(const std::filesystem::path& path, const FilePlan& plan,
                                         WriteOptions options = {}, Where where = Where::current()) {
        const detail::Caller caller{where};
        FileWriter writer{path, plan, std::move(options)};
        if (auto created = writer.file_.create(writer.data_begin() + writer.total_bytes(), writer.options_.permissions);
            !created)
            return std::move(created).error();
        writer.skip_padding();
        return writer;
    }

    /// The next bytes of the current tensor, little-endian. More bytes than are missing are a violation. After an
    /// error, every call returns it.
    FileResult<void> append(std::span<const std::byte> bytes, Where where = Where::current()) {
        const detail::Caller caller{where};
        if (error_) return *error_;
        CELLAR_EXPECTS(at_ < header_.tensors().size() || bytes.empty(), "append: ", bytes.size(),
                       " bytes after the last tensor, expected none");
        if (bytes.empty()) return {};
        const StoredTensor& tensor = header_.tensors()[at_];
        CELLAR_EXPECTS(bytes.size() <= tensor.bytes - in_tensor_, "append: ", bytes.size(), " bytes for tensor ",
                       tensor.name, ", expected at most the ", tensor.bytes - in_tensor_, " that are missing");
        in_tensor_ += bytes.size();
        add(bytes);
        if (in_tensor_ == tensor.bytes) next_tensor();
        return status();
    }

    /// The same from elements of this machine.
    template <class E>
    FileResult<void> append_elements(std::span<const E> elements, Where where = Where::current()) {
        return append_units(std::as_bytes(elements), sizeof(E), where);
    }
    /// The same from the bytes of elements that have so many each.
    FileResult<void> append_units(std::span<const std::byte> units, std::size_t unit_bytes,
                                  Where where = Where::current()) {
        if constexpr (std::endian::native == std::endian::little) return append(units, where);
        std::vector<std::byte> bytes{units.begin(), units.end()};
        detail::swap_to_little_endian(bytes, unit_bytes);
        return append(bytes, where);
    }

    /// Writes the header, syncs, and gives the file its name. A plan whose data is incomplete is a violation. If only
    /// the last step fails, the sync of the folder, then the new file is in place, and may be lost with the power. A
    /// second call after a success is a violation.
    FileResult<void> finish(Where where = Where::current()) {
        const detail::Caller caller{where};
        CELLAR_EXPECTS(!is_finished_, "finish: the file is finished, expected a new one");
        CELLAR_EXPECTS(error_ || at_ == header_.tensors().size(), "finish: tensor ", name_of_next(),
                       " is not complete, expected all of its bytes");
        if (!error_) flush();
        if (!error_) {
            const std::string beginning = header_.finished(crc_.value());
            check(file_.write(std::as_bytes(std::span{beginning}), 0));
        }
        if (!error_) check(file_.publish(options_.sync));
        is_finished_ = !error_;
        return status();
    }

    /// Bytes of data that are written, padding included.
    std::uint64_t bytes_done() const { return done_; }
    /// What `bytes_done` is at the end.
    std::uint64_t total_bytes() const { return header_.data_bytes(); }

private:
    /// The operating system keeps what is written at once in large pages, so that mapping them has few page faults.
    static constexpr std::size_t piece = std::size_t{2} << 20;

    FileWriter(const std::filesystem::path& path, const FilePlan& plan, WriteOptions options)
        : header_{plan},
          options_{std::move(options)},
          file_{path, options_.files},
          buffer_{std::make_unique_for_overwrite<std::byte[]>(piece)},
          room_{room_at(header_.data_begin())} {}

    std::uint64_t data_begin() const { return header_.data_begin(); }

    /// Up to the next multiple of a piece in the file, so that all writes but the first and the last are aligned.
    static std::size_t room_at(std::uint64_t offset) { return piece - static_cast<std::size_t>(offset % piece); }

    void next_tensor() {
        ++at_;
        in_tensor_ = 0;
        skip_padding();
    }

    /// Goes on to a tensor with data.
    void skip_padding() {
        constexpr std::byte zeros[detail::tensor_alignment]{};
        for (; at_ < header_.tensors().size(); ++at_) {
            const StoredTensor& tensor = header_.tensors()[at_];
            const bool is_padding = tensor.name.starts_with(detail::padding_name);
            if (is_padding) add(std::span{zeros}.first(static_cast<std::size_t>(tensor.bytes)));
            if (!is_padding && tensor.bytes != 0) return;
        }
    }

    /// Writes whole pieces from where they are, and collects the rest.
    void add(std::span<const std::byte> bytes) {
        while (!bytes.empty() && !error_) {
            const auto now = bytes.first(std::min(bytes.size(), room_ - used_));
            bytes = bytes.subspan(now.size());
            if (used_ == 0 && now.size() == room_) {
                write(now);
                continue;
            }
            std::memcpy(buffer_.get() + used_, now.data(), now.size());
            used_ += now.size();
            if (used_ == room_) flush();
        }
    }

    void flush() {
        if (const std::size_t collected = std::exchange(used_, 0); collected != 0) write({buffer_.get(), collected});
    }

    void write(std::span<const std::byte> bytes) {
        crc_.add(bytes);
        check(file_.write(bytes, data_begin() + done_));
        if (error_) return;
        done_ += bytes.size();
        room_ = room_at(data_begin() + done_);
        if (options_.progress) report();
    }

    /// If the callback throws, the file is abandoned.
    void report() {
        try {
            options_.progress(done_, total_bytes());
        } catch (...) {
            file_.abandon();
            error_ = FileError{FileReason::cannot_write, {}}; // first, because the message needs memory
            error_->message = file_.error("was not written: the progress callback threw an exception").message;
            throw;
        }
    }

    void check(FileResult<void> result) {
        if (result) return;
        error_ = std::move(result).error();
        file_.abandon();
    }

    FileResult<void> status() const {
        if (error_) return *error_;
        return {};
    }

    std::string name_of_next() const { return at_ < header_.tensors().size() ? header_.tensors()[at_].name : ""; }

    detail::HeaderText header_;
    WriteOptions options_;
    detail::UnfinishedFile file_;
    std::unique_ptr<std::byte[]> buffer_;
    std::size_t room_; ///< how many bytes the buffer collects before they are written
    std::size_t used_ = 0;
    std::uint64_t done_ = 0;
    std::size_t at_ = 0;
    std::uint64_t in_tensor_ = 0;
    detail::Crc32 crc_;
    std::optional<FileError> error_;
    bool is_finished_ = false;
};

} // namespace cellar
