// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "jobs.hpp"
#include <cellar/base/zeroed.hpp>
#include <cellar/cellar.hpp>
#include <cellar/files/file_reader.hpp>
#include <cellar/files/file_writer.hpp>
#include <cellar/files/snapshot_file.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <functional>
#include <numeric>
#include <span>
#include <string>
#include <unistd.h>
#include <utility>
#include <vector>

/// Files beside write(), read() and memcpy of the same bytes, by turns. A cell stands for 4096 bytes. What is read is
/// in the memory of the operating system already.
namespace cellar::bench {
namespace {

using Bytes = std::vector<std::byte>;

void expect(bool condition) {
    if (!condition) std::abort();
}

/// Four tensors of equal size, and the files that hold them.
class Scene {
public:
    explicit Scene(Cell cells)
        : from(static_cast<std::size_t>(cells) * 4096),
          to(from.size(), std::byte{1}),
          folder_{std::filesystem::temp_directory_path() / ("cellar-bench-" + std::to_string(::getpid()))} {
        std::uint32_t state = 1;
        for (std::byte& b : from) b = static_cast<std::byte>((state = state * 1664525U + 1013904223U) >> 24);
        std::filesystem::create_directory(folder_);
    }
    ~Scene() { std::filesystem::remove_all(folder_); }
    Scene(const Scene&) = delete;
    Scene& operator=(const Scene&) = delete;

    void write(bool sync) {
        FilePlan plan{{}, {{"model", "bench"}}};
        const std::size_t tensor = from.size() / 4;
        for (int k = 0; k < 4; ++k) plan.tensors.push_back({"t" + std::to_string(k), Dtype::u8, {tensor}});
        auto writer = FileWriter::create(folder_ / "cellar", plan, {.sync = sync});
        expect(writer.has_value());
        for (std::size_t at = 0; at < from.size(); at += piece)
            expect(writer->append(std::span{from}.subspan(at, piece)).has_value());
        expect(writer->finish().has_value());
    }

    /// Also to another file, which replaces the old one.
    void plain_write(bool sync) {
        const auto other = folder_ / "other";
        const int file = ::open(other.c_str(), O_WRONLY | O_CREAT | O_EXCL, 0666);
        expect(file >= 0);
        for (std::size_t at = 0; at < from.size(); at += piece)
            expect(::write(file, from.data() + at, piece) == static_cast<::ssize_t>(piece));
        if (sync) expect(::fsync(file) == 0);
        ::close(file);
        std::filesystem::rename(other, folder_ / "plain");
    }

    /// Into `to`, and checks the checksum.
    void read(FileAccess access) {
        auto reader = FileReader::open(folder_ / "cellar", {.access = access});
        expect(reader.has_value());
        const std::size_t tensor = from.size() / 4;
        const auto place = [&](const StoredTensor& t, std::uint64_t offset) {
            return to.data() + static_cast<std::size_t>(&t - reader->tensors().data()) * tensor + offset;
        };
        for (bool is_end = false; !is_end;) {
            const auto next = reader->next_into(place);
            expect(next.has_value());
            is_end = next->tensor == nullptr;
        }
    }

    /// The file that ours reads too, so that as much of it is in the caches.
    void plain_read(std::byte* out) {
        const int file = ::open((folder_ / "cellar").c_str(), O_RDONLY);
        expect(file >= 0);
        for (std::size_t at = 0; at < to.size(); at += piece)
            expect(::read(file, out + at, piece) == static_cast<::ssize_t>(piece));
        ::close(file);
    }
    /// Into `to`.
    void plain_read() { plain_read(to.data()); }
    /// Into memory that is new.
    void new_read() { plain_read(ZeroedArray<std::byte>{static_cast<std::int64_t>(to.size())}.data()); }
    void new_copy() {
        ZeroedArray<std::byte> copy{static_cast<std::int64_t>(to.size())};
        std::memcpy(copy.data(), from.data(), from.size());
    }

    /// Through a buffer into `to`, as the reader does.
    void buffered_read() {
        Bytes buffer(std::size_t{256} << 10);
        const int file = ::open((folder_ / "cellar").c_str(), O_RDONLY);
        expect(file >= 0);
        for (std::size_t at = 0; at < to.size(); at += buffer.size()) {
            expect(::read(file, buffer.data(), buffer.size()) == static_cast<::ssize_t>(buffer.size()));
            std::memcpy(to.data() + at, buffer.data(), buffer.size());
        }
        ::close(file);
    }

    std::filesystem::path path(const char* name) const { return folder_ / name; }

    Bytes from;
    Bytes to;

private:
    static constexpr std::size_t piece = std::size_t{1} << 20;
    std::filesystem::path folder_;
};

/// What ours is compared with, as a counter.
struct Other {
    const char* name;
    std::function<void()> run;
    Stopwatch watch = {};
};

/// Runs all by turns.
template <class Ours>
void compare(benchmark::State& state, Ours ours, std::vector<Other> others) {
    const auto run_others = [&] {
        for (Other& other : others) {
            other.watch.start();
            other.run();
            other.watch.stop();
        }
    };
    run_others();
    for (Other& other : others) other.watch.forget();
    measure(state, [&](Stopwatch& watch) {
        watch.start();
        ours();
        watch.stop();
        run_others();
    });
    for (Other& other : others) state.counters[other.name] = other.watch.median();
}

/// A cache of 4096 bytes for each cell, all of which sequence 0 has.
Cache<StandardV<half>> full_cache(Cell cells) {
    constexpr std::int32_t batch = 1024;
    Cache<StandardV<half>> cache{{.layers = 4, .kv_heads = 2, .head_dim = 128},
                                 {.sequences = 1, .capacity = cells, .batch = batch}};
    const std::vector<half> rows(std::size_t{batch} * 2 * 128, half{0.5F});
    std::vector<std::int32_t> positions(batch);
    const std::vector<std::int32_t> sequences(batch);
    for (Cell first = 0; first < cells; first += batch) {
        std::iota(positions.begin(), positions.end(), first);
        auto pass = cache.begin({positions, sequences}).value();
        for (int layer = 0; layer < 4; ++layer) pass.put(layer, rows, rows);
        pass.commit();
    }
    return cache;
}

/// `load` of a snapshot, which is new memory, beside reading or copying as many bytes to new memory.
void add_load(Cell cells, FileAccess access, const std::string& name) {
    add(name, [cells, access](benchmark::State& state) {
        Scene scene{cells};
        auto cache = full_cache(cells);
        expect(save(scene.path("cellar"), cache, Sequence{0}, {.write = {.sync = false}}).has_value());
        const auto ours = [&] { expect(load(scene.path("cellar"), cache, {.read = {.access = access}}).has_value()); };
        const bool is_map = access == FileAccess::map;
        compare(state, ours, {{is_map ? "memcpy" : "plain", [&] { is_map ? scene.new_copy() : scene.new_read(); }}});
    });
}

std::string name_of(const char* job, const char* how, Cell cells) {
    return std::string{job} + '/' + how + "/1/" + std::to_string(cells / 1024) + "k/cellar";
}

} // namespace

void add_files() {
    for (const Cell cells : {4 * 1024, 32 * 1024}) {
        for (const bool sync : {false, true}) {
            const auto write = [cells, sync](benchmark::State& state) {
                Scene scene{cells};
                const bool before = std::exchange(real_time_only, true); // the disk
                compare(state, [&] { scene.write(sync); }, {{"plain", [&] { scene.plain_write(sync); }}});
                real_time_only = before;
            };
            add(name_of("file_write", sync ? "synced" : "cached", cells), write);
        }
        const auto read = [cells](benchmark::State& state) {
            Scene scene{cells};
            scene.write(false);
            const auto ours = [&] { scene.read(FileAccess::stream); };
            compare(state, ours,
                    {{"plain", [&] { scene.plain_read(); }}, {"buffered", [&] { scene.buffered_read(); }}});
            ours();
            expect(scene.to == scene.from);
        };
        add(name_of("file_read", "stream", cells), read);
        const auto load = [cells](benchmark::State& state) {
            Scene scene{cells};
            scene.write(false);
            const auto ours = [&] { scene.read(FileAccess::map); };
            const auto copy = [&] { std::memcpy(scene.to.data(), scene.from.data(), scene.to.size()); };
            compare(state, ours, {{"memcpy", copy}});
            scene.to.assign(scene.to.size(), {});
            ours();
            expect(scene.to == scene.from);
        };
        add(name_of("file_read", "map", cells), load);
        add_load(cells, FileAccess::stream, name_of("file_load", "stream", cells));
        add_load(cells, FileAccess::map, name_of("file_load", "map", cells));
    }
}

} // namespace cellar::bench
