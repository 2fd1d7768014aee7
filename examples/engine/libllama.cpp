// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "libllama.hpp"

#include "gguf_file.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>

namespace engine {

namespace {

ggml_type type_of(const std::string& name) {
    for (const ggml_type type : {GGML_TYPE_Q8_0, GGML_TYPE_Q4_0})
        if (name == ggml_type_name(type)) return type;
    return name == "half" ? GGML_TYPE_F16 : GGML_TYPE_F32;
}

llama_context* make_context(llama_model* model, const LibllamaOptions& options) {
    llama_context_params params = llama_context_default_params();
    params.n_ctx = static_cast<std::uint32_t>(options.cells);
    params.n_batch = params.n_ubatch = static_cast<std::uint32_t>(options.batch);
    params.n_seq_max = static_cast<std::uint32_t>(options.texts);
    params.n_threads = params.n_threads_batch = options.threads;
    params.flash_attn_type = options.flash ? LLAMA_FLASH_ATTN_TYPE_ENABLED : LLAMA_FLASH_ATTN_TYPE_DISABLED;
    params.type_k = options.keys;
    params.type_v = options.values;
    params.kv_unified = options.pooled;
    params.swa_full = true;
    params.no_perf = true;
    return llama_init_from_model(model, params);
}

/// The state of a text, as `llama_state_seq_get_data` writes it for a model whose layers are alike.
class State {
public:
    State(llama_context* context, const LibllamaOptions& options, int text, int tokens)
        : keys_{options.keys},
          values_{options.values},
          tokens_{static_cast<std::uint32_t>(tokens)},
          bytes_(header(context, text)) {
        const llama_model* const model = llama_get_model(context);
        const int streams = options.pooled ? 1 : options.texts;
        add(streams);
        for (int stream = 0; stream < streams; ++stream) {
            const bool is_own = options.pooled || stream == text;
            add(is_own ? tokens_ : 0);
            if (is_own) write_stream(model, text, !options.flash);
        }
    }

    const std::vector<std::uint8_t>& bytes() const { return bytes_; }

private:
    /// The first bytes are the same for a text without tokens.
    static std::vector<std::uint8_t> header(llama_context* context, int text) {
        std::vector<std::uint8_t> bytes(llama_state_seq_get_size(context, text));
        llama_state_seq_get_data(context, bytes.data(), bytes.size(), text);
        bytes.resize(std::min<std::size_t>(bytes.size(), 8));
        return bytes;
    }

    void write_stream(const llama_model* model, int text, bool transposed) {
        const auto layers = static_cast<std::uint32_t>(llama_model_n_layer(model));
        const int width = kv_width(model);
        for (std::uint32_t position = 0; position < tokens_; ++position) {
            add(position);
            add(std::uint32_t{1}); // texts that have it
            add(text);
        }
        add(std::uint32_t{transposed ? 1U : 0U});
        add(layers);
        add(rotated(keys_));
        add(rotated(values_));
        for (std::uint32_t i = 0; i < layers; ++i) {
            add(std::int32_t{keys_});
            add(std::uint64_t{ggml_row_size(keys_, width)});
            rows(keys_, width);
        }
        for (std::uint32_t i = 0; i < layers; ++i) {
            add(std::int32_t{values_});
            if (transposed) {
                add(static_cast<std::uint32_t>(ggml_type_size(values_)));
                add(static_cast<std::uint32_t>(width));
            } else {
                add(std::uint64_t{ggml_row_size(values_, width)});
            }
            rows(values_, width);
        }
    }

    static int kv_width(const llama_model* model) {
        char head[32] = {};
        char architecture[64] = {};
        llama_model_meta_val_str(model, "general.architecture", architecture, sizeof architecture);
        const std::string key = std::string{architecture} + ".attention.key_length";
        const bool given = llama_model_meta_val_str(model, key.c_str(), head, sizeof head) > 0;
        const int dim = given ? std::stoi(head) : llama_model_n_embd(model) / llama_model_n_head(model);
        return dim * llama_model_n_head_kv(model);
    }

    /// The order of the Hadamard matrix that rotates heads of 64 before they are quantised; 0: none does.
    static std::uint32_t rotated(ggml_type type) { return ggml_is_quantized(type) ? 64 : 0; }

    template <class T>
    void add(T value) {
        const auto* const first = reinterpret_cast<const std::uint8_t*>(&value);
        bytes_.insert(bytes_.end(), first, first + sizeof value);
    }

    /// Of values in [-1, 1); one row a token.
    void rows(ggml_type type, int width) {
        const std::size_t size = ggml_row_size(type, width);
        std::vector<float> row(static_cast<std::size_t>(width));
        for (std::uint32_t i = 0; i < tokens_; ++i) {
            for (float& value : row) {
                random_ = random_ * 1664525 + 1013904223;
                value = static_cast<float>(random_ >> 20) / 2048 - 1;
            }
            bytes_.resize(bytes_.size() + size);
            ggml_quantize_chunk(type, row.data(), bytes_.data() + bytes_.size() - size, 0, 1, width, nullptr);
        }
    }

    ggml_type keys_;
    ggml_type values_;
    std::uint32_t tokens_;
    std::uint32_t random_ = 1;
    std::vector<std::uint8_t> bytes_;
};

} // namespace

std::pair<ggml_type, ggml_type> types_of(const std::string& format) {
    const std::size_t comma = format.find(',');
    return {type_of(format.substr(0, comma)), type_of(comma == format.npos ? format : format.substr(comma + 1))};
}

void Libllama::fill(int text, int tokens) {
    const State state{context_.get(), options_, text, tokens};
    const std::size_t read = llama_state_seq_set_data(context_.get(), state.bytes().data(), state.bytes().size(), text);
    if (read != state.bytes().size() || length(text) != tokens)
        throw std::runtime_error{"libllama has another form of a text's state, expected that of 0.7"};
}

Libllama::Libllama(const std::string& path, const LibllamaOptions& options)
    : model_{llama_model_load_from_file(path.c_str(), llama_model_default_params()), llama_model_free},
      context_{nullptr, llama_free},
      options_{options} {
    if (!model_) throw FileError{path, "is no model that libllama reads"};
    context_.reset(make_context(model_.get(), options));
    if (!context_) throw FileError{path, "libllama could not make a context"};
}

const llama::Matrix& Libllama::run(std::span<const llama::NewTokens> batch, bool every_token) {
    std::vector<llama_token> tokens;
    std::vector<llama_pos> positions;
    std::vector<llama_seq_id> sequences;
    std::vector<std::int8_t> wanted;
    for (const llama::NewTokens& part : batch) {
        int position = length(part.text);
        for (const int token : part.tokens) {
            tokens.push_back(token);
            positions.push_back(position++);
            sequences.push_back(part.text);
            wanted.push_back(every_token ? 1 : 0);
        }
        wanted.back() = 1;
    }
    std::vector<std::int32_t> counts(tokens.size(), 1);
    std::vector<llama_seq_id*> lists;
    for (llama_seq_id& s : sequences) lists.push_back(&s);
    const llama_batch given{.n_tokens = static_cast<std::int32_t>(tokens.size()),
                            .token = tokens.data(),
                            .embd = nullptr,
                            .pos = positions.data(),
                            .n_seq_id = counts.data(),
                            .seq_id = lists.data(),
                            .logits = wanted.data()};
    if (const int status = llama_decode(context_.get(), given); status != 0)
        throw std::runtime_error{"libllama could not compute a batch: status " + std::to_string(status)};
    const int vocabulary = llama_vocab_n_tokens(llama_model_get_vocab(model_.get()));
    logits_.resize(std::count(wanted.begin(), wanted.end(), 1), vocabulary);
    Eigen::Index row = 0;
    for (std::size_t i = 0; i < wanted.size(); ++i)
        if (wanted[i] != 0)
            std::copy_n(llama_get_logits_ith(context_.get(), static_cast<std::int32_t>(i)), vocabulary,
                        logits_.row(row++).data());
    return logits_;
}

void Libllama::remove(int text, int begin, int end) {
    if (!llama_memory_seq_rm(memory(), text, begin, end)) throw std::runtime_error{"libllama refused to remove tokens"};
    llama_memory_seq_add(memory(), text, end, -1, begin - end);
}

} // namespace engine
