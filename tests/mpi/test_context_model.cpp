// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A small transformer whose context is divided between ranks: its logits equal those of one process.
#include "../allocation_count.hpp"
#include "../skip.hpp"
#include "context.hpp"

#include <algorithm>
#include <mpi.h>
#include <utility>

/// While it exists, allocations are not counted.
class Uncounted {
public:
    Uncounted() : counted_{std::exchange(counting, false)} {}
    ~Uncounted() { counting = counted_; }
    Uncounted(const Uncounted&) = delete;
    Uncounted& operator=(const Uncounted&) = delete;

private:
    bool counted_;
};

// MPI allocates now and then: where a message comes before it is expected, for example.
extern "C" int MPI_Isend(const void* data, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm,
                         MPI_Request* request) {
    const Uncounted call;
    return PMPI_Isend(data, count, type, to, tag, comm, request);
}
extern "C" int MPI_Irecv(void* data, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm,
                         MPI_Request* request) {
    const Uncounted call;
    return PMPI_Irecv(data, count, type, from, tag, comm, request);
}
extern "C" int MPI_Test(MPI_Request* request, int* done, MPI_Status* status) {
    const Uncounted call;
    return PMPI_Test(request, done, status);
}

namespace test_context_model {

using namespace context_test;

namespace {

using Rope = RopeShift<Neox>;
using Keys = Cache<StandardV<half>, FullCausal, Rope, HostBackend>;

constexpr int layers = 2;
constexpr int width = 32;
constexpr int heads = 4;
constexpr int kv_heads = 2;
constexpr int dim = 8;
constexpr int words = 50;

using Matrix = Floats; ///< [out, in]

Floats product(const Matrix& m, const Floats& rows, std::size_t in) {
    const std::size_t out = m.size() / in;
    Floats result(rows.size() / in * out);
    for (std::size_t r = 0; r < rows.size() / in; ++r)
        for (std::size_t o = 0; o < out; ++o)
            for (std::size_t i = 0; i < in; ++i) result[r * out + o] += m[o * in + i] * rows[r * in + i];
    return result;
}

Floats normed(Floats rows) {
    for (std::size_t r = 0; r < rows.size(); r += width) {
        float sum = 1e-5F;
        for (std::size_t i = 0; i < width; ++i) sum += rows[r + i] * rows[r + i] / width;
        for (std::size_t i = 0; i < width; ++i) rows[r + i] /= std::sqrt(sum);
    }
    return rows;
}

/// Random weights: attention with rotated keys and grouped queries, and a gate of one product.
class Model {
public:
    Model() {
        std::mt19937 random{11};
        const auto draw = [&](int out, int in) {
            return random_floats(random, static_cast<std::size_t>(out * in), 1.8F / std::sqrt(static_cast<float>(in)));
        };
        embedding_ = draw(words, width);
        for (int l = 0; l < layers; ++l)
            weights_.push_back({draw(heads * dim, width), draw(kv_heads * dim, width), draw(kv_heads * dim, width),
                                draw(width, heads * dim), draw(width, width)});
    }

    /// The logits of each token. `put` and `attend` work on the memory.
    template <class Put, class Attend>
    Floats run(const std::vector<int>& tokens, Position first, Put put, Attend attend) const {
        Floats x;
        for (const int token : tokens) {
            const auto row = embedding_.begin() + token * width;
            x.insert(x.end(), row, row + width);
        }
        for (int l = 0; l < layers; ++l) {
            const Weights& w = weights_[static_cast<std::size_t>(l)];
            const Floats h = normed(x);
            Floats q = product(w.q, h, width);
            Floats k = product(w.k, h, width);
            rotate(q, heads, first);
            rotate(k, kv_heads, first);
            put(l, k, product(w.v, h, width));
            Floats seen(q.size());
            attend(l, q, seen);
            add(x, product(w.o, seen, heads * dim));
            Floats gated = product(w.gate, normed(x), width);
            for (float& g : gated) g = std::tanh(g);
            add(x, gated);
        }
        return product(embedding_, normed(x), width);
    }

private:
    struct Weights {
        Matrix q, k, v, o, gate;
    };

    static void add(Floats& to, const Floats& more) {
        for (std::size_t i = 0; i < to.size(); ++i) to[i] += more[i];
    }

    static void rotate(Floats& rows, int of_heads, Position first) {
        const std::vector<double> frequencies = rope_frequencies(dim, 10000.0);
        for (std::size_t r = 0; r < rows.size() / dim; ++r)
            for (std::size_t pair = 0; pair < dim / 2; ++pair) {
                const double angle = (first.value + static_cast<int>(r) / of_heads) * frequencies[pair];
                float& a = rows[r * dim + pair];
                float& b = rows[r * dim + pair + dim / 2];
                const auto c = static_cast<float>(std::cos(angle)), s = static_cast<float>(std::sin(angle));
                const float turned = a * c - b * s;
                b = a * s + b * c;
                a = turned;
            }
    }

    Matrix embedding_;
    std::vector<Weights> weights_;
};

Keys keys(Positions positions) {
    return Keys{{.layers = layers, .kv_heads = kv_heads, .head_dim = dim},
                {.capacity = 500, .batch = 200, .positions = positions},
                {},
                Rope{rope_frequencies(dim, 10000.0)}};
}

Floats run_alone(const Model& model, Keys& memory, const std::vector<int>& tokens) {
    const Position first = memory.next(Sequence{0});
    auto pass = memory.begin(BatchBuilder{Sequence{0}, first, static_cast<std::int32_t>(tokens.size())}).value();
    const Floats logits = model.run(
        tokens, first, [&](int l, const Floats& k, const Floats& v) { pass.put(l, k, v); },
        [&](int l, const Floats& q, Floats& out) { attend(pass, l, q, out); });
    pass.commit();
    return logits;
}

Floats run_divided(const Model& model, mpi::ContextParallel<Keys>& memory, const std::vector<int>& tokens) {
    const Position first = memory.next(Sequence{0});
    auto pass = memory.begin(BatchBuilder{Sequence{0}, first, static_cast<std::int32_t>(tokens.size())}).value();
    const Floats logits = model.run(
        tokens, first,
        [&](int l, const Floats& k, const Floats& v) {
            pass.put(l, rows_of(k, pass.stored_indices(), kv_heads * dim),
                     rows_of(v, pass.stored_indices(), kv_heads * dim));
        },
        [&](int l, const Floats& q, Floats& out) { REQUIRE(mpi::attend(pass, l, q, out).has_value()); });
    pass.commit();
    return logits;
}

int best(const Floats& logits) {
    return static_cast<int>(std::max_element(logits.end() - words, logits.end()) - (logits.end() - words));
}

} // namespace

TEST_CASE("a model with a divided context has the logits of one process") {
    const Model model;
    Keys alone = keys(Positions::consecutive);
    mpi::ContextParallel<Keys> divided{mpi::Communicator{MPI_COMM_WORLD}, keys(Positions::any)};
    std::mt19937 random{5};
    std::vector<int> tokens;
    for (int i = 0; i < 200; ++i) tokens.push_back(static_cast<int>(random() % words));
    for (int step = 0; step < 80; ++step) {
        const Floats expected = run_alone(model, alone, tokens);
        const Floats found = run_divided(model, divided, tokens);
        REQUIRE(difference(expected, found) < 2e-3);
        tokens = {best(expected)};
        if (step == 40) { // what is left moves up, on all ranks
            REQUIRE(alone.remove(Sequence{0}, Position{20}, Position{60}).has_value());
            REQUIRE(divided.remove(Sequence{0}, Position{20}, Position{60}).has_value());
        }
    }
    CHECK(divided.next(Sequence{0}) == Position{200 + 79 - 40});
    int mine = divided.cache().tokens(Sequence{0});
    int least = 0;
    MPI_Allreduce(&mine, &least, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    CHECK(least > 0);
}

TEST_CASE("decode steps over ranks allocate nothing outside of MPI") {
    if (!installed) CELLAR_SKIP("allocations are counted with glibc or the address sanitizer only");
    mpi::ContextParallel<Keys> memory{mpi::Communicator{MPI_COMM_WORLD}, keys(Positions::any)};
    const Floats k(kv_heads * dim);
    const Floats q(heads * dim);
    Floats out(q.size());
    const std::int32_t first = 64 * memory.ranks() + 1; // every rank has stored some, and attended to them
    int counted = 0;
    int noisy = 0;
    for (std::int32_t p = 0; p < first + 200; ++p) {
        const BatchBuilder token{Sequence{0}, Position{p}};
        allocations = 0;
        counting = p >= first;
        auto pass = *memory.begin(token);
        const bool own = !pass.stored_indices().empty();
        for (int layer = 0; layer < layers; ++layer) {
            if (own) pass.put(layer, k, k);
            if (!mpi::attend(pass, layer, q, out)) FAIL("attend");
        }
        pass.commit();
        counted += std::exchange(counting, false) ? 1 : 0;
        noisy += allocations == 0 ? 0 : 1;
    }
    REQUIRE(counted == 200);
    CHECK(noisy == 0);
}

// The code of docs/several-processes.md about contexts over ranks.
TEST_CASE("the page's code: a context over ranks") {
    int ranks = 0;
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    const CacheShape shape{.layers = layers, .kv_heads = kv_heads, .head_dim = dim};
    const Rope rope{rope_frequencies(dim, 10000.0)};
    const Sequence user{0};
    struct Projected {
        Floats q, k, v;
    };
    const auto project = [](int, std::span<const std::int32_t> stored) {
        const std::size_t rows = stored.size() * kv_heads * dim;
        return Projected{Floats(512 * heads * dim), Floats(rows), Floats(rows)};
    };
    Floats out(512 * heads * dim);
    // [divided]
    const CacheLimits limits{.capacity = 32768,           // of a whole sequence
                             .cells = 32768 / ranks + 64, // of this rank
                             .batch = 512,
                             .positions = Positions::any};
    mpi::ContextParallel<Keys> memory{mpi::Communicator{MPI_COMM_WORLD}, Keys{shape, limits, {}, rope}};
    // [/divided]
    // [divided_pass]
    auto pass = memory.begin(BatchBuilder{user, memory.next(user), 512});
    if (!pass) FAIL(pass.error().message); // the same on all ranks
    for (int layer = 0; layer < memory.layers(); ++layer) {
        // Queries of all tokens, keys and values of those that this rank stores.
        const auto [q, k, v] = project(layer, pass->stored_indices());
        pass->put(layer, k, v);
        if (const auto done = mpi::attend(*pass, layer, q, out); !done) FAIL(done.error().message);
    }
    pass->commit();
    // [/divided_pass]
    CHECK(memory.next(user) == Position{512});
}

} // namespace test_context_model
