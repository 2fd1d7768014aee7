// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Compares the forward pass of the examples with that of PyTorch.
#include "generate/huggingface.hpp"
#include "generate/memory.hpp"
#include "generate/model.hpp"
#include "generate/reference.hpp"
#include "generate/sampler.hpp"
#include "paths.hpp"

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <fstream>
#include <numeric>
#include <span>
#include <string>
#include <vector>

namespace test_model {

namespace {

// Logits reach about 15. In PyTorch itself, float differs from double by 1e-5.
constexpr float tolerance = 5e-5F;

/// A model of the examples and the results of PyTorch.
struct Trained {
    explicit Trained(const std::string& name)
        : folder{cellar_test::source_dir() + "/examples/models/" + name + "/"},
          model{llama::read_weights(llama::Safetensors::read(folder + "model.safetensors"))} {
        std::ifstream file{folder + "reference.json"};
        prompts = nlohmann::json::parse(file).at("prompts");
    }

    std::string folder;
    llama::Llama model;
    nlohmann::json prompts;
};

constexpr const char* models[] = {"shakespeare", "shakespeare-hybrid"};

float difference(const llama::Matrix& logits, Eigen::Index row, const nlohmann::json& expected) {
    const auto values = expected.get<std::vector<float>>();
    const Eigen::Map<const llama::RowVector> wanted(values.data(), static_cast<Eigen::Index>(values.size()));
    REQUIRE(wanted.size() == logits.cols());
    return (logits.row(row) - wanted).cwiseAbs().maxCoeff();
}

/// Feeds the prompt in batches of up to `batch` tokens. Returns the logits of all tokens.
llama::Matrix feed(llama::Llama& model, llama::TextMemory& memory, const std::vector<int>& tokens, int batch) {
    const int size = static_cast<int>(tokens.size());
    llama::Matrix all(size, model.config().vocab_size);
    for (int first = 0; first < size; first += batch) {
        const int count = std::min(batch, size - first);
        std::vector<int> wanted(static_cast<std::size_t>(count));
        std::iota(wanted.begin(), wanted.end(), 0);
        REQUIRE(memory.begin(first, count).has_value());
        all.middleRows(first, count) =
            model.forward(std::span{tokens}.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(count)),
                          memory, wanted);
        memory.commit();
    }
    return all;
}

} // namespace

TEST_CASE("models: logits with a cache equal those of PyTorch") {
    for (const char* name : models) {
        Trained trained{name};
        llama::Llama& model = trained.model;
        float largest = 0;
        for (const auto& prompt : trained.prompts) {
            const auto tokens = prompt.at("tokens").get<std::vector<int>>();
            const auto positions = prompt.at("positions").get<std::vector<Eigen::Index>>();
            for (const char* layout : {"standard", "permuted"}) {
                for (const int batch : {1, 50, 256}) {
                    const auto memory =
                        llama::make_memory(model.config(), {.context = 256, .batch = batch}, {.layout = layout});
                    const llama::Matrix logits = feed(model, *memory, tokens, batch);
                    for (std::size_t i = 0; i < positions.size(); ++i) {
                        const float d = difference(logits, positions[i], prompt.at("logits").at(i));
                        INFO(prompt.at("name").get<std::string>(), " at ", positions[i], ", ", layout, ", batch ",
                             batch);
                        CHECK(d < tolerance);
                        largest = std::max(largest, d);
                    }
                }
            }
        }
        MESSAGE(std::string{name}, ": largest difference of the logits ", largest);
    }
}

TEST_CASE("models: logits without a cache equal those of PyTorch") {
    for (const char* name : models) {
        Trained trained{name};
        llama::Llama& model = trained.model;
        for (const auto& prompt : trained.prompts) {
            const auto tokens = prompt.at("tokens").get<std::vector<int>>();
            const auto positions = prompt.at("positions").get<std::vector<int>>();
            llama::Reference uncached{model.config(), {.context = 256}};
            uncached.append(tokens);
            const llama::Matrix logits = model.forward(tokens, uncached, positions);
            for (std::size_t i = 0; i < positions.size(); ++i) {
                CHECK(difference(logits, static_cast<Eigen::Index>(i), prompt.at("logits").at(i)) < tolerance);
            }
        }
    }
}

TEST_CASE("models: the greedy text equals that of PyTorch") {
    for (const char* name : models) {
        Trained trained{name};
        llama::Llama& model = trained.model;
        int compared = 0;
        for (const auto& prompt : trained.prompts) {
            const auto& greedy = prompt.at("greedy");
            // Rounding may swap two candidates that are closer than this.
            if (greedy.at("min_top1_top2_gap").get<float>() < 2 * tolerance) continue;
            ++compared;
            for (const char* layout : {"standard", "permuted"}) {
                const auto memory =
                    llama::make_memory(model.config(), {.context = 256, .batch = 256}, {.layout = layout});
                llama::Sampler most_likely{0, 0.0};
                const auto tokens = prompt.at("tokens").get<std::vector<int>>();
                int position = static_cast<int>(tokens.size());
                llama::Matrix logits = feed(model, *memory, tokens, 256).bottomRows(1);
                std::string text;
                const std::size_t length = greedy.at("tokens").size();
                std::vector<int> written;
                while (written.size() < length) {
                    written.push_back(most_likely(logits));
                    if (written.size() == length) break;
                    REQUIRE(memory->begin(position++, 1).has_value());
                    const int last = 0;
                    logits = model.forward({&written.back(), 1}, *memory, {&last, 1});
                    memory->commit();
                }
                CHECK(written == greedy.at("tokens").get<std::vector<int>>());
            }
        }
        CHECK(compared > 0);
    }
}

} // namespace test_model
