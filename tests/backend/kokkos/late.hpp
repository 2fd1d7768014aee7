// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <Kokkos_Core.hpp>
#include <doctest/doctest.h>

// The memory space below needs a header of Kokkos that is not public.
#ifndef KOKKOS_IMPL_PUBLIC_INCLUDE
#define KOKKOS_IMPL_PUBLIC_INCLUDE
#include <impl/Kokkos_SharedAlloc_timpl.hpp>
#undef KOKKOS_IMPL_PUBLIC_INCLUDE
#endif

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <ostream>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

// A device for tests on machines without one. Kernels and copies that are given to an instance of `Late` wait in a
// queue until a fence of that instance; then they run on the cores of the host. So a missing fence shows as a wrong
// result, as does memory that is overwritten before the work has read it. Memory that is freed while queued work points
// into it fails the test at once.
//
// `Kokkos::fence()` and copies without an instance do not run any queue.

namespace cellar_test {

using HostSpace = Kokkos::DefaultHostExecutionSpace;

/// Work that waits for a fence. It allocates by `malloc`, so that tests which count calls of `new` count those of the
/// library.
class LateQueue {
public:
    LateQueue() { all().push_back(this); }
    LateQueue(const LateQueue&) = delete;
    LateQueue& operator=(const LateQueue&) = delete;
    ~LateQueue() {
        run();
        std::erase(all(), this);
    }

    /// `values`: how many indices the work has.
    template <class Work>
    void add(const Work& work, std::int64_t values) {
        static_assert(alignof(Work) <= alignof(std::max_align_t));
        void* const block = std::malloc(sizeof(ItemOf<Work>));
        if (block == nullptr) throw std::bad_alloc{};
        Item* const item = new (block) ItemOf<Work>{work};
        (last_ == nullptr ? first_ : last_->next) = item;
        last_ = item;
        ++launches;
        indices += values;
    }

    void run() {
        while (first_ != nullptr) {
            Item* const item = first_;
            first_ = item->next;
            if (first_ == nullptr) last_ = nullptr;
            item->run();
            item->~Item();
            std::free(item);
        }
    }

    /// True if queued work of any instance has a pointer into [begin, begin + bytes).
    static bool any_uses(const void* begin, std::size_t bytes) {
        const auto first = reinterpret_cast<std::uintptr_t>(begin);
        for (const LateQueue* queue : all())
            for (const Item* item = queue->first_; item != nullptr; item = item->next)
                if (item->points_into(first, first + bytes)) return true;
        return false;
    }

    std::int64_t launches = 0; ///< kernels and copies so far
    std::int64_t indices = 0;  ///< of all kernels so far

private:
    struct Item {
        virtual ~Item() = default;
        virtual void run() = 0;
        virtual bool points_into(std::uintptr_t begin, std::uintptr_t end) const = 0;
        Item* next = nullptr;
    };

    template <class Work>
    struct ItemOf final : Item {
        explicit ItemOf(const Work& the_work) : work{the_work} {}
        void run() override { work(); }
        bool points_into(std::uintptr_t begin, std::uintptr_t end) const override {
            const auto* const bytes = reinterpret_cast<const std::byte*>(&work);
            for (std::size_t i = 0; i + sizeof(std::uintptr_t) <= sizeof(Work); i += sizeof(std::uintptr_t)) {
                std::uintptr_t word;
                std::memcpy(&word, bytes + i, sizeof(word));
                if (word >= begin && word < end) return true;
            }
            return false;
        }
        alignas(sizeof(std::uintptr_t)) Work work;
    };

    static std::vector<LateQueue*>& all() {
        static std::vector<LateQueue*> queues;
        return queues;
    }

    Item* first_ = nullptr;
    Item* last_ = nullptr;
};

class Late;

/// The memory of `Late`. The host reaches it only by copies, as far as Kokkos checks that.
class LateSpace {
public:
    using memory_space = LateSpace;
    using execution_space = Late;
    using device_type = Kokkos::Device<Late, LateSpace>;
    using size_type = std::size_t;
    using index_type = std::ptrdiff_t;

    static constexpr const char* name() { return "Late"; }

    template <class Space>
    void* allocate(const Space&, const char* label, std::size_t bytes, std::size_t = 0) const {
        return take(label, bytes);
    }
    void* allocate(const char* label, std::size_t bytes, std::size_t = 0) const {
        ++without_instance;
        return take(label, bytes);
    }
    void deallocate(const char* label, void* block, std::size_t bytes, std::size_t = 0) const {
        if (LateQueue::any_uses(block, bytes)) {
            FAIL_CHECK("memory of " << std::string{label} << " is freed while work in flight uses it");
            return; // the work still runs, so its memory stays
        }
        std::free(block);
    }

    static inline int allocations = 0;
    static inline int without_instance = 0; ///< allocations that named no instance: on a machine's first device
    static inline int left = -1;            ///< allocations that succeed from now on; -1 for all
    static inline int fill = 0xa5;          ///< the bytes of new memory

private:
    static void* take(const char* label, std::size_t bytes) {
        void* const block = left == 0 ? nullptr : std::aligned_alloc(256, (bytes + 255) / 256 * 256);
        if (block == nullptr) throw std::runtime_error{std::string{"no memory for "} + label}; // as Kokkos does
        std::memset(block, fill, bytes);
        if (left > 0) --left;
        ++allocations;
        return block;
    }
};

/// Each instance that is made by default has a queue of its own; copies share it.
class Late {
public:
    using execution_space = Late;
    using memory_space = LateSpace;
    using device_type = Kokkos::Device<Late, LateSpace>;
    using size_type = std::size_t;
    using index_type = std::ptrdiff_t;
    using array_layout = Kokkos::LayoutLeft; // as on devices
    using scratch_memory_space = HostSpace::scratch_memory_space;

    Late() : queue_{std::make_shared<LateQueue>()} {
        Kokkos::Tools::Experimental::set_deallocate_data_callback(&expect_unused);
    }

    static const char* name() { return "Late"; }
    int concurrency() const { return HostSpace{}.concurrency(); }
    void print_configuration(std::ostream& out, bool = false) const { out << name(); }
    std::uint32_t impl_instance_id() const { return 1; }
    static bool impl_is_initialized() { return Kokkos::is_initialized(); }

    void fence(const std::string& why = "Late::fence") const {
        namespace Tools = Kokkos::Tools::Experimental;
        Tools::Impl::profile_fence_event<Late>(why, Tools::Impl::DirectFenceIDHandle{1}, [this] { queue_->run(); });
    }

    LateQueue& queue() const { return *queue_; }

    friend bool operator==(const Late& a, const Late& b) { return a.queue_ == b.queue_; }
    friend bool operator!=(const Late& a, const Late& b) { return a.queue_ != b.queue_; }

private:
    // For memory of other spaces: staging.
    static void expect_unused(Kokkos_Profiling_SpaceHandle, const char* label, const void* block, std::uint64_t bytes) {
        if (LateQueue::any_uses(block, static_cast<std::size_t>(bytes)))
            FAIL_CHECK("memory of " << std::string{label} << " is freed while work in flight uses it");
    }

    std::shared_ptr<LateQueue> queue_;
};

/// A copy between spaces: queued if it has an instance of `Late`.
template <class Space>
struct LateCopy {
    LateCopy(void* to, const void* from, std::size_t bytes) { std::memcpy(to, from, bytes); }
    LateCopy(const Space& space, void* to, const void* from, std::size_t bytes) {
        if constexpr (std::is_same_v<Space, Late>) {
            space.queue().add([=] { std::memcpy(to, from, bytes); }, 0);
        } else {
            std::memcpy(to, from, bytes);
        }
    }
};

/// False for kernels that must not be compiled for teams.
template <class Functor>
inline constexpr bool may_run_in_teams = true;

/// The policy's traits for the same work on the host.
template <class Policy>
using HostRange = std::conditional_t<std::is_void_v<typename Policy::work_tag>,
                                     Kokkos::RangePolicy<HostSpace, Kokkos::IndexType<typename Policy::index_type>>,
                                     Kokkos::RangePolicy<HostSpace, Kokkos::IndexType<typename Policy::index_type>,
                                                         std::conditional_t<std::is_void_v<typename Policy::work_tag>,
                                                                            HostSpace, typename Policy::work_tag>>>;

} // namespace cellar_test

KOKKOS_IMPL_SHARED_ALLOCATION_SPECIALIZATION(cellar_test::LateSpace);

namespace Kokkos {

namespace Tools::Experimental {
template <>
struct DeviceTypeTraits<cellar_test::Late> {
    static constexpr DeviceType id = DeviceType::Unknown;
    static int device_id(const cellar_test::Late&) { return 0; }
};
} // namespace Tools::Experimental

namespace Impl {

template <>
struct MemorySpaceAccess<HostSpace, cellar_test::LateSpace> {
    enum : bool { assignable = false };
    enum : bool { accessible = false };
    enum : bool { deepcopy = true };
};
template <>
struct MemorySpaceAccess<cellar_test::LateSpace, HostSpace> {
    enum : bool { assignable = false };
    enum : bool { accessible = false };
    enum : bool { deepcopy = true };
};

template <class From>
struct DeepCopy<cellar_test::LateSpace, From, cellar_test::Late> : cellar_test::LateCopy<cellar_test::Late> {
    using cellar_test::LateCopy<cellar_test::Late>::LateCopy;
};
template <>
struct DeepCopy<HostSpace, cellar_test::LateSpace, cellar_test::Late> : cellar_test::LateCopy<cellar_test::Late> {
    using cellar_test::LateCopy<cellar_test::Late>::LateCopy;
};
template <>
struct DeepCopy<HostSpace, cellar_test::LateSpace, cellar_test::HostSpace>
    : cellar_test::LateCopy<cellar_test::HostSpace> {
    using cellar_test::LateCopy<cellar_test::HostSpace>::LateCopy;
};

template <>
struct ZeroMemset<cellar_test::Late> {
    ZeroMemset(const cellar_test::Late& space, void* to, std::size_t bytes) {
        space.queue().add([=] { std::memset(to, 0, bytes); }, 0);
    }
};

template <class Functor, class... Properties>
class ParallelFor<Functor, RangePolicy<Properties...>, cellar_test::Late> {
public:
    using Policy = RangePolicy<Properties...>;

    ParallelFor(const Functor& functor, const Policy& policy) : functor_{functor}, policy_{policy} {}

    void execute() const {
        using HostPolicy = cellar_test::HostRange<Policy>;
        const auto run = [functor = functor_, begin = policy_.begin(), end = policy_.end()] {
            const ParallelFor<Functor, HostPolicy, cellar_test::HostSpace> host{
                functor, HostPolicy(cellar_test::HostSpace{}, begin, end)};
            host.execute();
        };
        policy_.space().queue().add(run, static_cast<std::int64_t>(policy_.end() - policy_.begin()));
    }

private:
    Functor functor_;
    Policy policy_;
};

// Kokkos copies Views of two and more extents with it.
template <class Functor, class... Properties>
class ParallelFor<Functor, MDRangePolicy<Properties...>, cellar_test::Late> {
public:
    using Policy = MDRangePolicy<Properties...>;

    ParallelFor(const Functor& functor, const Policy& policy) : functor_{functor}, policy_{policy} {}

    void execute() const {
        using HostPolicy = MDRangePolicy<cellar_test::HostSpace, typename Policy::iteration_pattern,
                                         IndexType<typename Policy::index_type>>;
        const auto run = [functor = functor_, begin = policy_.m_lower, end = policy_.m_upper] {
            const ParallelFor<Functor, HostPolicy, cellar_test::HostSpace> host{
                functor, HostPolicy(cellar_test::HostSpace{}, begin, end)};
            host.execute();
        };
        policy_.space().queue().add(run, 0);
    }

private:
    Functor functor_;
    Policy policy_;
};

/// Teams are those of the host.
template <class... Properties>
class TeamPolicyInternal<cellar_test::Late, Properties...> : public PolicyTraits<Properties...> {
public:
    using execution_policy = TeamPolicyInternal;
    using traits = PolicyTraits<Properties...>;
    using execution_space = cellar_test::Late;
    using HostPolicy = TeamPolicy<cellar_test::HostSpace>;
    using member_type = HostPolicy::member_type;

    TeamPolicyInternal(const cellar_test::Late& space, int league, int team, int = 1)
        : space_{space}, league_{league}, team_{team} {}

    const cellar_test::Late& space() const { return space_; }
    int league_size() const { return league_; }
    int team_size() const { return team_; }
    static int vector_length_max() { return 1; }
    static int scratch_size_max(int level) { return HostPolicy::scratch_size_max(level); }

    TeamPolicyInternal& set_scratch_size(const int& level, const PerTeamValue& per_team) {
        scratch_[level] = static_cast<std::size_t>(per_team.value);
        return *this;
    }

    template <class Functor>
    int team_size_max(const Functor& functor, const ParallelForTag& tag) const {
        return host_policy().team_size_max(functor, tag);
    }

    HostPolicy host_policy() const {
        HostPolicy policy{cellar_test::HostSpace{}, league_, team_};
        for (const int level : {0, 1})
            if (scratch_[level] != 0) policy.set_scratch_size(level, PerTeam(scratch_[level]));
        return policy;
    }

private:
    cellar_test::Late space_;
    int league_;
    int team_;
    std::size_t scratch_[2] = {0, 0};
};

template <class Functor, class... Properties>
class ParallelFor<Functor, TeamPolicy<Properties...>, cellar_test::Late> {
    static_assert(cellar_test::may_run_in_teams<Functor>);

public:
    using Policy = TeamPolicy<Properties...>;

    ParallelFor(const Functor& functor, const Policy& policy) : functor_{functor}, policy_{policy} {}

    void execute() const {
        const auto run = [functor = functor_, policy = policy_.host_policy()] {
            const ParallelFor<Functor, TeamPolicy<cellar_test::HostSpace>, cellar_test::HostSpace> host{functor,
                                                                                                        policy};
            host.execute();
        };
        policy_.space().queue().add(run, policy_.league_size());
    }

private:
    Functor functor_;
    Policy policy_;
};

} // namespace Impl
} // namespace Kokkos
