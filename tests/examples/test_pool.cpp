// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// The memory of many texts, and its tree of prefixes.
#include "commands.hpp"
#include "generate/huggingface.hpp"
#include "generate/safetensors.hpp"
#include "generate/session.hpp"
#include "pool/text_pool.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

namespace test_pool {

namespace {

using llama::Matrix;
using Text = std::vector<int>;

/// Bytes of a text that differs from others after its first `shared` ones.
Text text_of(int length, int shared, int number) {
    Text text;
    for (int i = 0; i < length; ++i) text.push_back(i < shared ? 'a' + i % 26 : 'A' + (i * number) % 58);
    return text;
}

class Model {
public:
    explicit Model(const std::string& file)
        : llama_{llama::read_weights(llama::Safetensors::read(file)), llama::Products::row_by_row} {}

    llama::Llama& llama() { return llama_; }

    std::unique_ptr<llama::TextPool> pool(int cells = 0, const std::string& element = "float") const {
        return llama::make_pool(llama_.config(),
                                {.texts = 3, .context = 128, .cells = cells, .batch = 64, .snapshots = 4}, element);
    }

    /// Feeds the rest of a text in pieces. Returns the logits of its last token.
    Matrix feed(llama::TextPool& pool, int number, const Text& text, std::size_t piece) {
        for (auto done = static_cast<std::size_t>(pool.length(number));; done += piece) {
            const std::size_t count = std::min(piece, text.size() - done);
            const llama::NewTokens batch{number, std::span{text}.subspan(done, count)};
            const Matrix logits = run(pool, {batch});
            if (done + count == text.size()) return logits;
        }
    }

    Matrix run(llama::TextPool& pool, const std::vector<llama::NewTokens>& batch) {
        cellar::Refusal refusal;
        const Matrix* const logits = llama::run(llama_, pool, batch, refusal);
        REQUIRE(logits != nullptr);
        CHECK(pool.audit().empty());
        return *logits;
    }

private:
    llama::Llama llama_;
};

} // namespace

TEST_CASE("pool: the logits of a text depend on its tokens alone, in every bit") {
    for (const std::string& file : {plain_model, hybrid_model}) {
        Model m{file};
        const Text text = text_of(90, 40, 3);
        const Text other = text_of(70, 40, 5);
        const auto pool = m.pool();
        const Matrix expected = m.feed(*pool, 0, text, 64);
        CHECK(m.feed(*m.pool(), 0, text, 1) == expected);
        CHECK(m.feed(*m.pool(), 2, text, 7) == expected);

        // In a batch with others, and in cells between theirs.
        const auto mixed = m.pool();
        for (int i = 0; i < 69; i += 3) {
            const auto at = static_cast<std::size_t>(i);
            m.run(*mixed, {{1, std::span{other}.subspan(at, 1)}, {0, std::span{text}.subspan(at, 3)}});
        }
        CHECK(m.feed(*mixed, 0, text, 5) == expected);

        // After another text that begins alike.
        const auto shared = m.pool();
        m.feed(*shared, 1, text_of(40, 40, 0), 64);
        shared->keep(1, text_of(40, 40, 0));
        m.feed(*shared, 1, other, 64);
        CHECK(shared->attach(0, text) == 40);
        CHECK(m.feed(*shared, 0, text, 64) == expected);
    }
}

TEST_CASE("pool: its logits are those of a session, up to rounding") {
    for (const std::string& file : {plain_model, hybrid_model}) {
        Model m{file};
        const Text text = text_of(100, 10, 7);
        const auto memory = llama::make_memory(m.llama().config(), {.context = 128, .batch = 64});
        const Matrix expected = llama::Session{m.llama(), *memory}.feed(text);
        const double scale = expected.cwiseAbs().maxCoeff();
        CHECK((m.feed(*m.pool(), 0, text, 64) - expected).cwiseAbs().maxCoeff() < 2e-5 * scale);
        CHECK((m.feed(*m.pool(0, "half"), 0, text, 64) - expected).cwiseAbs().maxCoeff() < 5e-3 * scale);
    }
}

TEST_CASE("pool: the tree evicts what it must, and a refused pass changes nothing") {
    for (const std::string& file : {plain_model, hybrid_model}) {
        Model m{file};
        const auto pool = m.pool(128);
        const Text first = text_of(60, 0, 3);
        const Text second = text_of(60, 0, 5);
        m.feed(*pool, 0, first, 64);
        pool->keep(0, first);
        pool->clear(0);
        CHECK(pool->use().kept == 60);
        CHECK(pool->use().live == 0);
        m.feed(*pool, 1, second, 64);
        m.feed(*pool, 2, second, 64); // needs the cells of the first
        CHECK(pool->use().kept == 0);
        CHECK(pool->use().live == 120);
        CHECK(pool->use().free() == 8);
        CHECK(pool->prefixes().evictions > 0);
        cellar::Refusal refusal;
        const llama::NewTokens batch{0, std::span{first}.first(9)};
        CHECK(llama::run(m.llama(), *pool, {&batch, 1}, refusal) == nullptr);
        CHECK(refusal == cellar::Reason::full);
        CHECK(pool->length(0) == 0);
        CHECK(pool->audit().empty());
    }
}

} // namespace test_pool
