// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/batch.hpp>
#include <cellar/base/ids.hpp>
#include <cellar/base/result.hpp>
#include <cellar/memory/park.hpp>
#include <cellar/memory/two_phase.hpp>
#include <cellar/serve/request_memory.hpp>

#include <cstdint>
#include <new>
#include <optional>
#include <span>
#include <utility>

namespace cellar::serve {

/// What becomes of a request that is put back.
enum class PutBack {
    /// It goes to the host, and comes back where it was: `cellar::park`. With `CacheLimits::offload_as`, it comes back
    /// rounded.
    park,
    /// Nothing is kept. So it is anyway for a memory that has no data, and where the host has no room.
    compute_again,
};

/// A memory for requests that share nothing. It must outlive this, and must not be moved.
template <HasSnapshots M>
class PlainMemory {
public:
    using kept_type = std::optional<SnapshotOf<M>>;

    explicit PlainMemory(M& memory, PutBack put_back = PutBack::park) : memory_{&memory}, put_back_{put_back} {}

    Result<void> enter(const Admission& a, kept_type& parked) {
        const Sequence s = a.sequence;
        Result<void> entered = detail::promise_any(*memory_, s, a.room + a.spare);
        if (!entered) return entered;
        try {
            if (parked) entered = unpark(*memory_, s, *parked); // takes cells that were promised
            if (entered) entered = detail::promise_any(*memory_, s, a.promised ? a.room - next(s).value : 0);
        } catch (...) {
            clear(s);
            throw;
        }
        if (!entered) clear(s);
        return entered;
    }

    std::int32_t sequences() const { return memory_->sequences(); }
    std::int32_t batch() const { return detail::largest_batch(*memory_); }
    std::int64_t room() const { return detail::room_of(*memory_); }

    Position next(Sequence s) const { return memory_->next(s); }

    auto begin(const Batch& batch) { return memory_->begin(batch); }

    void keep(Sequence, std::span<const std::int32_t>, std::uint64_t) {}

    kept_type put_back(Sequence s, [[maybe_unused]] std::span<const std::int32_t> tokens, std::uint64_t) {
        kept_type parked;
        if constexpr (detail::holds_data<M>) {
            try {
                if (put_back_ == PutBack::park && !tokens.empty())
                    if (auto kept = park(*memory_, s)) parked.emplace(*std::move(kept));
            } catch (const std::bad_alloc&) {}
        }
        clear(s);
        return parked;
    }

    void clear(Sequence s) { memory_->remove(s, Position{0}, to_end).value(); }

    Result<void> remove(Sequence s, Position begin, Position end) { return memory_->remove(s, begin, end); }

private:
    M* memory_;
    PutBack put_back_;
};

} // namespace cellar::serve
