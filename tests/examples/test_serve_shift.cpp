// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Conversations that outgrow the context, with a model of bytes whose reply is a function of the last byte.
#include "pool/texts_in_memory.hpp"
#include "serve/server.hpp"

#include <doctest/doctest.h>

#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace test_serve_shift {

namespace {

template <class Shift>
using Full = cellar::Cache<cellar::StandardV<float>, cellar::FullCausal, Shift>;
template <class Shift>
using Memory = cellar::Hybrid<cellar::Repeat<Full<Shift>>, Full<Shift>>;

/// Keys and values are the bytes.
template <class Shift>
class Pool final : public llama::TextsInMemory<Memory<Shift>, llama::Texts> {
    using Base = llama::TextsInMemory<Memory<Shift>, llama::Texts>;

public:
    explicit Pool(const llama::PoolLimits& limits)
        : Base{Memory<Shift>{1, Full<Shift>{{.layers = 1, .kv_heads = 1, .head_dim = 1},
                                            {.sequences = limits.texts, .cells = limits.cells, .batch = limits.batch}}},
               limits} {}

    void put(const std::vector<float>& rows) {
        this->pass().visit(0, [&](auto& pass, int layer) { pass.put(layer, rows, rows); });
    }
};

char reply_to(int byte) {
    return static_cast<char>('a' + (7 * byte + 3) % 26);
}

template <class Shift>
class Model final : public llama::TextModel {
public:
    explicit Model(Pool<Shift>& pool) : pool_{pool} {}

    std::vector<int> tokens(const std::string& text) const override { return {text.begin(), text.end()}; }
    std::string text(std::span<const int> tokens) const override { return {tokens.begin(), tokens.end()}; }
    int vocabulary() const override { return 128; }

    const llama::Matrix* run(std::span<const llama::NewTokens> batch, cellar::Refusal& refusal) override {
        if (const auto begun = pool_.begin(batch); !begun) {
            refusal = begun.error();
            return nullptr;
        }
        std::vector<float> rows;
        logits_ = llama::Matrix::Zero(std::ssize(batch), vocabulary());
        for (std::size_t i = 0; i < batch.size(); ++i) {
            rows.insert(rows.end(), batch[i].tokens.begin(), batch[i].tokens.end());
            logits_(static_cast<Eigen::Index>(i), reply_to(batch[i].tokens.back())) = 1;
        }
        pool_.put(rows);
        pool_.commit();
        return &logits_;
    }

private:
    Pool<Shift>& pool_;
    llama::Matrix logits_;
};

std::string with_reply(std::string text, int length) {
    for (; length > 0; --length) text.push_back(reply_to(text.back()));
    return text;
}

template <class Shift>
void check(int cells) {
    CAPTURE(cells);
    const std::string system = "a system prompt that users share";
    const std::vector<serve::User> users{
        {.at = 0, .seed = 1, .system = system, .turns = {{0, "hello", 40}, {2, "and then?", 30}}},
        {.at = 3, .seed = 2, .system = system, .turns = {{0, "good day", 50}}},
        {.at = 4, .seed = 3, .system = system, .turns = {{0, std::string(100, 'x'), 9}}},
        {.at = 5, .seed = 4, .system = system, .turns = {{0, "short", 4}}}};
    Pool<Shift> pool{{.texts = 3, .context = 64, .cells = cells, .batch = 16}};
    Model<Shift> model{pool};
    serve::ServerOptions options{.temperature = 0, .sinks = 4};
    options.watch = [&](const serve::State&) { REQUIRE(pool.audit() == ""); };
    const serve::Outcome o = serve::Server{model, pool, users, options}.run();
    CHECK(o.audit == "");
    CHECK(o.shifts >= 4);
    CHECK(o.replies == 5);
    CHECK(o.texts[0] == with_reply(with_reply(system + "hello", 40) + "and then?", 30));
    CHECK(o.texts[1] == with_reply(system + "good day", 50));
    CHECK(o.texts[2] == with_reply(system + std::string(100, 'x'), 9));
    CHECK(o.texts[3] == with_reply(system + "short", 4));
    CHECK(pool.use().live == 0);
}

} // namespace

TEST_CASE("serve: conversations that outgrow the context lose their older halves, and are written whole") {
    for (const int cells : {192, 90, 64}) {
        check<cellar::UnrotatedShift>(cells);
        check<cellar::DisabledShift>(cells); // what stays is computed again
    }
}

} // namespace test_serve_shift
