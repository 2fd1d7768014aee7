// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "session.hpp"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

namespace llama {

namespace {

/// The largest difference that rounding explains, relative to the largest logit. `u` is the largest relative error of
/// rounding to the cache's element type.
///
/// In every layer, float sums are off by a few u of float, because their order differs. Attention is off by about u,
/// because stored keys and values are rounded, and keys once more when they are shifted. Measured with the Shakespeare
/// model over 18,000 positions each, the difference is at most 17 u in float, 1.2 u in half and 0.9 u in bfloat16. The
/// bound allows 260 u in float and 4 u in the others: 1.6e-5, 0.002 and 0.016 of the largest logit. Faults give more:
/// 0.24 to 1.1 if keys are not rotated, rotated the wrong way or by one position too many, 0.015 to 0.5 if the window
/// is off by one.
double relative_bound(double u) {
    constexpr double of_float = 0x1p-24;
    return 256 * of_float + 4 * u;
}

void expect(const cellar::Result<void>& result, const std::string& what) {
    if (result) return;
    throw std::runtime_error{"the memory refused to " + what + ": " + to_string(result.error())};
}

} // namespace

Session::Session(Llama& model, TextMemory& memory, SessionOptions options)
    : model_{model}, memory_{memory}, options_{options}, reference_{model.config(), memory.limits()} {
    options_.sinks = std::min(options_.sinks, limits().context / 2); // so that there is something to remove
}

const Matrix& Session::feed(std::span<const int> tokens) {
    const Matrix* logits = nullptr;
    for (std::size_t done = 0; done < tokens.size();) {
        if (length_ == limits().context) make_room();
        const int left = static_cast<int>(tokens.size() - done);
        const int count = std::min({left, limits().batch, limits().context - length_});
        const int last = count - 1;
        logits = &run(tokens.subspan(done, static_cast<std::size_t>(count)), {&last, 1});
        record(logits->row(0));
        done += static_cast<std::size_t>(count);
    }
    return *logits;
}

const Matrix& Session::try_out(std::span<const int> tokens) {
    if (length_ == limits().context) make_room();
    wanted_.resize(tokens.size());
    std::iota(wanted_.begin(), wanted_.end(), 0);
    tried_ = run(tokens, wanted_);
    return tried_;
}

void Session::keep(int count) {
    const int excess = static_cast<int>(tried_.rows()) - count;
    if (excess > 0) {
        expect(memory_.remove(length_ - excess, length_), "remove the newest tokens");
        reference_.undo(excess);
        length_ -= excess;
    }
    record(tried_.row(count - 1));
}

Check Session::check() const {
    Reference reference = reference_;
    std::vector<int> wanted;
    for (const Probe& probe : probes_) wanted.push_back(probe.token);
    const Matrix expected = model_.forward(reference.tokens(), reference, wanted);
    Check result;
    result.positions = static_cast<int>(probes_.size());
    result.scale = expected.cwiseAbs().maxCoeff();
    Eigen::Index row = 0;
    for (const Probe& probe : probes_) {
        const RowVector difference = probe.logits - expected.row(row++);
        result.difference = difference.allFinite()
                                ? std::max<double>(result.difference, difference.cwiseAbs().maxCoeff())
                                : std::numeric_limits<double>::quiet_NaN();
        result.after_shift += probe.shifted ? 1 : 0;
    }
    result.bound = relative_bound(memory_.unit_roundoff()) * result.scale;
    return result;
}

void Session::make_room() {
    const int begin = options_.sinks;
    const int end = begin + (limits().context - begin + 1) / 2;
    if (model_.config().layers(LayerKind::recurrent) > 0) {
        std::vector<int> text = reference_.text();
        text.erase(text.begin() + begin, text.begin() + end);
        start_again(text);
    } else {
        expect(memory_.remove(begin, end), "remove tokens");
        reference_.remove(begin, end);
        length_ -= end - begin;
    }
    ++shifts_;
    probe_next_ = true;
}

void Session::start_again(std::span<const int> tokens) {
    expect(memory_.remove(0, length_), "remove all tokens");
    reference_.remove(0, length_);
    length_ = 0;
    for (std::size_t done = 0; done < tokens.size();) {
        const std::size_t count = std::min(tokens.size() - done, static_cast<std::size_t>(limits().batch));
        run(tokens.subspan(done, count), {});
        done += count;
    }
}

const Matrix& Session::run(std::span<const int> tokens, std::span<const int> wanted) {
    const int count = static_cast<int>(tokens.size());
    expect(memory_.begin(length_, count), "take " + std::to_string(count) + " tokens");
    const Matrix& logits = model_.forward(tokens, memory_, wanted);
    memory_.commit();
    reference_.append(tokens);
    length_ += count;
    return logits;
}

void Session::record(const Eigen::Ref<const RowVector>& logits) {
    const int token = static_cast<int>(reference_.tokens().size()) - 1;
    if (!probe_next_ && token - last_probe_ < options_.check_interval) return;
    probes_.push_back({token, shifts_ > 0, logits});
    last_probe_ = token;
    probe_next_ = false;
}

} // namespace llama
