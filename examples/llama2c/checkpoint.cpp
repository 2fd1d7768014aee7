// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "checkpoint.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace llama {

namespace {

/// A llama2.c checkpoint: seven int32, then the tensors as float. Each tensor is stored for all layers before the next
/// one. (https://github.com/karpathy/llama2.c, `memory_map_weights` in run.c)
class CheckpointReader {
public:
    explicit CheckpointReader(const File& file) : file_{file} {}

    Weights read() {
        Weights w;
        w.config = read_header();
        check_length(w.config);
        const Config& c = w.config;
        w.embedding = matrix(c.vocab_size, c.hidden_size);
        w.layers.resize(c.layer_types.size());
        const int hidden = c.hidden_size;
        const int wide = c.intermediate_size;
        for (auto& l : w.layers) l.kind = LayerKind::full_attention;
        for (auto& l : w.layers) l.input_norm = vector(hidden);
        for (auto& l : w.layers) l.attention.query = matrix(hidden, hidden);
        for (auto& l : w.layers) l.attention.key = matrix(c.key_value_size(), hidden);
        for (auto& l : w.layers) l.attention.value = matrix(c.key_value_size(), hidden);
        for (auto& l : w.layers) l.attention.output = matrix(hidden, hidden);
        for (auto& l : w.layers) l.feed_forward_norm = vector(hidden);
        for (auto& l : w.layers) l.feed_forward.gate = matrix(wide, hidden);
        for (auto& l : w.layers) l.feed_forward.down = matrix(hidden, wide);
        for (auto& l : w.layers) l.feed_forward.up = matrix(wide, hidden);
        w.norm = vector(hidden);
        offset_ += sizeof(float) * legacy_rope_floats(c);
        if (!c.tie_word_embeddings) w.classifier = matrix(c.vocab_size, hidden);
        return w;
    }

private:
    static constexpr std::size_t fields = 7;

    [[noreturn]] void fail(const std::string& what) const { throw FileError{file_.name, what}; }

    Config read_header() {
        if (file_.bytes.size() < fields * sizeof(std::int32_t)) {
            fail("not a llama2.c checkpoint: it has " + std::to_string(file_.bytes.size())
                 + " bytes, expected at least 28");
        }
        Config c;
        c.hidden_size = field("dim", 1 << 16);
        c.intermediate_size = field("hidden_dim", 1 << 20);
        c.layer_types.assign(static_cast<std::size_t>(field("n_layers", 1024)), LayerKind::full_attention);
        c.num_attention_heads = field("n_heads", 1024);
        c.num_key_value_heads = field("n_kv_heads", 1024);
        // A negative vocabulary size means that the model has a separate classifier.
        c.tie_word_embeddings = load<std::int32_t>(file_.bytes.data() + offset_) > 0;
        c.vocab_size = field("vocab_size", 1 << 24, true);
        c.max_position_embeddings = field("seq_len", 1 << 20);
        c.rope_pairing = Pairing::interleaved;
        if (c.hidden_size % c.num_attention_heads != 0) {
            fail("not a llama2.c checkpoint: dim " + std::to_string(c.hidden_size) + " is not a multiple of n_heads "
                 + std::to_string(c.num_attention_heads));
        }
        c.head_dim = c.hidden_size / c.num_attention_heads;
        if (const std::string why = contradiction(c); !why.empty()) fail(why);
        return c;
    }

    int field(const char* name, std::int32_t high, bool either_sign = false) {
        const auto value = load<std::int32_t>(file_.bytes.data() + offset_);
        offset_ += sizeof value;
        const std::int64_t size = either_sign && value < 0 ? -std::int64_t{value} : value;
        if (size < 1 || size > high) {
            fail("not a llama2.c checkpoint: " + std::string{name} + " is " + std::to_string(value) + ", expected 1 to "
                 + std::to_string(high));
        }
        return static_cast<int>(size);
    }

    static std::uint64_t legacy_rope_floats(const Config& c) {
        return static_cast<std::uint64_t>(c.max_position_embeddings) * static_cast<std::uint64_t>(c.head_dim);
    }

    void check_length(const Config& c) const {
        const auto hidden = static_cast<std::uint64_t>(c.hidden_size);
        const auto layers = static_cast<std::uint64_t>(c.layers());
        const auto keys = static_cast<std::uint64_t>(c.key_value_size());
        const auto wide = static_cast<std::uint64_t>(c.intermediate_size);
        const std::uint64_t embedding = static_cast<std::uint64_t>(c.vocab_size) * hidden;
        const std::uint64_t layer = hidden * (2 + 2 * hidden + 2 * keys + 3 * wide);
        const std::uint64_t floats =
            embedding * (c.tie_word_embeddings ? 1 : 2) + layers * layer + hidden + legacy_rope_floats(c);
        const std::uint64_t expected = fields * sizeof(std::int32_t) + sizeof(float) * floats;
        if (file_.bytes.size() != expected) {
            fail("not a llama2.c checkpoint, or cut off: it has " + std::to_string(file_.bytes.size())
                 + " bytes, expected " + std::to_string(expected) + " from its header");
        }
    }

    Matrix matrix(Eigen::Index rows, Eigen::Index columns) {
        Matrix m(rows, columns);
        const std::span values{m.data(), static_cast<std::size_t>(m.size())};
        load(file_.bytes.data() + offset_, values);
        if (!m.allFinite()) {
            fail("the tensor at byte " + std::to_string(offset_) + " holds values that are not finite numbers");
        }
        offset_ += values.size_bytes();
        return m;
    }

    RowVector vector(Eigen::Index size) { return matrix(1, size); }

    const File& file_;
    std::size_t offset_ = 0;
};

} // namespace

Weights read_checkpoint(const File& file) {
    return CheckpointReader{file}.read();
}

} // namespace llama
