// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "checkpoint.hpp"

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

namespace rwkv {

namespace {

using llama::FileError;
using llama::in_quotes;

/// The tensors of a file. A header of six integers is followed by one entry per tensor: the number of extents, the
/// length of the name, the type, the extents (fastest first), the name and the data. At the end, every tensor must have
/// been read.
class TensorFile {
public:
    explicit TensorFile(const llama::File& file) : file_{file} {
        read_header();
        while (offset_ < file_.bytes.size()) read_entry();
    }

    [[noreturn]] void fail(const std::string& what) const { throw FileError{file_.name, what}; }

    Config config() const { return config_; }

    /// The number of rows of a matrix, if it does not follow from the header.
    int rows(const std::string& name) const { return static_cast<int>(find(name).rows); }

    Matrix matrix(const std::string& name, std::int64_t rows, std::int64_t columns) {
        const Tensor& tensor = find(name);
        if (tensor.rows != rows || tensor.columns != columns) {
            fail(std::string{"tensor "} + in_quotes(name) + " is " + shape(tensor.rows, tensor.columns) + ", expected "
                 + shape(rows, columns));
        }
        Matrix m(rows, columns);
        llama::load(file_.bytes.data() + tensor.begin, std::span{m.data(), static_cast<std::size_t>(m.size())});
        if (!m.allFinite())
            fail(std::string{"tensor "} + in_quotes(name) + " holds values that are not finite numbers");
        used_.insert(name);
        return m;
    }

    RowVector vector(const std::string& name, std::int64_t size) { return matrix(name, 1, size); }

    void expect_all_used() const {
        for (const auto& [name, tensor] : tensors_) {
            if (!used_.contains(name))
                fail(std::string{"tensor "} + in_quotes(name) + " does not belong to this model");
        }
    }

private:
    struct Tensor {
        std::int64_t rows;
        std::int64_t columns;
        std::size_t begin;
    };

    void read_header() {
        constexpr std::uint32_t magic = 0x67676d66;
        constexpr std::uint32_t version = 101;
        if (file_.bytes.size() < 6 * sizeof(std::uint32_t)) {
            fail("not a file of rwkv.cpp: it has " + std::to_string(file_.bytes.size())
                 + " bytes, expected at least 24");
        }
        if (const std::uint32_t found = word("magic"); found != magic) {
            fail("not a file of rwkv.cpp: it begins with " + std::to_string(found) + ", expected "
                 + std::to_string(magic));
        }
        if (const std::uint32_t found = word("version"); found != version) {
            fail("version " + std::to_string(found) + " of the format, expected " + std::to_string(version));
        }
        config_.vocab_size = extent("n_vocab", 1 << 20);
        config_.hidden_size = extent("n_embed", 1 << 16);
        config_.layers = extent("n_layer", 1024);
        expect_float("the file", word("data type"));
    }

    void read_entry() {
        const std::uint32_t extents = word("number of extents");
        const std::uint32_t length = word("length of a name");
        const std::uint32_t type = word("data type");
        if (extents < 1 || extents > 4) {
            fail("a tensor of " + std::to_string(extents) + " extents at byte " + std::to_string(offset_)
                 + ", expected 1 to 4");
        }
        std::uint32_t sizes[4] = {1, 1, 1, 1};
        for (std::uint32_t i = 0; i < extents; ++i) sizes[i] = word("extent");
        expect_left(length, "a name");
        const std::string name{file_.bytes.data() + offset_, length};
        offset_ += length;
        expect_float(std::string{"tensor "} + in_quotes(name), type);
        std::uint64_t elements = 1;
        for (const std::uint32_t size : sizes) {
            if (size == 0) fail(std::string{"tensor "} + in_quotes(name) + " is empty");
            elements = elements > file_.bytes.size() / size ? file_.bytes.size() : elements * size;
        }
        expect_left(elements * sizeof(float), std::string{"tensor "} + in_quotes(name));
        const auto rows = static_cast<std::int64_t>(elements / sizes[0]);
        if (!tensors_.emplace(name, Tensor{rows, sizes[0], offset_}).second) {
            fail(std::string{"tensor "} + in_quotes(name) + " occurs twice");
        }
        offset_ += elements * sizeof(float);
    }

    void expect_left(std::uint64_t bytes, const std::string& what) const {
        if (bytes > file_.bytes.size() - offset_) {
            fail("cut off: it ends at byte " + std::to_string(file_.bytes.size()) + ", within " + what);
        }
    }

    void expect_float(const std::string& which, std::uint32_t type) const {
        if (type != 0) fail(which + " has the data type " + std::to_string(type) + ", expected 0, which is float");
    }

    std::uint32_t word(const char* what) {
        expect_left(sizeof(std::uint32_t), what);
        const auto value = llama::load<std::uint32_t>(file_.bytes.data() + offset_);
        offset_ += sizeof value;
        return value;
    }

    int extent(const char* name, std::uint32_t high) {
        const std::uint32_t value = word(name);
        if (value < 1 || value > high) {
            fail(std::string{name} + " is " + std::to_string(value) + ", expected 1 to " + std::to_string(high));
        }
        return static_cast<int>(value);
    }

    const Tensor& find(const std::string& name) const {
        const auto found = tensors_.find(name);
        if (found == tensors_.end()) fail(std::string{"tensor "} + in_quotes(name) + " is missing");
        return found->second;
    }

    static std::string shape(std::int64_t rows, std::int64_t columns) {
        return std::string{"["} + std::to_string(rows) + ", " + std::to_string(columns) + "]";
    }

    const llama::File& file_;
    Config config_;
    std::size_t offset_ = 0;
    std::map<std::string, Tensor> tensors_;
    std::set<std::string> used_;
};

/// Builds the weights from the tensors of a file.
class WeightsReader {
public:
    explicit WeightsReader(const llama::File& file) : file_{file}, config_{file_.config()} {}

    Weights read() {
        config_.heads = file_.rows("blocks.0.att.r_k");
        if (config_.hidden_size % config_.heads != 0) {
            file_.fail(std::to_string(config_.heads) + " heads cannot share " + std::to_string(config_.hidden_size)
                       + " channels equally");
        }
        Weights w;
        w.config = config_;
        w.embedding = file_.matrix("emb.weight", config_.vocab_size, config_.hidden_size);
        w.embedding_norm = norm("blocks.0.ln0");
        for (int layer = 0; layer < config_.layers; ++layer) {
            const std::string prefix = "blocks." + std::to_string(layer) + ".";
            w.layers.push_back({time_mix(prefix, layer > 0), channel_mix(prefix)});
        }
        w.norm = norm("ln_out");
        w.classifier = file_.matrix("head.weight", config_.vocab_size, config_.hidden_size);
        file_.expect_all_used();
        return w;
    }

private:
    TimeMixWeights time_mix(const std::string& block, bool mixes_values) {
        const std::string prefix = block + "att.";
        TimeMixWeights w;
        w.norm = norm(block + "ln1");
        w.shares = file_.matrix(prefix + "x_rwkvag", 6, config_.hidden_size);
        w.receptance = square(prefix + "receptance.weight");
        w.key = square(prefix + "key.weight");
        w.value = square(prefix + "value.weight");
        w.output = square(prefix + "output.weight");
        w.decay = low_rank(prefix + "w");
        w.decay_bias = vector(prefix + "w0");
        w.rate = low_rank(prefix + "a");
        w.rate_bias = vector(prefix + "a0");
        w.gate = low_rank(prefix + "g");
        if (mixes_values) {
            w.value_mix = low_rank(prefix + "v");
            w.value_mix_bias = vector(prefix + "v0");
        }
        w.removal_scale = vector(prefix + "k_k");
        w.rate_scale = vector(prefix + "k_a");
        const Matrix bonus = file_.matrix(prefix + "r_k", config_.heads, config_.head_dim());
        w.bonus = Eigen::Map<const RowVector>(bonus.data(), bonus.size());
        w.head_norm = norm(prefix + "ln_x");
        return w;
    }

    ChannelMixWeights channel_mix(const std::string& block) {
        const std::string prefix = block + "ffn.";
        const int wide = file_.rows(prefix + "key.weight");
        return {norm(block + "ln2"), vector(prefix + "x_k"),
                file_.matrix(prefix + "key.weight", wide, config_.hidden_size),
                file_.matrix(prefix + "value.weight", config_.hidden_size, wide)};
    }

    Norm norm(const std::string& name) { return {vector(name + ".weight"), vector(name + ".bias")}; }

    LowRank low_rank(const std::string& name) {
        const int rank = file_.rows(name + "1");
        return {file_.matrix(name + "1", rank, config_.hidden_size),
                file_.matrix(name + "2", config_.hidden_size, rank)};
    }

    Matrix square(const std::string& name) { return file_.matrix(name, config_.hidden_size, config_.hidden_size); }
    RowVector vector(const std::string& name) { return file_.vector(name, config_.hidden_size); }

    TensorFile file_;
    Config config_;
};

} // namespace

Weights read_checkpoint(const llama::File& file) {
    return WeightsReader{file}.read();
}

} // namespace rwkv
