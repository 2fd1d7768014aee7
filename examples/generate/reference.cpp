// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "reference.hpp"

#include "recurrence.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <utility>

namespace llama {

Reference::Reference(const Config& config, const TextLimits& limits)
    : config_{config},
      rotary_{config, limits.context},
      kept_{config.sliding_window + limits.rollback},
      forgets_{kept_ < limits.context} {
    epochs_.emplace_back();
}

void Reference::append(std::span<const int> tokens) {
    Epoch& epoch = epochs_.back();
    for (const int token : tokens) {
        epoch.present.push_back({static_cast<int>(tokens_.size()), false});
        tokens_.push_back(token);
    }
}

void Reference::remove(int begin, int end) {
    Epoch next = epochs_.back();
    const int newest = static_cast<int>(next.present.size()) - 1;
    for (int p = 0; forgets_ && p <= newest - kept_; ++p) {
        next.present[static_cast<std::size_t>(p)].forgotten = true;
    }
    next.present.erase(next.present.begin() + begin, next.present.begin() + end);
    next.first = static_cast<int>(next.present.size());
    epochs_.push_back(std::move(next));
}

void Reference::undo(int count) {
    Epoch& epoch = epochs_.back();
    epoch.present.resize(epoch.present.size() - static_cast<std::size_t>(count));
    tokens_.resize(tokens_.size() - static_cast<std::size_t>(count));
}

std::vector<int> Reference::text() const {
    std::vector<int> result;
    for (const Present& p : epochs_.back().present) result.push_back(tokens_[static_cast<std::size_t>(p.token)]);
    return result;
}

void Reference::recur(int /*layer*/, const RecurrenceWeights& w, Matrix& x) {
    Matrix inputs(w.taps.cols() - 1, x.cols());
    RowVector h(x.cols());
    const RecurrentLayerState state{{inputs.data(), inputs.rows(), inputs.cols()}, {h.data(), h.size()}};
    Eigen::Index from = 0;
    for (const Epoch& epoch : epochs_) {
        const auto fresh = static_cast<Eigen::Index>(epoch.present.size()) - epoch.first;
        inputs.setZero(); // each epoch begins without tokens
        h.setZero();
        if (fresh > 0) llama::recur(w, state, x.middleRows(from, fresh));
        from += fresh;
    }
}

void Reference::attend(int layer, Matrix& queries, Matrix& keys, const Matrix& values, Matrix& out) {
    out.resize(queries.rows(), queries.cols());
    const LayerKind kind = config_.layer_types[static_cast<std::size_t>(layer)];
    for (const Epoch& epoch : epochs_) attend(kind, epoch, queries, keys, values, out);
}

void Reference::attend(LayerKind kind, const Epoch& epoch, const Matrix& queries, const Matrix& keys,
                       const Matrix& values, Matrix& out) const {
    const auto present = static_cast<Eigen::Index>(epoch.present.size());
    const Eigen::Index fresh = present - epoch.first;
    if (fresh == 0) return;
    const Eigen::Index from = epoch.present[static_cast<std::size_t>(epoch.first)].token;
    Matrix q = queries.middleRows(from, fresh);
    Matrix k = rows(keys, epoch);
    const Matrix v = rows(values, epoch);
    rotary_.rotate(q, epoch.first);
    rotary_.rotate(k, 0);
    const Eigen::Index dim = config_.head_dim;
    const Eigen::Index window = config_.sliding_window;
    constexpr Eigen::Index max_rows = 256; // all rows of a long text do not fit in memory
    for (int head = 0; head < config_.num_attention_heads; ++head) {
        const int kv_head = head / config_.queries_per_key();
        for (Eigen::Index first = 0; first < fresh; first += max_rows) {
            const Eigen::Index count = std::min(max_rows, fresh - first);
            const Eigen::Index query = epoch.first + first;
            const Eigen::Index key = kind == LayerKind::full_attention ? 0 : std::max<Eigen::Index>(0, query - window);
            const Eigen::Index seen = query + count - key; // the others are later, or before the window
            Matrix weights =
                q.block(first, head * dim, count, dim) * k.block(key, kv_head * dim, seen, dim).transpose();
            weights /= std::sqrt(static_cast<float>(dim));
            hide(kind, epoch, query, key, weights);
            softmax_rows(weights);
            out.block(from + first, head * dim, count, dim) = weights * v.block(key, kv_head * dim, seen, dim);
        }
    }
}

Matrix Reference::rows(const Matrix& all, const Epoch& epoch) {
    Matrix result(static_cast<Eigen::Index>(epoch.present.size()), all.cols());
    Eigen::Index row = 0;
    for (const Present& p : epoch.present) result.row(row++) = all.row(p.token);
    return result;
}

void Reference::hide(LayerKind kind, const Epoch& epoch, Eigen::Index query, Eigen::Index key, Matrix& weights) const {
    for (Eigen::Index i = 0; i < weights.rows(); ++i) {
        for (Eigen::Index j = 0; j < weights.cols(); ++j) {
            if (!sees(kind, epoch, query + i, key + j)) {
                weights(i, j) = -std::numeric_limits<float>::infinity();
            }
        }
    }
}

bool Reference::sees(LayerKind kind, const Epoch& epoch, Eigen::Index query, Eigen::Index key) const {
    if (key > query) return false;
    if (kind == LayerKind::full_attention) return true;
    return key > query - config_.sliding_window && !epoch.present[static_cast<std::size_t>(key)].forgotten;
}

} // namespace llama
