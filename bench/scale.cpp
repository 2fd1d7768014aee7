// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Computes the tables of docs/scale.md from the descriptions of models and the constants below. Measures nothing.
//
// usage: cellar_scale                prints the tables
//        cellar_scale --check PAGE   fails if a table of the page is another one
//        cellar_scale --update PAGE  writes the tables into the page
#include <cellar/models/models.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace cellar::models;

// NVIDIA's data sheet of the H200 SXM: https://www.nvidia.com/en-us/data-center/h200/. It has twice this NVLink for
// both directions together, and twice these operations for sparse matrices.
constexpr double gpu_memory = 141e9;       // bytes
constexpr double memory_speed = 4.8e12;    // bytes a second
constexpr double nvlink = 450e9;           // bytes a second from one GPU
constexpr double operations = 989e12;      // a second, in bf16, dense
constexpr int node_gpus = 8;               // an HGX board
constexpr double network = 400e9 / 8;      // bytes a second from a node: one port of 400 Gb/s
constexpr double memory_used = 0.9;        // the rest is for activations and libraries: our assumption
constexpr double operations_reached = 0.4; // of a prefill: our assumption

// Latencies in seconds by which NCCL chooses its algorithms (trees, protocol LL):
// https://github.com/NVIDIA/nccl, src/graph/tuning.cc.
constexpr double start = 4.4e-6;
constexpr double nvlink_hop = 0.52e-6;
constexpr double nvlink_hop_of_many_nodes = 1.8 * nvlink_hop;
constexpr double network_hop = 5.0e-6;

constexpr std::array gpu_counts{8, 64, 512};
constexpr int sequences = 64; // of a decode step
constexpr std::int64_t length = 32768;
constexpr std::int64_t long_length = std::int64_t{1} << 20;

/// What `Description` leaves out: the widths of activations, and the weights.
struct Model {
    const Description& memory;
    int hidden;
    int query_heads;
    int key_dim;   // of a query head, as a prefill computes it
    int value_dim; // likewise
    int out_dim;   // of a query head, as a decode step computes it from the cache
    double parameters;
    double active;       // for each token
    double expert_share; // of the experts that a token uses; 1: no experts
    double weight_bytes; // of a parameter
    int state_heads = 1; // that ranks can divide
};

const std::vector<Model>& models() {
    static const std::vector<Model> all{
        // https://huggingface.co/meta-llama/Llama-3.1-70B, config.json.
        {llama31_70b, 8192, 64, 128, 128, 128, 70.6e9, 70.6e9, 1, 2},
        // https://github.com/google/gemma_pytorch, gemma/config.py (get_config_for_12b).
        {gemma3_12b, 3840, 16, 256, 256, 256, 12.2e9, 12.2e9, 1, 2},
        // https://github.com/deepseek-ai/DeepSeek-V3, README.md and inference/configs/config_671B.json: weights in fp8.
        {deepseek_v3, 7168, 128, 192, 128, 512, 671e9, 37e9, 8.0 / 256, 1},
        // https://huggingface.co/Qwen/Qwen3-Next-80B-A3B-Instruct, README.md and config.json.
        {qwen3_next_80b, 2048, 16, 256, 256, 256, 80e9, 3e9, 10.0 / 512, 2, 32},
    };
    return all;
}

double state_bytes(const Model& m) {
    return static_cast<double>(m.memory.count(LayerKind::recurrent) * m.memory.state_elements()) * sizeof(float);
}

/// Bytes that a rank holds of a sequence, if `ranks` ranks divide the heads. With fewer heads than ranks, several hold
/// the same head.
double held(const Model& m, std::int64_t tokens, int ranks = 1) {
    const auto bytes = [&](LayerKind kind, std::int64_t cells) {
        if (m.memory.count(kind) == 0) return 0.0;
        cellar::LayerShape shape = m.memory.attention(kind).shape;
        shape.kv_heads = (shape.kv_heads + ranks - 1) / ranks;
        return static_cast<double>(m.memory.count(kind)
                                   * cellar::layer_bytes<cellar::StandardV<cellar::bf16>>(shape, cells));
    };
    return bytes(LayerKind::full, tokens)
           + bytes(LayerKind::sliding, std::min<std::int64_t>(tokens, m.memory.sliding.window))
           + state_bytes(m) / std::min(ranks, m.state_heads);
}

double weights(const Model& m) {
    return m.parameters * m.weight_bytes;
}

/// Bytes of weights that a pass of `tokens` tokens reads: of the experts, those that a token chose.
double weights_read(const Model& m, int tokens) {
    if (m.expert_share == 1) return weights(m);
    const double always = (m.active - m.parameters * m.expert_share) / (1 - m.expert_share);
    const double chosen = 1 - std::pow(1 - m.expert_share, tokens);
    return (always + (m.parameters - always) * chosen) * m.weight_bytes;
}

/// The time in which all GPUs of a node compute a prompt: two operations for each active parameter, and attention.
double prefill(const Model& m, std::int64_t tokens) {
    const auto n = static_cast<double>(tokens);
    const double seen = std::min(n / 2, static_cast<double>(m.memory.sliding.window));
    const double pairs = n * (m.memory.count(LayerKind::full) * n / 2 + m.memory.count(LayerKind::sliding) * seen);
    const double attention = 2.0 * m.query_heads * (m.key_dim + m.value_dim) * pairs;
    return (2 * m.active * n + attention) / (node_gpus * operations * operations_reached);
}

/// The time in which `ranks` GPUs add up `bytes`: in each node over NVLink, then each GPU its share over the network.
double all_reduce(int ranks, double bytes) {
    if (ranks == 1) return 0;
    const int inside = std::min(ranks, node_gpus);
    const int nodes = ranks / inside;
    const double hop = nodes == 1 ? nvlink_hop : nvlink_hop_of_many_nodes;
    const double latency = start + 2 * ((inside - 1) * hop + std::log2(nodes) * network_hop);
    return latency + 2 * bytes * (inside - 1) / inside / nvlink + 2 * bytes * (nodes - 1) / nodes / network;
}

/// Bytes of activations that tensor-parallel ranks add up for each token: after attention, and after the feed-forward
/// network.
double reduced(const Model& m) {
    return 2.0 * m.memory.layers * m.hidden * 2;
}

/// Bytes of partial results that context-parallel ranks merge for each token: a row of floats and its logarithm for
/// each query head of the full layers.
double merged(const Model& m) {
    return m.memory.count(LayerKind::full) * m.query_heads * (m.out_dim + 1.0) * 4;
}

/// The time of a decode step with the heads and the weights divided among `ranks` GPUs: reading, then adding up.
struct Step {
    double reading, adding;
    double whole() const { return reading + adding; }
};
Step tensor_step(const Model& m, int ranks) {
    const double read = weights_read(m, sequences) / ranks + sequences * held(m, length, ranks);
    const double one = all_reduce(ranks, reduced(m) / (2 * m.memory.layers) * sequences);
    return {read / memory_speed, 2 * m.memory.layers * one};
}

/// The time in which `ranks` GPUs read a sequence's full layers for one token, and merge.
Step context_step(const Model& m, std::int64_t tokens, int ranks) {
    const int layers = m.memory.count(LayerKind::full);
    const auto read = static_cast<double>(bytes_per_token(m.memory) * tokens) / ranks;
    return {read / memory_speed, layers * all_reduce(ranks, merged(m) / layers)};
}

// Text.

std::string number(double x, int digits = 0) {
    std::array<char, 64> text{};
    std::snprintf(text.data(), text.size(), "%.*f", digits, x);
    return text.data();
}
/// With two digits that count, or more.
std::string rounded(double x) {
    return number(x, x >= 10 ? 0 : x >= 1 ? 1 : x >= 0.1 ? 2 : 3);
}
std::string percent(double x) {
    return rounded(100 * x) + " %";
}
std::string tokens_text(double n) {
    if (n < 1024) return number(n);
    const double thousands = n / 1024;
    if (thousands < 1024 && thousands == std::floor(thousands)) return number(thousands) + "k";
    return n < (1 << 20) ? rounded(n / 1024) + "k" : rounded(n / (1 << 20)) + "M";
}

std::string row(const std::vector<std::string>& cells) {
    std::string line = "|";
    for (const std::string& cell : cells) line += " " + cell + " |";
    return line + "\n";
}
/// `texts` columns of text, then numbers.
std::string head(const std::vector<std::string>& cells, std::size_t texts = 1) {
    std::string line = row(cells) + "|";
    for (std::size_t i = 0; i < cells.size(); ++i) line += i < texts ? "---|" : "--:|";
    return line + "\n";
}
std::string name(const Model& m) {
    return std::string{m.memory.name};
}

// The tables.

std::string constants() {
    const auto line = [](const char* what, const std::string& value) { return row({what, value}); };
    return head({"assumption", "value"}) + line("memory of a GPU", number(gpu_memory / 1e9) + " GB, 90 % of it used")
           + line("reading this memory", number(memory_speed / 1e12, 1) + " TB/s")
           + line("NVLink, from one GPU", number(nvlink / 1e9) + " GB/s")
           + line("network, from a node of 8 GPUs", "400 Gb/s = " + number(network / 1e9) + " GB/s")
           + line("operations of a GPU", number(operations / 1e12) + " TFLOP/s, 40 % of it reached in a prefill")
           + line("adding up a few bytes: 8, 64, 512 GPUs", number(all_reduce(8, 0) * 1e6) + ", "
                                                                + number(all_reduce(64, 0) * 1e6) + ", "
                                                                + number(all_reduce(512, 0) * 1e6) + " µs")
           + line("a decode step", std::to_string(sequences) + " sequences of " + tokens_text(length) + " tokens");
}

std::string wire() {
    std::string lines = head({"model", "kept per token, bytes", "kept per sequence, MiB", "migration of 4k tokens, MiB",
                              "of 32k", "of 128k", "tensor, bytes per token", "context", "pipeline"});
    for (const Model& m : models()) {
        const auto mebibytes = [&](std::int64_t tokens) { return number(held(m, tokens) / (1 << 20)); };
        lines +=
            row({name(m), std::to_string(bytes_per_token(m.memory)),
                 number(static_cast<double>(bytes_per_sequence(m.memory)) / (1 << 20)), mebibytes(4096),
                 mebibytes(32768), mebibytes(131072), number(reduced(m)), number(merged(m)), number(m.hidden * 2.0)});
    }
    return lines;
}

std::string migration() {
    std::string lines = head({"model", "tokens", "prefill by 8 GPUs, ms", "network, ms", "network by prefill",
                              "NVLink, ms", "last layer and states, ms", "link that takes as long, Gb/s"});
    for (const Model& m : models())
        for (const std::int64_t tokens : {std::int64_t{4096}, length, std::int64_t{131072}}) {
            const double bytes = held(m, tokens);
            const double computed = prefill(m, tokens);
            const double last =
                static_cast<double>(bytes_per_token(m.memory) * tokens) / m.memory.count(LayerKind::full)
                + state_bytes(m);
            lines +=
                row({name(m), tokens_text(static_cast<double>(tokens)), rounded(computed * 1e3),
                     rounded(bytes / network * 1e3), percent(bytes / network / computed), rounded(bytes / nvlink * 1e3),
                     rounded(last / network * 1e3), rounded(8 * bytes / computed / 1e9)});
        }
    return lines;
}

std::string room() {
    std::string lines = head({"model", "GPUs", "copies of the weights", "sequences of 32k", "tokens in one context"});
    for (const Model& m : models())
        for (const int gpus : gpu_counts) {
            const double usable = memory_used * gpu_memory;
            const int each = static_cast<int>(std::bit_ceil(static_cast<unsigned>(std::ceil(weights(m) / usable))));
            const double left = gpus * usable - gpus / each * weights(m);
            lines += row({name(m), std::to_string(gpus), std::to_string(gpus / each), number(left / held(m, length)),
                          tokens_text((gpus * usable - weights(m)) / static_cast<double>(bytes_per_token(m.memory)))});
        }
    return lines;
}

std::string heads() {
    std::string lines = head({"model", "GPUs", "GPUs with the same head", "memory and weights of a GPU, GB",
                              "reading, ms", "adding up, ms", "step, ms", "as fast as 8 GPUs, times"});
    for (const Model& m : models())
        for (const int gpus : gpu_counts) {
            const int kv_heads = m.memory.full.shape.kv_heads;
            const double bytes = weights(m) / gpus + sequences * held(m, length, gpus);
            const Step step = tensor_step(m, gpus);
            lines += row({name(m), std::to_string(gpus), std::to_string(std::max(1, gpus / kv_heads)),
                          rounded(bytes / 1e9) + (bytes > memory_used * gpu_memory ? ", too many" : ""),
                          rounded(step.reading * 1e3), rounded(step.adding * 1e3), rounded(step.whole() * 1e3),
                          rounded(tensor_step(m, node_gpus).whole() / step.whole())});
        }
    return lines;
}

std::string contexts() {
    std::string lines = head({"model", "GPUs", "cache of a GPU, GB", "reading, ms", "merging, ms",
                              "times as fast as one GPU", "faster than an eighth of the GPUs from"});
    for (const Model& m : models())
        for (const int gpus : gpu_counts) {
            const Step step = context_step(m, long_length, gpus);
            const int fewer = gpus / 8;
            const double more_merging = step.adding - context_step(m, long_length, fewer).adding;
            const double gain =
                static_cast<double>(bytes_per_token(m.memory)) / memory_speed * (1.0 / fewer - 1.0 / gpus);
            lines += row({name(m), std::to_string(gpus), rounded(step.reading * memory_speed / 1e9),
                          rounded(step.reading * 1e3), rounded(step.adding * 1e3),
                          rounded(context_step(m, long_length, 1).whole() / step.whole()),
                          tokens_text(more_merging / gain)});
        }
    return lines;
}

std::string stages() {
    std::string lines = head({"model", "GPUs", "stages", "layers of a stage", "hops, ms",
                              "a pass through all stages, ms", "a stage, ms", "chunks of a prompt for 10 % idle"});
    for (const Model& m : models())
        for (const int gpus : gpu_counts) {
            const int count = std::min(gpus, m.memory.layers);
            const int between_nodes = (count - 1) / node_gpus;
            const int inside = count - 1 - between_nodes;
            const double bytes = sequences * m.hidden * 2.0;
            const double hops = inside * (start + nvlink_hop + bytes / nvlink)
                                + between_nodes * (start + network_hop + bytes / network);
            const double read = (weights_read(m, sequences) + sequences * held(m, length)) / memory_speed;
            lines += row({name(m), std::to_string(gpus), std::to_string(count),
                          rounded(static_cast<double>(m.memory.layers) / count), rounded(hops * 1e3),
                          rounded((read + hops) * 1e3), rounded(read / count * 1e3), std::to_string(9 * (count - 1))});
        }
    return lines;
}

using Tables = std::vector<std::pair<std::string, std::string>>;
Tables tables() {
    return {{"constants", constants()}, {"wire", wire()},         {"room", room()},    {"migration", migration()},
            {"heads", heads()},         {"contexts", contexts()}, {"stages", stages()}};
}

std::string content(const std::string& path) {
    std::ifstream file{path};
    return {std::istreambuf_iterator<char>{file}, {}};
}

/// The page with new tables: each stands between `<!-- table: NAME -->` and `<!-- /table -->`. Empty if a mark is
/// missing.
std::string updated(std::string page) {
    for (const auto& [table, lines] : tables()) {
        const std::string mark = "<!-- table: " + table + " -->\n";
        const auto begin = page.find(mark);
        const auto end = begin == std::string::npos ? begin : page.find("<!-- /table -->", begin);
        if (end == std::string::npos) return {};
        page.replace(begin + mark.size(), end - begin - mark.size(), lines);
    }
    return page;
}

} // namespace

int main(int argc, char** argv) {
    if (argc == 1) {
        for (const auto& [table, lines] : tables()) std::cout << table << "\n\n" << lines << "\n";
        return 0;
    }
    const std::string action = argv[1];
    if (argc != 3 || (action != "--check" && action != "--update")) {
        std::cerr << "usage: " << argv[0] << " [--check PAGE | --update PAGE]\n";
        return 2;
    }
    const std::string old_page = content(argv[2]);
    const std::string new_page = updated(old_page);
    if (new_page.empty()) {
        std::cerr << argv[2] << ": a table's marks are missing\n";
        return 1;
    }
    if (action == "--update") {
        std::ofstream{argv[2]} << new_page;
    } else if (new_page != old_page) {
        std::cerr << argv[2] << ": the tables are not those that the program computes; --update repairs them\n";
        return 1;
    }
    return 0;
}
